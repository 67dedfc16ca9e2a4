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
from vramcast.simulate.kernels.sorting import radix_sort_bytes, scan_bytes, tile_bytes

aten = torch.ops.aten
ROWS_PER_PARTIAL = 10
LARGEST_OF_BAG = 2  # a mode
MASKED_PER_TILE = 896  # elements that one block counts
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
    """EmbeddingBag.cu: like an embedding's, but it always sorts, even a few indices."""
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
    if scale_grad_by_freq:
        for _ in range(2):
            scratch(scan_bytes(n))
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
        buffers.append(new(max_partials, width, dtype=accumulator_dtype(grad)))
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


def _contents(positions: Sequence[Tensor | None]) -> list[Tensor | None] | None:
    hosts = [None if p is None else known(p) for p in positions]
    all_known = all((h is None) == (p is None) for h, p in zip(hosts, positions, strict=True))
    return hosts if all_known else None


@kernel("index.Tensor")
def index(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    positions = _as_positions(indices)
    present: Any = [p for p in positions if p is not None]
    if len({p.shape for p in present}) > 1:
        present = torch.broadcast_tensors(*present)
    # one kernel goes through all of them with the same strides
    is_alike = len({p.stride() for p in present}) == 1
    dense = None if is_alike else [p.contiguous() for p in present]
    places = [place for place, p in enumerate(positions) if p is not None]
    is_together = places and places[-1] - places[0] < len(places) and present[0].dim()
    if is_together and x.is_contiguous():
        # without Meta kernels, which take long
        before, after = x.shape[: places[0]], x.shape[places[-1] + 1 :]
        out = new(*before, *present[0].shape, *after, dtype=x.dtype)
    else:
        out = like(meta_result(aten.index.Tensor, x, positions))
    del dense
    host = known(x)
    if host is not None and (hosts := _contents(positions)):
        set_known(out, aten.index.Tensor(host, hosts))
    torch.ops.vramcast.carry_spread(out, x)
    return out


@kernel("_index_put_impl_")
def index_put(
    x: Tensor,
    indices: Sequence[Tensor | None],
    values: Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> Tensor:
    """Adding at repeated positions: the linear positions are computed and sorted first."""
    if not accumulate and values.is_cpu and values.numel() == 1 and _fill(x, indices, values):
        return x
    positions = _as_positions(indices)
    hosts = None if known(values) is None else _contents(positions)
    present = [p for p in positions if p is not None]
    is_sorted = accumulate or torch.are_deterministic_algorithms_enabled()
    is_empty = any(p.numel() == 0 for p in present)
    if is_sorted and any(p.numel() for p in present):
        shape = meta_result(aten.index.Tensor, x, positions).shape
        size = math.prod(x.shape[dim] for dim, p in enumerate(positions) if p is not None)
        wide = torch.broadcast_tensors(*present)
        n = wide[0].numel()
        linear = _linear_positions(wide, are_checked=not unsafe)
        del wide, present, positions
        dense = values.expand(shape).contiguous()
        scratch(*[n * 8] * 3, radix_sort_bytes(n, 8, 8, bits=max(size.bit_length(), 1)))
        del dense, linear
    if not is_empty:
        _put_known(x, hosts, values, accumulate)
    torch.ops.vramcast.leave_out(x, indices, values)
    return x


def _linear_positions(indices: Sequence[Tensor], are_checked: bool) -> list[Tensor]:
    linear: list[Tensor] = []
    for index in indices:
        if are_checked:  # torch checks that all are within the tensor
            index.max().lt(0)
            index.min().ge(0)
        linear = scratch(index.numel() * 8, index.numel() * 8)[:1]
    return linear


def _fill(x: Tensor, indices: Sequence[Tensor | None], values: Tensor) -> bool:
    """Writes one number where a single mask is true: this needs no positions. False where it does
    not apply."""
    places = [place for place, index in enumerate(indices) if index is not None]
    mask = indices[places[0]] if len(places) == 1 else None
    if mask is None or mask.dtype != torch.bool or mask.device != x.device:
        return False
    where = known(mask) if known(x) is None else draw_mask(mask)
    if where is not None and not where.any():
        return True  # nothing is written: known values stay
    num_after = x.dim() - mask.dim() - places[0]
    x.masked_fill_(mask[(..., *[None] * num_after)], values.item())
    return True


def _put_known(
    x: Tensor, positions: list[Tensor | None] | None, values: Tensor, accumulate: bool
) -> None:
    host_values = known(values)
    if host_values is not None and positions is not None:
        torch.ops.vramcast.begin_uniform(x)
    host = known(x)
    if host is None or host_values is None or positions is None:
        torch.ops.vramcast.forget_values(x)
    else:
        set_known(x, aten.index_put(host, positions, host_values, accumulate))


@kernel("embedding_renorm_")
def embedding_renorm(x: Tensor, indices: Tensor) -> Tensor:
    indices.flatten().sort().values.unique_consecutive()
    return x


@kernel("roll")
def roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    """Rolls one dimension after the other. Each has a result of its own, and all results live until
    the end."""
    results = [x]
    for _ in dims or [0]:
        source = results[-1].contiguous()
        results.append(torch.empty_like(source))
    out, host = results[-1], known(x)
    if host is not None:
        set_known(out, torch.roll(host, list(shifts), list(dims)))
    return out


@kernel("index_reduce")
def index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool = True
) -> Tensor:
    out = x.clone()
    if reduce == "mean":
        counts = torch.full_like(out, include_self)
        _divide(out, counts.index_add_(dim, index, torch.ones_like(source)))
    return out


@kernel("scatter_reduce.two")
def scatter_reduce(
    x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool = True
) -> Tensor:
    out = torch.empty_like(x)
    if reduce == "mean" and index.numel():
        ones, counts = torch.ones_like(src), torch.full_like(out, include_self)
        _divide(out, counts.scatter_add_(dim, index, ones))
        del counts
    return out


def _divide(sums: Tensor, counts: Tensor) -> None:
    rounding = None if sums.is_floating_point() or sums.is_complex() else "floor"
    sums.div_(counts.masked_fill_(counts == 0, 1), rounding_mode=rounding)


@kernel("masked_scatter_")
def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Counts the true elements before each one, in 64 bits."""
    sums = scratch(x.numel() * 8)
    dense = mask.expand(x.shape).contiguous()
    if x.numel():
        scratch(256 + tile_bytes(x.numel(), MASKED_PER_TILE))
    dense = source.contiguous()
    del dense, sums
    return x


@kernel("take")
def take(x: Tensor, index: Tensor) -> Tensor:
    return torch.empty_like(index, dtype=x.dtype)


@kernel("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(**arguments: Any) -> Any:
    out, *others = meta_result(aten._embedding_bag.default, **arguments)
    bag, size = like(others[1]), like(others[0])
    return like(out), size, bag, *map(like, others[2:])
