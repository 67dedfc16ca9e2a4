"""Programs that start the training instead of doing it, in different ways."""

import os
import subprocess
import sys

kind, training = sys.argv[1:]
environment = {**os.environ, "PYTORCH_ALLOC_CONF": "expandable_segments:True"}


def child(rank):
    import runpy

    sys.argv = [training, "loop"]
    runpy.run_path(training, run_name="__main__")


match kind:
    case "subprocess":
        subprocess.run([sys.executable, "-V"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([sys.executable, training, "leaves"], env=environment, check=True)
    case "exec":
        os.execvpe("torchrun", ["torchrun", "--nproc-per-node=2", training, "loop"], environment)
    case "torchrun":
        os.environ.update(environment)
        from torch.distributed.run import main

        main(["--nproc-per-node=1", training, "loop"])
    case "spawn":
        os.environ.update(environment)
        import torch.multiprocessing as mp

        mp.spawn(child, nprocs=2)
    case "process":
        os.environ.update(environment)
        import multiprocessing

        spawning = multiprocessing.get_context("spawn")
        processes = [spawning.Process(target=child, args=(rank,)) for rank in range(2)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
            assert process.exitcode == 0 and not process.is_alive()
