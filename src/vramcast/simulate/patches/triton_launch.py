"""Launching a Triton kernel does nothing but note the bytes of its tensors.

Why: the kernel cannot run without a GPU. Its caller allocates the results. Its time is that of
going once through every tensor it is given, and the answer says so.
Versions: triton 3.
"""

import sys
from typing import Any

from vramcast.simulate.kernels.work import work_of
from vramcast.simulate.patching import Patcher

LIBRARY = "triton.runtime.jit"
# Python calls of a launch on an H200, without those here.
NUM_CALLS = 17


def apply(patcher: Patcher) -> None:
    def launch(self: Any, *arguments: Any, **options: Any) -> None:
        patcher.gpu.device.library.vramcast_add_python_calls(NUM_CALLS)
        work = work_of("triton", (*arguments, *options.values()), {}, None)
        patcher.gpu.device.library.vramcast_add_work(f"triton::{self.__name__}".encode(), *work)

    patcher.put(sys.modules[LIBRARY].JITFunction, "run", launch)
