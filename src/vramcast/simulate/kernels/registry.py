"""Kernels written in Python: what a CUDA kernel allocates, in its order, where that is more than its result.

A kernel gets the operator's arguments, allocates what the CUDA one does (`new`, `scratch`, or any torch operator) and returns the result.
Memory is given back when the last reference goes, as in C++, so the order of `del` and `return` is part of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from vramcast.hardware.calibration.convolutions import KnownConvolutions
from vramcast.simulate import meta_kernels

Kernel = Callable[..., Any]
KERNELS: dict[str, Kernel] = {}


class Target:
    """What the kernels need to know about the GPU and the torch build that are simulated; set by install()."""

    capability: tuple[int, int] = (9, 0)
    num_multiprocessors: int = 132
    notes: set[str] = set()
    convolutions = KnownConvolutions({})
    uncalibrated: set[str] = set()  # keys that were looked for in vain
    kept: dict[str, torch.Tensor] = {}  # what a library keeps for as long as the process lives


def note(text: str) -> None:
    """Say in the prediction's limits what could not be known."""
    Target.notes.add(text)


def kernel(*names: str) -> Callable[[Kernel], Kernel]:
    """Register the function as the CUDA kernel of these aten operators."""

    def register(function: Kernel) -> Kernel:
        for name in names:
            KERNELS[name] = function
        return function

    return register


def new(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="cuda")


def scratch(num_bytes: int) -> torch.Tensor:
    """Memory a kernel takes for itself; given back when the returned object goes."""
    return torch.empty(num_bytes, dtype=torch.uint8, device="cuda")


def to_meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, list | tuple):
        return type(value)(to_meta(item) for item in value)
    return value


def meta_result(operator: Any, *arguments: Any, **options: Any) -> Any:
    """Shapes, strides and types of an operator's result, by torch's own Meta kernel."""
    metas = to_meta(arguments), {key: to_meta(value) for key, value in options.items()}
    if not torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "Meta"):
        meta_kernels.load()
    return operator(*metas[0], **metas[1])


def like(meta: torch.Tensor) -> torch.Tensor:
    """Allocate what a meta tensor describes."""
    return torch.empty_strided(meta.shape, meta.stride(), dtype=meta.dtype, device="cuda")


def known(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor's real contents on the host, where they are known."""
    values: torch.Tensor | None = torch.ops.vramcast.values(tensor)
    return values


def set_known(tensor: torch.Tensor, values: torch.Tensor) -> None:
    torch.ops.vramcast.set_values(tensor, values)


def any_on_gpu(values: Sequence[Any]) -> bool:
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.is_cuda:
                return True
        elif isinstance(value, list | tuple) and any_on_gpu(value):
            return True
    return False
