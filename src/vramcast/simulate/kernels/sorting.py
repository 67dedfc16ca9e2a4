"""Sort, scan, random permutation: CUB's scratch memory."""

from __future__ import annotations

from typing import Any

import torch

from vramcast.simulate.kernels.registry import (
    kernel,
    known,
    like,
    meta_result,
    new,
    scratch,
    set_known,
)

aten = torch.ops.aten
SINGLE_TILE = 2048  # sorted by one thread block, without scratch memory


def _up(n: int) -> int:
    return -(-n // 256) * 256


def radix_sort_bytes(
    n: int, key_bytes: int, value_bytes: int, bits: int | None = None, tile: int | None = None
) -> int:
    """Scratch of a CUB radix sort of n pairs on the low `bits` of the key: a second copy of the pairs (if it takes more than one pass),
    a histogram a pass, a look-back table a tile, counters."""
    if n <= SINGLE_TILE:
        return 1
    passes = -(-(bits or 8 * key_bytes) // 8)
    tile = tile or (
        4608 if key_bytes + value_bytes >= 16 else 5376 if key_bytes + value_bytes >= 12 else 5760
    )
    copies = _up(n * key_bytes) + _up(n * value_bytes) if passes > 1 else 0
    return 255 + copies + passes * 2048 + -(-n // tile) * 1024 + 256


def scan_scratch(n: int) -> torch.Tensor:
    return scratch(1279 + 256 * max(0, -(-n // 120000) - 1))


def _draw_order(
    values: torch.Tensor, indices: torch.Tensor, source: torch.Tensor, dim: int, descending: bool
) -> None:
    host = known(source)
    if host is not None:
        ordered = host.sort(dim=dim, descending=descending, stable=True)
        set_known(indices, ordered.indices)
        set_known(values, ordered.values)
    elif indices.numel() * 8 <= 1 << 20:
        set_known(indices, torch.rand(source.shape).argsort(dim))


@kernel("sort.stable", "sort")
def sort(
    x: torch.Tensor,
    *arguments: Any,
    stable: bool | None = False,
    dim: int = -1,
    descending: bool = False,
) -> Any:
    if arguments:
        dim, descending = (
            (arguments[0], arguments[1] if len(arguments) > 1 else descending)
            if not isinstance(arguments[0], bool | None)
            else (arguments[1], arguments[2])
        )
    shapes = meta_result(aten.sort.stable, x, stable=stable, dim=dim, descending=descending)
    length = x.shape[dim] if x.dim() else 1
    rows = x.numel() // max(length, 1)
    values, indices = like(shapes[0]), like(shapes[1])
    size = x.element_size()
    if x.numel() == 0:
        return values, indices
    if length <= 4096:
        work = scratch(length * 8)
        del work
    elif rows == 1:
        order = new(length, dtype=torch.int64)
        work = scratch(radix_sort_bytes(length, size, 8))
        del work, order
    else:
        order, segments = scratch(x.numel() * 8), scratch(x.numel() * 8)
        keys = scratch(x.numel() * size)
        work = scratch(radix_sort_bytes(x.numel(), size, 8))
        del work
        second = scratch(radix_sort_bytes(x.numel(), 4, 4, bits=max(rows.bit_length(), 1)))
        del second, order, segments, keys
    _draw_order(values, indices, x, dim, descending)
    return values, indices


@kernel("cumsum", "cumprod", "logcumsumexp", "_logcumsumexp")
def scan(x: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    dtype = dtype or (torch.int64 if not (x.is_floating_point() or x.is_complex()) else x.dtype)
    source = x if x.dtype == dtype else x.to(dtype)
    out = torch.empty_like(source)
    if x.dim() == 1 and x.numel() > 1:
        work = scan_scratch(x.numel())
        del work
    host = known(x)
    if host is not None and not x.is_floating_point():
        set_known(out, host.cumsum(dim, dtype=dtype))
    return out


@kernel("cummax", "cummin")
def running_extreme(x: torch.Tensor, dim: int) -> Any:
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.int64)


@kernel("randperm")
def randperm(
    n: int,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
) -> torch.Tensor:
    out = new(n, dtype=dtype or torch.int64)
    seed = scratch(8)
    del seed
    ordered = new(n, dtype=torch.int64)
    key_bytes = 4 if n <= 65536 else 8
    keys, sorted_keys = scratch(n * key_bytes), scratch(n * key_bytes)
    work = scratch(radix_sort_bytes(n, key_bytes, 8))
    del work, keys, sorted_keys, ordered
    set_known(out, torch.rand(n).argsort())
    return out
