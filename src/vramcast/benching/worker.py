"""The processes in which trials run: `python -m vramcast.benching.worker FD PID` imports torch once and forks a fresh one for every trial.

Requests come as lines of JSON on stdin. FD is a pipe to the process PID that started this: lines of {"progress"} and at the end
{"outcome"} or {"error"} from a trial, then {"ended"}, its exit code. The results themselves are files in the trial's folder. When PID
dies, the kernel ends this process, and with it the trial.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import sys
import traceback
from importlib import metadata
from pathlib import Path
from typing import Any

from vramcast.benching.data import Corpus
from vramcast.benching.trial_folder import TrialFolder
from vramcast.errors import EnvironmentProblem, VramcastError
from vramcast.hardware import environment
from vramcast.probing.worker import Pipe, failure
from vramcast.processes.lifetime import adopt_orphans, end_children, end_with_the_parent
from vramcast.records.bench import TrainedRun, Trial


def work(request: dict[str, Any], answer: Pipe) -> None:
    trial, folder = Trial.from_dict(request["trial"]), TrialFolder(Path(request["folder"]))
    where = describe_environment(trial.device)
    try:
        with folder.lock():
            run = _train(trial, folder, request, where, answer)
    except VramcastError as problem:
        answer.send(
            {
                "error": {
                    "message": problem.message,
                    "advice": problem.advice,
                    "exit_code": problem.exit_code,
                }
            }
        )
        return
    except (
        BaseException
    ) as problem:  # also SystemExit: a model that ends the program has not done its work
        found = failure(problem)
        run = TrainedRun(
            trial=trial, outcome=found["outcome"], environment=where, error=found["error"]
        )
    folder.write_result(run)
    answer.send({"outcome": run.outcome})


def _train(
    trial: Trial, folder: TrialFolder, request: dict[str, Any], where: dict[str, Any], answer: Pipe
) -> TrainedRun:
    from vramcast.benching.tensorboard import Board
    from vramcast.benching.trainer import Trainer

    corpus = Corpus(Path(request["data_path"]))
    if corpus.identity() != trial.data:
        raise EnvironmentProblem(
            f"The data file {corpus.path} is not the one that was given.",
            "Leave it as it is while it is in use.",
        )
    trainer = Trainer(
        trial=trial,
        corpus=corpus,
        folder=folder,
        checkpoint_seconds=request["checkpoint_seconds"],
        environment=where,
        tell=lambda progress: answer.send({"progress": progress}),
        board=Board(folder.board, trial.tokens_per_step) if request["tensorboard"] else None,
    )
    return trainer.run()


def describe_environment(device: str) -> dict[str, Any]:
    import torch

    gpu = torch.cuda.get_device_name() if device == "cuda" else None
    try:
        schedulefree = metadata.version("schedulefree")
    except metadata.PackageNotFoundError:
        schedulefree = None
    return {
        **environment.describe(Path.cwd()),
        "device": device,
        "gpu": gpu,
        "torch_version": torch.__version__,
        "schedulefree_version": schedulefree,
    }


def _fork(request: dict[str, Any], descriptor: int, threads: int) -> int:
    own_pid = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        end_with_the_parent(own_pid)
        log = os.open(
            TrialFolder(Path(request["folder"])).log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644
        )
        os.dup2(log, 1)
        os.dup2(log, 2)
        faulthandler.enable(all_threads=False)  # where it was, when it dies of a signal
        import torch

        torch.set_num_threads(threads)
        work(request, Pipe(descriptor))
        sys.stdout.flush()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)  # what comes after the fork in the parent is not for this process


def _import_all() -> int:
    """The number of threads a trial computes with. Here nothing may compute with more than one: OpenMP's do not survive a fork."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for module in (
        "vramcast.benching.trainer",
        "torch._dynamo",
    ):  # the first optimizer would import the second: seconds
        importlib.import_module(module)
    return threads


def main() -> None:
    end_with_the_parent(int(sys.argv[2]))
    adopt_orphans()
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)  # not for programs that the model's code starts
    # is_available() then asks NVML: the CUDA runtime, once asked, cannot be used after a fork
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    threads = _import_all()
    for line in sys.stdin:
        _, status = os.waitpid(_fork(json.loads(line), descriptor, threads), 0)
        end_children()  # what the model's code has started
        Pipe(descriptor).send({"ended": os.waitstatus_to_exitcode(status)})
    os._exit(0)  # nothing to clean up, and torch takes its time over it


if __name__ == "__main__":
    main()
