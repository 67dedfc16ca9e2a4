"""Launching a Triton kernel does nothing but note its work.

Why: the kernel cannot run without a GPU. Its caller allocates the results. Its time follows from a
few of its blocks, which run on the host (fused/by_hand.py). Where these use something that is not
stood in for, it is that of going once through every tensor, and the answer says so.
Versions: triton 3.
"""

import sys
from typing import Any

import torch
from torch._C import DisableTorchFunction
from torch.utils._python_dispatch import _disable_current_modes

from vramcast.forecast.timing.rates import shipped
from vramcast.simulate.fused.by_hand import NO_BLOCK, ByHand
from vramcast.simulate.fused.works import Work, seconds_of, unless_it_fails
from vramcast.simulate.kernels.work import work_of
from vramcast.simulate.patching import Patcher
from vramcast.tracing.work import JIT, PLAIN

LIBRARY = "triton.runtime.jit"
# Python calls of a launch on an H200, without those here.
NUM_CALLS = 17
# Seconds of a launch that is tried, where none are known: longer than any that are. The first of
# several such is chosen.
UNKNOWN = 1.0


def is_recorded(function: Any) -> bool:
    """Whether the table of rates has this kernel itself, by its tensors' bytes."""
    is_ours = function.module.partition(".")[0] == "vramcast_zoo"
    return is_ours and f"triton::{function.__name__} plain" in shipped().kernels


def _check_number(function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    """Raises where there are too many arguments, or too few, as Triton does."""
    params = function.params
    if len(arguments) > len(params):
        raise TypeError(
            f"{function.__name__}() takes {len(params)} arguments, not {len(arguments)}"
        )
    for param in params[len(arguments) :]:
        if param.name not in options and not param.has_default:
            raise TypeError(f"{function.__name__}() is launched without its argument {param.name}")


def _check_pointers(arguments: tuple[Any, ...]) -> None:
    """Raises where a kernel would read the host's memory, as Triton does. It takes an empty tensor,
    because that is a pointer to nothing."""
    for number, given in enumerate(arguments):
        is_of_host = isinstance(given, torch.Tensor) and given.is_cpu and given.numel() > 0
        if is_of_host and not given.is_pinned():
            raise ValueError(
                f"Pointer argument (at {number}) cannot be accessed from Triton (cpu tensor?)"
            )


def apply(patcher: Patcher) -> None:
    library, known = patcher.gpu.device.library, dict[int, ByHand]()

    def by_hand_of(function: Any) -> ByHand:
        if id(function) not in known:
            known[id(function)] = ByHand(function)
        return known[id(function)]

    def find_work(function: Any, grid: Any, arguments: Any, options: Any) -> Work | None:
        if is_recorded(function):
            return None
        # what the program watches torch with does not see this
        with patcher.gpu.not_counting(), DisableTorchFunction(), _disable_current_modes():
            return by_hand_of(function).work(grid, arguments, options, patcher.gpu.model)

    def launch(
        self: Any, *arguments: Any, grid: Any = (), warmup: bool = False, **options: Any
    ) -> None:
        _check_number(self, arguments, options)
        if warmup:  # it would only compile
            return
        _check_pointers(arguments)
        if patcher.gpu.timed is None:
            library.vramcast_add_python_calls(NUM_CALLS)
        work = unless_it_fails(None, lambda: find_work(self, grid, arguments, options))
        if patcher.gpu.timed is not None:
            patcher.gpu.timed.append(seconds_of(work, patcher.gpu.model) if work else UNKNOWN)
        elif work is None:
            given = work_of("triton", (*arguments, *options.values()), {}, None)
            library.vramcast_add_work(f"triton::{self.__name__}".encode(), *given)
        elif work is not NO_BLOCK:
            library.vramcast_add_work(f"{JIT}{self.__name__}".encode(), *work, PLAIN)

    patcher.put(sys.modules[LIBRARY].JITFunction, "run", launch)
