"""Embedding, indexing and their gradients: sorts of the indices and partial sums per segment."""

from __future__ import annotations

from typing import Any

import torch

from vramcast.simulate.kernels.registry import (
    kernel,
    known,
    like,
    meta_result,
    new,
    note,
    scratch,
    set_known,
)
from vramcast.simulate.kernels.sorting import radix_sort_bytes, scan_scratch

aten = torch.ops.aten
ROWS_PER_PARTIAL = 10


@kernel("embedding_dense_backward")
def embedding_backward(
    grad: Any, indices: Any, num_weights: int, padding: int, by_frequency: bool
) -> torch.Tensor:
    indices = indices.contiguous()
    n, width = indices.numel(), grad.shape[-1]
    grad = grad.contiguous()
    if n <= 3072 and not by_frequency:
        return torch.zeros(num_weights, width, dtype=grad.dtype, device="cuda")
    item_bytes = indices.element_size()
    ordered, origin = torch.empty_like(indices), torch.empty_like(indices)
    positions = scratch(n * item_bytes)
    work = scratch(radix_sort_bytes(n, item_bytes, item_bytes))
    del work, positions
    counts = scratch(n * item_bytes) if by_frequency else None
    result = _sum_segments(grad, n, width, num_weights, item_bytes)
    del ordered, origin, counts
    return result


def _sum_segments(
    grad: torch.Tensor, n: int, width: int, num_weights: int, item_bytes: int
) -> torch.Tensor:
    """Rows with the same index are summed ten at a time, then the partial sums are added into the gradient."""
    out = torch.zeros(num_weights, width, dtype=grad.dtype, device="cuda")
    segments = scratch(n * item_bytes)
    count = scratch(8)
    ends = scratch(n * item_bytes)
    work = scan_scratch(n)
    del work, ends
    most_segments = min(n, num_weights)
    partials, offsets = scratch(most_segments * item_bytes), scratch(most_segments * item_bytes)
    work = scan_scratch(most_segments)
    del work
    num_partials = scratch(8)
    most_partials = n // ROWS_PER_PARTIAL + most_segments
    starts = scratch(most_partials * item_bytes)
    sums = owners = wide = None
    if num_weights > n // ROWS_PER_PARTIAL:
        sums = new(
            most_partials,
            -(-width // 32) * 32,
            dtype=torch.float32 if grad.dtype != torch.float64 else grad.dtype,
        )
    else:
        # few distinct rows: the partial sums are added atomically, in single precision
        owners = scratch(most_partials * item_bytes)
        wide = (
            new(num_weights, width, dtype=torch.float32)
            if grad.dtype in (torch.float16, torch.bfloat16)
            else None
        )
    del wide, sums, owners, starts, num_partials, offsets, partials, count, segments
    return out


def _as_positions(indices: list[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """Masks become the positions of their true elements."""
    positions: list[torch.Tensor | None] = []
    for index in indices:
        if index is not None and index.dtype in (torch.bool, torch.uint8):
            positions.extend(index.nonzero().unbind(1))
        else:
            positions.append(index)
    return positions


@kernel("index.Tensor")
def index(x: Any, indices: Any) -> torch.Tensor:
    positions = _as_positions(indices)
    out = like(meta_result(aten.index.Tensor, x, positions))
    host = known(x)
    hosts = [None if p is None else known(p) for p in positions]
    if host is not None and all(
        (h is None) == (p is None) for h, p in zip(hosts, positions, strict=True)
    ):
        set_known(out, aten.index.Tensor(host, hosts))
    return out


def _put_with_sort(x: torch.Tensor, positions: list[torch.Tensor | None]) -> None:
    """Adding at repeated positions: the linear positions are sorted first."""
    present = [p for p in positions if p is not None]
    linear = torch.broadcast_tensors(*present)[0]
    n = linear.numel()
    size = 1
    for dim, p in enumerate(positions):
        size *= x.shape[dim] if p is not None else 1
    parts = [scratch(n * 8) for _ in range(2)]
    del parts[1]
    if len(present) > 1:
        more = [scratch(n * 8) for _ in range(2)]
        del parts[0]
        parts.append(more.pop(0))
        del more
    ordered, origin, iota = scratch(n * 8), scratch(n * 8), scratch(n * 8)
    work = scratch(radix_sort_bytes(n, 8, 8, bits=max(size.bit_length(), 1)))
    del work, iota, ordered, origin, parts


@kernel("_index_put_impl_")
def index_put(
    x: Any, indices: Any, values: Any, accumulate: bool = False, unsafe: bool = False
) -> torch.Tensor:
    positions = _as_positions(indices)
    if accumulate and any(p is not None and p.numel() for p in positions):
        _put_with_sort(x, positions)
    return x


@kernel("index_add", "index_reduce")
def index_add(
    x: Any, dim: int, index: Any, source: Any, *rest: Any, **options: Any
) -> torch.Tensor:
    return x.clone()


@kernel("take")
def take(x: Any, index: Any) -> torch.Tensor:
    return torch.empty_like(index, dtype=x.dtype)


@kernel("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(weight: Any, indices: Any, offsets: Any, *rest: Any, **options: Any) -> Any:
    note("the scratch memory of embedding_bag is not modelled")
    return tuple(
        like(m)
        for m in meta_result(
            aten._embedding_bag.default, weight, indices, offsets, *rest, **options
        )
    )
