"""Embedding, indexing and their gradients: sorts of the indices and partial sums per segment."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vramcast.simulate.kernels.data_dependent import draw_mask
from vramcast.simulate.kernels.registry import (
    accumulator_dtype,
    kernel,
    known,
    like,
    meta_result,
    new,
    scratch,
    set_known,
)
from vramcast.simulate.kernels.sorting import radix_sort_bytes, scan_bytes

aten = torch.ops.aten
ROWS_PER_PARTIAL = 10
LARGEST_OF_BAG = 2  # a mode
UNSORTED_INDICES = 3072  # up to here the gradient is added without sorting


@kernel("embedding_dense_backward")
def embedding_backward(
    grad: Tensor, indices: Tensor, num_weights: int, scale_grad_by_freq: bool
) -> Tensor:
    """EmbeddingBackwardKernel.cu: sorts the indices, then sums rows with the same one."""
    indices = indices.contiguous()
    n, width = indices.numel(), grad.shape[-1]
    grad = grad.contiguous()
    if n <= UNSORTED_INDICES and not scale_grad_by_freq:
        return torch.zeros(num_weights, width, dtype=grad.dtype, device="cuda")
    return _sum_of_rows(grad, indices, num_weights, scale_grad_by_freq)


@kernel("_embedding_bag_dense_backward")
def embedding_bag_backward(
    grad: Tensor, indices: Tensor, num_weights: int, scale_grad_by_freq: bool, mode: int
) -> Tensor:
    """EmbeddingBag.cu: as of an embedding, however few indices there are."""
    indices, grad = indices.contiguous(), grad.contiguous()
    if mode == LARGEST_OF_BAG or not indices.numel():
        return torch.zeros(num_weights, grad.shape[-1], dtype=grad.dtype, device="cuda")
    return _sum_of_rows(grad, indices, num_weights, scale_grad_by_freq)


def _sum_of_rows(
    grad: Tensor, indices: Tensor, num_weights: int, scale_grad_by_freq: bool
) -> Tensor:
    n, item_bytes = indices.numel(), indices.element_size()
    ordered, origin = torch.empty_like(indices), torch.empty_like(indices)
    scratch(n * item_bytes, radix_sort_bytes(n, item_bytes, item_bytes))
    counts = scratch(n * item_bytes) if scale_grad_by_freq else None
    result = _sum_segments(grad, n, grad.shape[-1], num_weights, item_bytes)
    del ordered, origin, counts
    return result


def _sum_segments(grad: Tensor, n: int, width: int, num_weights: int, item_bytes: int) -> Tensor:
    """Rows with the same index are summed ten at a time; then the partial sums are added."""
    out = torch.zeros(num_weights, width, dtype=grad.dtype, device="cuda")
    # starts and number of the segments
    buffers = scratch(n * item_bytes, 8)
    scratch(n * item_bytes, scan_bytes(n))
    max_segments = min(n, num_weights)
    # number and offset of the partial sums of each segment
    buffers += scratch(max_segments * item_bytes, max_segments * item_bytes)
    scratch(scan_bytes(max_segments))
    max_partials = n // ROWS_PER_PARTIAL + max_segments
    # number and starts of the partial sums
    buffers += scratch(8, max_partials * item_bytes)
    if num_weights > n // ROWS_PER_PARTIAL:
        buffers.append(new(max_partials, -(-width // 32) * 32, dtype=accumulator_dtype(grad)))
    else:
        # few distinct rows: partial sums are added atomically, in single precision
        buffers += scratch(max_partials * item_bytes)
        if grad.dtype in (torch.float16, torch.bfloat16):
            buffers.append(new(num_weights, width, dtype=torch.float32))
    del buffers
    return out


def _as_positions(indices: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Masks become the positions of their true elements."""
    positions: list[Tensor | None] = []
    for index in indices:
        if index is not None and index.dtype in (torch.bool, torch.uint8):
            positions += index.nonzero().unbind(1)
        else:
            positions.append(index)
    return positions


@kernel("index.Tensor")
def index(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    positions = _as_positions(indices)
    present = torch.broadcast_tensors(*(p for p in positions if p is not None))
    # one kernel goes through all of them with the same strides
    is_alike = len({p.stride() for p in present}) == 1
    dense = None if is_alike else [p.contiguous() for p in present]
    out = like(meta_result(aten.index.Tensor, x, positions))
    del dense
    host = known(x)
    hosts = [None if p is None else known(p) for p in positions]
    all_known = all((h is None) == (p is None) for h, p in zip(hosts, positions, strict=True))
    if host is not None and all_known:
        set_known(out, aten.index.Tensor(host, hosts))
    torch.ops.vramcast.carry_spread(out, x)
    return out


@kernel("_index_put_impl_")
def index_put(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """Adding at repeated positions: the linear positions are computed and sorted first."""
    if not accumulate and values.is_cpu and values.numel() == 1 and _fill(x, indices, values):
        return x
    positions = _as_positions(indices)
    present = [p for p in positions if p is not None]
    is_sorted = accumulate or torch.are_deterministic_algorithms_enabled()
    if is_sorted and any(p.numel() for p in present):
        n = torch.broadcast_tensors(*present)[0].numel()
        size = math.prod(x.shape[dim] for dim, p in enumerate(positions) if p is not None)
        linear = scratch(n * 8)
        scratch(n * 8)
        if len(present) > 1:
            linear = scratch(n * 8, n * 8)[:1]
        shape = meta_result(aten.index.Tensor, x, positions).shape
        dense = values.expand(shape).contiguous()
        scratch(*[n * 8] * 3, radix_sort_bytes(n, 8, 8, bits=max(size.bit_length(), 1)))
        del dense, linear
    _put_known(x, positions, values, accumulate)
    return x


def _fill(x: Tensor, indices: Sequence[Tensor | None], values: Tensor) -> bool:
    """One number at the places of one mask needs no positions."""
    places = [place for place, index in enumerate(indices) if index is not None]
    mask = indices[places[0]] if len(places) == 1 else None
    if mask is None or mask.dtype != torch.bool:
        return False
    where = known(mask) if known(x) is None else draw_mask(mask)
    if where is not None and not where.any():
        return True  # nothing is written: what is known of it stays
    num_after = x.dim() - mask.dim() - places[0]
    x.masked_fill_(mask[(..., *[None] * num_after)], values.item())
    return True


def _put_known(x: Tensor, positions: list[Tensor | None], values: Tensor, accumulate: bool) -> None:
    if any(p is not None and p.numel() == 0 for p in positions):
        return  # nothing is written
    host_values = known(values)
    hosts = [None if p is None else known(p) for p in positions]
    all_known = all((h is None) == (p is None) for h, p in zip(hosts, positions, strict=True))
    if host_values is not None and all_known:
        torch.ops.vramcast.begin_uniform(x)
    host = known(x)
    if host is None or host_values is None or not all_known:
        torch.ops.vramcast.forget_values(x)
    else:
        set_known(x, aten.index_put(host, hosts, host_values, accumulate))


@kernel("roll")
def roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    """Dimension by dimension: each has a result of its own, and all are there until the last is."""
    results = [x]
    for _ in dims or [0]:
        source = results[-1].contiguous()
        results.append(torch.empty_like(source))
    out, host = results[-1], known(x)
    if host is not None:
        set_known(out, torch.roll(host, list(shifts), list(dims)))
    return out


@kernel("index_add")
def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, alpha: float = 1) -> Tensor:
    out = x.clone()
    if torch.are_deterministic_algorithms_enabled():
        index_put(out, [*[None] * (dim % x.dim()), index], source * alpha, accumulate=True)
    return out


@kernel("index_reduce")
def index_reduce(x: Tensor) -> Tensor:
    return x.clone()


@kernel("take")
def take(x: Tensor, index: Tensor) -> Tensor:
    return torch.empty_like(index, dtype=x.dtype)


@kernel("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(**arguments: Any) -> Any:
    out, *others = meta_result(aten._embedding_bag.default, **arguments)
    bag, size = like(others[1]), like(others[0])
    return like(out), size, bag, *map(like, others[2:])
