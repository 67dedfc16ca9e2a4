"""Compute a function again in the backward pass instead of keeping what is inside it.

torch.utils.checkpoint does the same for any module, but leaves circles of references behind that
hold its arguments until Python's garbage collector comes by: what a step takes then depends on when
that is.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor


def recomputed(function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """function(*tensors), of which only the arguments are kept.

    Every tensor that needs a gradient must be among them.
    """
    return _Recomputed.apply(function, *tensors)


def _autocast_now(kind: str) -> dict[str, Any]:
    """What torch.autocast must be given to be as it is now; nothing where the device has none."""
    if not torch.amp.is_autocast_available(kind):
        return {}
    return {
        "device_type": kind,
        "dtype": torch.get_autocast_dtype(kind),
        "enabled": torch.is_autocast_enabled(kind),
    }


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        ctx.function = function
        ctx.autocast = _autocast_now(tensors[0].device.type)
        ctx.save_for_backward(*tensors)
        return function(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        tensors = [
            t.detach().requires_grad_(needed)
            for t, needed in zip(ctx.saved_tensors, ctx.needs_input_grad[1:], strict=True)
        ]
        with torch.enable_grad(), torch.autocast(**ctx.autocast) if ctx.autocast else nullcontext():
            result = ctx.function(*tensors)
        found = iter(torch.autograd.grad(result, [t for t in tensors if t.requires_grad], grads[0]))
        return None, *(next(found) if t.requires_grad else None for t in tensors)
