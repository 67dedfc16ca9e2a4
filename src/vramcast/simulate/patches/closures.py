"""L-BFGS notes each call of its closure among the works of a step, and goes on as long as it may.

Why: how often it calls depends on values. Once a run has converged, it calls once.
"""

import ctypes
import inspect
from collections.abc import Callable
from typing import Any

import torch

from vramcast.simulate.patching import Patcher
from vramcast.tracing.work import EVALUATION, NO_KERNEL

LIBRARY = "torch"


def apply(patcher: Patcher) -> None:
    real = torch.optim.LBFGS.step
    nothing = (ctypes.c_int64 * 4)()

    def step(self: Any, closure: Callable[[], Any]) -> Any:
        def noted() -> Any:
            add = patcher.gpu.device.library.vramcast_add_work
            add(EVALUATION.encode(), -1, 0.0, 0.0, nothing, NO_KERNEL)
            return closure()

        return real(self, noted)

    patcher.put(torch.optim.LBFGS, "step", step)
    patcher.gpu.reads.going_on.add(inspect.unwrap(real).__code__)
