"""Operators whose result depends on contents: .item(), nonzero, unique and the like.

Known contents are used. Unknown ones are assumed, and the assumption is noted.
"""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from vramcast.allocator.blocks import round_up
from vramcast.simulate.kernels.registry import (
    Target,
    guess,
    kernel,
    known,
    new,
    scratch,
    set_known,
    typical,
)
from vramcast.simulate.kernels.sorting import LARGEST_DRAWN, drawn, radix_sort_bytes, tile_bytes


def _known_or_guess(tensor: Tensor, text: str) -> Tensor | None:
    values = known(tensor)
    if values is None:
        guess(text)
    return values


@kernel("_local_scalar_dense")
def item(x: Tensor) -> Any:
    values = known(x)
    reads = Target.gpu.reads
    if values is not None:
        reads.known()
        return values.item()
    number, is_sure, _ = typical(x)
    if x.dtype == torch.bool:
        return reads.condition(bool(number), is_sure)
    if x.is_floating_point():
        return reads.number(number, is_sure)
    if x.is_complex():
        return complex(reads.number(number, is_sure))
    return reads.integer(int(number), is_sure)


@kernel("equal")
def equal(x: Tensor, other: Tensor) -> bool:
    """Tensors of one shape are assumed to be equal: programs mostly compare a tensor with its
    copy."""
    a, b = known(x), known(other)
    is_same = x.shape == other.shape
    if is_same and x.data_ptr() != other.data_ptr():
        x.eq(other).all()
    if a is not None and b is not None:
        return bool(torch.equal(a, b))
    if x.dtype == torch.bool and x.dim() == 0:
        is_same = typical(x)[0] == typical(other)[0]
    return Target.gpu.reads.condition(is_same, is_sure=not is_same)


@kernel("allclose")
def allclose(x: Tensor, other: Tensor, **options: Any) -> bool:
    close = torch.isclose(x, other, **options).all()
    values = known(close)
    return Target.gpu.reads.condition(True, False) if values is None else bool(values)


def num_nonzero(x: Tensor) -> int:
    """How many elements are not zero: all or none where that is sure (as for torch.isfinite(x)),
    else an assumed share."""
    number, is_sure, true_share = typical(x)
    if is_sure:
        return x.numel() if number else 0
    guess("the positions of nonzero elements were not computed; a share of them was assumed")
    return int(x.numel() * true_share)


def draw_mask(x: Tensor) -> Tensor | None:
    """The contents of a mask, drawn at random where they are not known, and kept, so that
    everything a program derives from this mask is consistent."""
    values = known(x)
    if values is None and 0 < x.numel() <= LARGEST_DRAWN:
        values = _drawn_mask(x.numel(), num_nonzero(x)).to(x.dtype, copy=True).view(x.shape)
        if x.dtype in (torch.bool, torch.uint8) or x.is_floating_point():
            set_known(x, values)
    return values


@lru_cache(64)
def _drawn_mask(length: int, num_true: int) -> Tensor:
    chosen = drawn((length,)).topk(num_true, largest=False, sorted=False).indices
    return torch.zeros(length, dtype=torch.bool).index_fill_(0, chosen, True)


@kernel("nonzero")
def nonzero(x: Tensor) -> Tensor:
    """CUB counts the elements, then selects them."""
    values = draw_mask(x)
    dense = x.contiguous()
    count = new(dtype=torch.int32)
    n = x.numel()
    scratch(1 if n <= 4096 else 21503)
    length = num_nonzero(x) if values is None else int(values.count_nonzero())
    out = new(x.dim(), length, dtype=torch.int64).t()
    if length or x.dim():
        scratch(tile_bytes(n, 8448))
    if values is not None and not torch.ops.vramcast.set_positions(out, x):
        set_known(out, values.nonzero())
    del count, dense
    return out


@kernel("masked_select")
def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    wide, mask = torch.broadcast_tensors(x, mask)
    return wide[mask]


@kernel("repeat_interleave.Tensor")
def repeat_interleave(repeats: Tensor, output_size: int | None = None) -> Tensor:
    sums, values = repeats.cumsum(0), known(repeats)
    if output_size is None:
        (repeats >= 0).all()
        _known_or_guess(repeats, "the number of repeats was not computed; one each was assumed")
        output_size = int(values.sum()) if values is not None else repeats.numel()
    out = new(output_size, dtype=repeats.dtype)
    if values is not None:
        set_known(out, torch.arange(repeats.numel()).repeat_interleave(values))
    del sums
    return out


@kernel("bincount")
def bincount(x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    values = _known_or_guess(
        x, "bincount of values that were not computed: its minlength was assumed to be its length"
    )
    if x.numel():
        x.min()
        x.max()
    num_bins = int(values.max()) + 1 if values is not None and values.numel() else 0
    dtype = torch.int64
    if weights is not None:
        dtype = torch.float32 if weights.dtype == torch.float32 else torch.float64
    out = new(max(num_bins, minlength, 1), dtype=dtype)
    if weights is not None:
        weights.to(dtype)
    if values is not None and weights is None:
        set_known(out, torch.bincount(values, minlength=minlength))
    return out


@kernel("isin.Tensor_Tensor")
def isin(
    elements: Tensor, test_elements: Tensor, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """A few test elements are compared with every element; many are sorted together with them."""
    out = torch.empty_like(elements, dtype=torch.bool)
    if not elements.numel():
        return out
    if test_elements.numel() < int(10 * elements.numel() ** 0.145):
        found = elements.unsqueeze(-1).eq(test_elements.ravel()).any(-1)
        return out.copy_(found.logical_not() if invert else found)
    a, b, places = elements.ravel(), test_elements.ravel(), None
    if not assume_unique:
        a, places, _ = torch.ops.aten._unique2(elements, False, True)
        b, _, _ = torch.ops.aten._unique2(test_elements, False)
    joined = torch.cat((a, b))
    del a, b
    ordered, order = joined.sort(stable=True)
    repeated = torch.empty_like(ordered, dtype=torch.bool)
    repeated[:-1].copy_(ordered[1:].eq(ordered[:-1]))
    repeated[-1:].fill_(False)
    mask = torch.empty_like(repeated).index_copy_(
        0, order, repeated.logical_not() if invert else repeated
    )
    return out.copy_(mask[: elements.numel()].view_as(out) if places is None else mask[places])


def _num_distinct(distinct: Tensor | None, n: int) -> int:
    if distinct is None:
        guess("the number of distinct values was not computed; all were assumed to be distinct")
    return n if distinct is None else len(distinct)


@kernel("_unique2")
def unique(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Sorts the elements first, with their positions if the inverse is wanted."""
    n, item_bytes = x.numel(), x.element_size()
    dense = x.contiguous()
    buffers = scratch(n * item_bytes) if n else []
    if n and return_inverse:
        places = scratch(n * 8, n * 8)
        scratch(radix_sort_bytes(n, item_bytes, 8))
        buffers += places[1:]
        del places
    elif n:
        scratch(radix_sort_bytes(n, item_bytes, 0))
    host = known(x)
    all_known = None if host is None else torch.unique(host, True, True, True)
    result = _distinct(x, all_known, return_inverse, return_counts, place_bytes=8)
    del buffers, dense
    return result


@kernel("unique_consecutive")
def unique_consecutive(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    host = known(x)
    all_known = None if host is None else torch.unique_consecutive(host, True, True, dim=dim)
    if dim is not None and x.dim() != 1:
        return _distinct_slices(x, dim, all_known, return_inverse, return_counts)
    return _distinct(x, all_known, return_inverse, return_counts, place_bytes=4)


def _distinct(
    x: Tensor, all_known: Any, return_inverse: bool, return_counts: bool, place_bytes: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The distinct values of sorted numbers. The results keep memory for as many values as there
    are numbers."""
    n = x.numel()
    inverse = new(*(x.shape if return_inverse else (0,)), dtype=torch.int64)
    if n and return_inverse:
        places = scratch(n * place_bytes)
        scratch(tile_bytes(n, 5760))
        del places
    out, count = new(n, dtype=x.dtype), new(1 if n else 0, dtype=torch.int64)
    counts = new(n if return_counts else 0, dtype=torch.int64)
    if n:
        scratch(tile_bytes(n, 768) if return_counts else 1023 + 256 * ((n - 1) // 131072))
    del count
    num_distinct = _num_distinct(None if all_known is None else all_known[0], n)
    out.resize_(num_distinct)
    if return_counts:
        counts.resize_(num_distinct)
    _set_distinct((out, inverse, counts), all_known)
    return out, inverse, counts


def _set_distinct(results: tuple[Tensor, Tensor, Tensor], all_known: Any) -> None:
    for result, host in zip(results, all_known or (), strict=False):
        if result.shape == host.shape:
            set_known(result, host)


@kernel("unique_dim")
def unique_dim(
    x: Tensor, dim: int, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    host = known(x)
    all_known = None if host is None else torch.unique(host, True, True, True, dim)
    return _distinct_slices(x, dim, all_known, return_inverse, return_counts, sorts=True)


def _distinct_slices(
    x: Tensor,
    dim: int,
    all_known: Any,
    return_inverse: bool,
    return_counts: bool,
    sorts: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    n = x.shape[dim]
    dense = x.movedim(dim, 0).contiguous()
    order = scratch(n * 8)
    if sorts:
        scratch(round_up(n * 8, 256) + 511)
    inverse = new(n if return_inverse else 0, dtype=torch.int64)
    if return_inverse:
        scratch(n * 8)
    scratch(1535)
    num_distinct = n if all_known is None else all_known[0].shape[dim]
    if all_known is None:
        _num_distinct(None, n)
    counts = new(num_distinct if return_counts else 0, dtype=torch.int64)
    out = torch.empty_like(x.narrow(dim, 0, num_distinct), memory_format=torch.contiguous_format)
    _set_distinct((out, inverse, counts), all_known)
    del order, dense
    return out, inverse, counts
