"""Python runs this first where its folder is on PYTHONPATH: ends a program as it first calls a
model, and writes when that was.

With VRAMCAST_CUDA_ON_CPU, what a program does on "cuda" is done on the CPU. The seconds that this
file takes are not counted.
"""

import os
import sys
import time
from importlib.abc import MetaPathFinder
from importlib.util import find_spec


class AfterTorch(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        sys.meta_path.insert(0, self)  # libraries ask where it is and do not import it
        run = spec.loader.exec_module

        def run_and_change(module):
            run(module)
            change(module)

        spec.loader.exec_module = run_and_change
        return spec


def change(torch):
    began = time.time(), time.process_time()
    if "VRAMCAST_CUDA_ON_CPU" in os.environ:
        from vramcast.probing.cuda_on_cpu import cuda_means_cpu

        kept.append(cuda_means_cpu())
        kept[0].__enter__()
        loader = torch.utils.data.DataLoader
        begin = loader.__init__
        loader.__init__ = lambda *a, **given: begin(*a, **{**given, "pin_memory": False})
        torch.accelerator.is_available = lambda: True
        torch.accelerator.current_accelerator = lambda *_, **__: torch.device("cpu")
    call = torch.nn.Module.__call__
    own = time.time() - began[0], time.process_time() - began[1]

    def end(self, *arguments, **options):
        if next(self.parameters(), None) is None:
            return call(self, *arguments, **options)
        with open(os.environ["VRAMCAST_SET_UP_ENDED"] + ".new", "w") as file:
            file.write(f"{time.time() - own[0]} {cpu_seconds() - own[1]}")
        os.rename(file.name, os.environ["VRAMCAST_SET_UP_ENDED"])
        os._exit(0)

    torch.nn.Module.__call__ = end


def cpu_seconds():
    """Of all processes of the program, also of those that it was started by and of the workers of
    a data loader: seconds.py starts it in a session of its own."""
    ticks = 0
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{number}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[3]) == os.getsid(0):
            ticks += sum(map(int, fields[11:15]))  # with its children that have ended
    return ticks / os.sysconf("SC_CLK_TCK")


kept = []
if "VRAMCAST_SET_UP_ENDED" in os.environ:
    sys.meta_path.insert(0, AfterTorch())
