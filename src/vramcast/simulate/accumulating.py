"""A workload whose step accumulates gradients: forward and backward twice, then one update.

Every further pass takes as much memory and time as the second. So two passes and the time of the
plain step are enough to compute any number of passes.

On the first pass an optimizer's `step` does nothing, and `zero_grad` clears only gradients that an
update has used. Not covered: workloads that set gradients to None by hand.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

PASSES = 2


@dataclass
class _Gate:
    """Whether optimizers may update now. By default they may."""

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

        # A step that is not callable is refused later, as for all workloads.
        return passes if callable(step) else step

    return build


@contextmanager
def _gates_on_new_optimizers() -> Iterator[None]:
    """Optimizers that are made in this block ask the gate before they update or clear gradients."""
    import torch

    real = torch.optim.Optimizer.__init__

    def made(self: Any, *arguments: Any, **options: Any) -> None:
        # The real one also wraps `step` of the class, so it comes first.
        real(self, *arguments, **options)
        _put_gate(type(self), "step")
        _put_gate(type(self), "zero_grad")

    _put_gate(torch.nn.Module, "zero_grad")
    torch.optim.Optimizer.__init__ = made  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.optim.Optimizer.__init__ = real  # type: ignore[method-assign]


def _put_gate(kind: type, name: str) -> None:
    """Wraps the method `step` or `zero_grad` of this class, once."""
    owner = next(k for k in kind.__mro__ if name in vars(k))
    real = vars(owner)[name]
    if getattr(real, "gated", False):
        return

    @functools.wraps(real)
    def gated(*arguments: Any, **options: Any) -> Any:
        if name == "step":
            _gate.used = _gate.open
        return real(*arguments, **options) if _gate.used else None

    gated.gated = True
    setattr(owner, name, gated)
