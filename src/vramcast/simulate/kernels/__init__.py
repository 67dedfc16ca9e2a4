"""The CUDA kernels that allocate more than their result, by family; install() puts them under torch's dispatcher."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from vramcast.hardware.calibration.convolutions import KnownConvolutions
from vramcast.simulate.kernels import (  # noqa: F401
    attention,
    cells,
    convolution,
    indexing,
    misc,
    normalisation,
    recurrent,
    sorting,
    values,
)
from vramcast.simulate.kernels.registry import KERNELS, Kernel, Target, any_on_gpu
from vramcast.simulate.kernels.work import WITHOUT_KERNEL, work_of

_library: torch.library.Library | None = None


def _wrap(name: str, function: Kernel, device: ctypes.CDLL) -> Kernel:
    operator: Any = getattr(torch.ops.aten, name.partition(".")[0])
    overload = getattr(operator, name.partition(".")[2] or "default")
    full_name, base_name = f"aten::{name}".encode(), name.partition(".")[0]
    outside_overload = f"aten::{base_name}".encode()

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        if not any_on_gpu(arguments) and getattr(options.get("device"), "type", None) != "cuda":
            excluded = device.vramcast_set_excluded(True)
            try:
                return overload(*arguments, **options)
            finally:
                device.vramcast_set_excluded(excluded)
        before = device.vramcast_begin_kernel(full_name)
        try:
            result = function(*arguments, **options)
        finally:
            device.vramcast_end_kernel(before)
        if base_name not in WITHOUT_KERNEL:
            dtype, flops, num_bytes, sizes, access = work_of(base_name, arguments, options, result)
            device.vramcast_add_work(
                outside_overload, dtype, flops, num_bytes, (ctypes.c_int64 * 4)(*sizes), access
            )
        return result

    return run


def install(
    device: ctypes.CDLL,
    capability: tuple[int, int] = (9, 0),
    num_multiprocessors: int = 132,
    convolutions: Mapping[str, Sequence[int]] | None = None,
) -> None:
    global _library
    Target.capability, Target.num_multiprocessors, Target.convolutions = (
        capability,
        num_multiprocessors,
        KnownConvolutions(convolutions or {}),
    )
    if _library is not None:
        return
    _library = torch.library.Library("aten", "IMPL")
    for name, function in KERNELS.items():
        operator = getattr(torch.ops.aten, name.partition(".")[0], None)
        if operator is None or not hasattr(operator, name.partition(".")[2] or "default"):
            continue  # not in this version of torch
        _library.impl(name, _wrap(name, function, device), "Fake")
