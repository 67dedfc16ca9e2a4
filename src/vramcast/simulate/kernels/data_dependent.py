"""Operators whose result depends on contents: .item(), nonzero, unique and the like.

Known contents are used. Unknown ones are assumed, and the assumption is noted.
"""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from vramcast.simulate.kernels.registry import (
    Target,
    kernel,
    known,
    new,
    note,
    scratch,
    set_known,
    typical,
)
from vramcast.simulate.kernels.sorting import LARGEST_DRAWN, drawn


def _known_or_note(tensor: Tensor, text: str) -> Tensor | None:
    values = known(tensor)
    if values is None:
        note(text)
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
    """Tensors of one shape are assumed to be equal: who asks has mostly made a copy. torch's own
    code compares a condition with a true one."""
    a, b = known(x), known(other)
    if a is not None and b is not None:
        return bool(torch.equal(a, b))
    is_same = x.shape == other.shape
    if x.dtype == torch.bool and x.dim() == 0:
        is_same = typical(x)[0] == typical(other)[0]
    return Target.gpu.reads.condition(is_same, is_sure=not is_same)


@kernel("allclose")
def allclose(x: Tensor, other: Tensor, **options: Any) -> bool:
    close = torch.isclose(x, other, **options).all()
    values = known(close)
    return Target.gpu.reads.condition(True, False) if values is None else bool(values)


def num_nonzero(x: Tensor) -> int:
    """All or none where that is sure, as of torch.isfinite(x); of a comparison with a number, as
    many as of normally distributed elements; else half."""
    number, is_sure, true_share = typical(x)
    if is_sure:
        return x.numel() if number else 0
    note("the positions of nonzero elements were not computed; a share of them was assumed")
    return int(x.numel() * true_share)


def draw_mask(x: Tensor) -> Tensor | None:
    """Which elements are nonzero: what a program makes of them then fits together."""
    values = known(x)
    if values is None and 0 < x.numel() <= LARGEST_DRAWN:
        values = _drawn_mask(x.numel(), num_nonzero(x)).to(x.dtype, copy=True).view(x.shape)
        if x.dtype in (torch.bool, torch.uint8):
            set_known(x, values)
    return values


@lru_cache(64)
def _drawn_mask(length: int, num_true: int) -> Tensor:
    chosen = drawn((length,)).topk(num_true, largest=False, sorted=False).indices
    return torch.zeros(length, dtype=torch.bool).index_fill_(0, chosen, True)


@kernel("nonzero")
def nonzero(x: Tensor) -> Tensor:
    """CUB counts, then selects."""
    values = draw_mask(x)
    count = new(dtype=torch.int32)
    n = x.numel()
    scratch(1 if n <= 4096 else 21503)
    positions = None if values is None else values.nonzero()
    length = num_nonzero(x) if positions is None else positions.shape[0]
    out = new(x.dim(), length, dtype=torch.int64).t()
    if length:
        scratch(1023 + 256 * ((n - 1) // 131072))
    if positions is not None:
        set_known(out, positions)
    del count
    return out


@kernel("masked_select")
def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    wide, mask = torch.broadcast_tensors(x, mask)
    return wide[mask]


@kernel("repeat_interleave.Tensor")
def repeat_interleave(repeats: Tensor, output_size: int | None = None) -> Tensor:
    sums, values = repeats.cumsum(0), known(repeats)
    if output_size is None:
        _known_or_note(repeats, "the number of repeats was not computed; one each was assumed")
        output_size = int(values.sum()) if values is not None else repeats.numel()
    out = new(output_size, dtype=repeats.dtype)
    if values is not None:
        set_known(out, torch.arange(repeats.numel()).repeat_interleave(values))
    del sums
    return out


@kernel("bincount")
def bincount(x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    values = _known_or_note(
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


@kernel("_unique2", "unique_consecutive")
def unique(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    values = _known_or_note(
        x, "the number of distinct values was not computed; all were assumed to be distinct"
    )
    n = x.numel()
    ordered = new(n, dtype=x.dtype)
    order = scratch(n * 8) if return_inverse or return_counts else None
    scratch(max(n * x.element_size() + 18000, 1))
    num_distinct = n if values is None else int(values.unique().numel())
    out = new(num_distinct, dtype=x.dtype)
    count = new(dtype=torch.int64)
    scratch(1023)
    del count, ordered, order
    inverse = new(*(x.shape if return_inverse else (0,)), dtype=torch.int64)
    counts = new(num_distinct if return_counts else 0, dtype=torch.int64)
    if values is not None:
        exact = torch.unique(values, return_inverse=True, return_counts=True)
        set_known(out, exact[0])
        if return_inverse:
            set_known(inverse, exact[1])
        if return_counts:
            set_known(counts, exact[2])
    return out, inverse, counts


@kernel("unique_dim")
def unique_dim(x: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    note("the number of distinct slices was not computed; all were assumed to be distinct")
    n = x.shape[dim]
    return torch.empty_like(x), new(n, dtype=torch.int64), new(n, dtype=torch.int64)
