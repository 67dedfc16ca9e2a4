"""A workload whose step accumulates gradients: forward and backward twice, then one update.

While gradients accumulate they are in memory during the forward pass too, which a plain step never
shows. Every further pass takes the same memory and time as the second: two passes are enough to
know the memory and, together with the time of the plain step, the time of any number of passes.

On the first pass an optimizer's `step` does nothing, and `zero_grad` clears only gradients that an
update has used. Not covered: workloads that set gradients to None by hand.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

PASSES = 2


@dataclass
class _Gate:
    """What optimizers may do now. By default everything."""

    open: bool = True  # `step` updates
    used: bool = True  # an update has used the gradients, so `zero_grad` clears them


_gate = _Gate()


def accumulating(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same workload, whose step is two passes and one update."""

    @functools.wraps(function)
    def build(**knobs: Any) -> Any:
        with _gates_on_new_optimizers():
            step = function(**knobs)

        def passes() -> Any:
            try:
                for left in reversed(range(PASSES)):
                    _gate.open = left == 0
                    result = step()
                return result
            finally:
                _gate.open = _gate.used = True

        # What is not callable is refused later, as for all workloads.
        return passes if callable(step) else step

    return build


@contextmanager
def _gates_on_new_optimizers() -> Iterator[None]:
    """Classes of optimizers made meanwhile ask the gate; while it is open they work as always."""
    import torch

    real = torch.optim.Optimizer.__init__

    def made(self: Any, *arguments: Any, **options: Any) -> None:
        # The real one also wraps `step` of the class, so it comes first.
        real(self, *arguments, **options)
        _put(type(self), "step", _gated_step)
        _put(type(self), "zero_grad", _gated_zero_grad)

    _put(torch.nn.Module, "zero_grad", _gated_zero_grad)
    torch.optim.Optimizer.__init__ = made  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.optim.Optimizer.__init__ = real  # type: ignore[method-assign]


def _put(kind: type, name: str, gated: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    owner = next(k for k in kind.__mro__ if name in vars(k))
    if not getattr(vars(owner)[name], "gated", False):
        wrapper: Any = functools.wraps(vars(owner)[name])(gated(vars(owner)[name]))
        wrapper.gated = True
        setattr(owner, name, wrapper)


def _gated_step(real: Callable[..., Any]) -> Callable[..., Any]:
    def step(*arguments: Any, **options: Any) -> Any:
        _gate.used = _gate.open
        return real(*arguments, **options) if _gate.open else None

    return step


def _gated_zero_grad(real: Callable[..., Any]) -> Callable[..., Any]:
    def zero_grad(*arguments: Any, **options: Any) -> Any:
        return real(*arguments, **options) if _gate.used else None

    return zero_grad
