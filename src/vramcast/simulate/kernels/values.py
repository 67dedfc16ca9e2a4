"""Operators whose result depends on contents: .item(), nonzero and the like. Known contents are used; unknown ones are guessed and noted."""

from __future__ import annotations

import collections
from typing import Any

import torch

from vramcast.simulate.kernels.registry import kernel, known, new, note, scratch, set_known

_asked: collections.Counter[str] = collections.Counter()
PATIENCE = 1000


def _placeholder(tensor: torch.Tensor) -> bool | int | float:
    """A plausible value: conditions are false (loops end), numbers are one. A loop that keeps asking gets the other answer."""
    _asked[str(tensor.dtype)] += 1
    stuck = _asked[str(tensor.dtype)] % PATIENCE == 0
    if tensor.dtype == torch.bool:
        return stuck
    return 1.0 if tensor.is_floating_point() else 1


@kernel("_local_scalar_dense")
def item(tensor: torch.Tensor) -> Any:
    values = known(tensor)
    if values is not None:
        return values.item()
    value = _placeholder(tensor)
    note(
        f"the program reads a {str(tensor.dtype).removeprefix('torch.')} value from the GPU that was not computed; {value} was assumed"
    )
    return value


@kernel("equal")
def equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    x, y = known(a), known(b)
    return bool(torch.equal(x, y)) if x is not None and y is not None else a.shape == b.shape


def _select_scratch(num_elements: int) -> None:
    counting = scratch(1 if num_elements <= 4096 else _reduce_scratch(num_elements))
    del counting


def _reduce_scratch(num_elements: int) -> int:
    return 255 + 256 * 8 * min(-(-num_elements // 4096), 1320)


@kernel("nonzero")
def nonzero(tensor: torch.Tensor) -> torch.Tensor:
    values = known(tensor)
    count = new(dtype=torch.int32)
    _select_scratch(tensor.numel())
    if values is None:
        note(
            "the positions of nonzero elements were not computed; half of them were assumed to be nonzero"
        )
        length = tensor.numel() // 2
        positions = None
    else:
        positions = values.nonzero()
        length = positions.shape[0]
    out = torch.empty(tensor.dim(), length, dtype=torch.int64, device="cuda").t()
    if length:
        selecting = scratch(1023)
        del selecting
    if positions is not None:
        set_known(out, positions)
    del count
    return out


@kernel("masked_select")
def masked_select(tensor: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    wide, mask = torch.broadcast_tensors(tensor, mask)
    return wide[mask]


@kernel("repeat_interleave.Tensor")
def repeat_interleave(repeats: torch.Tensor, *, output_size: int | None = None) -> torch.Tensor:
    values = known(repeats)
    sums = repeats.cumsum(0)
    if output_size is None:
        if values is None:
            note("the number of repeats was not computed; one each was assumed")
        output_size = int(values.sum()) if values is not None else repeats.numel()
    out = new(output_size, dtype=repeats.dtype)
    if values is not None:
        set_known(out, torch.arange(repeats.numel()).repeat_interleave(values))
    del sums
    return out


@kernel("bincount")
def bincount(
    tensor: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0
) -> torch.Tensor:
    values = known(tensor)
    lowest = tensor.min() if tensor.numel() else None
    del lowest
    highest = tensor.max() if tensor.numel() else None
    del highest
    if values is None:
        note(
            "bincount of values that were not computed: its minlength was assumed to be its length"
        )
    length = max(
        int(values.max()) + 1 if values is not None and values.numel() else 0, minlength, 1
    )
    out = new(
        length,
        dtype=torch.int64
        if weights is None
        else torch.float64
        if weights.dtype == torch.float64
        else torch.float32,
    )
    if values is not None and weights is None:
        set_known(out, torch.bincount(values, minlength=minlength))
    return out


def _unique(tensor: torch.Tensor, inverse: bool, counts: bool) -> Any:
    values = known(tensor)
    if values is None:
        note("the number of distinct values was not computed; all were assumed to be distinct")
    n = tensor.numel()
    ordered = new(n, dtype=tensor.dtype)
    order = scratch(n * 8) if inverse or counts else None
    sorting = scratch(max(n * tensor.element_size() + 18000, 1))
    del sorting
    distinct = n if values is None else int(values.unique().numel())
    out = new(distinct, dtype=tensor.dtype)
    number = new(dtype=torch.int64)
    selecting = scratch(1023)
    del selecting, number, ordered, order
    inverses = new(*tensor.shape, dtype=torch.int64) if inverse else new(0, dtype=torch.int64)
    occurrences = new(distinct, dtype=torch.int64) if counts else new(0, dtype=torch.int64)
    if values is not None:
        exact = torch.unique(values, return_inverse=True, return_counts=True)
        set_known(out, exact[0])
        if inverse:
            set_known(inverses, exact[1])
        if counts:
            set_known(occurrences, exact[2])
    return out, inverses, occurrences


@kernel("_unique2")
def unique2(
    tensor: torch.Tensor,
    ordered: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Any:
    return _unique(tensor, return_inverse, return_counts)


@kernel("unique_consecutive")
def unique_consecutive(
    tensor: torch.Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    return _unique(tensor, return_inverse, return_counts)


@kernel("unique_dim")
def unique_dim(
    tensor: torch.Tensor,
    dim: int,
    ordered: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Any:
    note("the number of distinct slices was not computed; all were assumed to be distinct")
    n = tensor.shape[dim]
    return torch.empty_like(tensor), new(n, dtype=torch.int64), new(n, dtype=torch.int64)


@kernel("_amp_foreach_non_finite_check_and_unscale_")
def unscale(gradients: Any, found_inf: torch.Tensor, inverse_scale: torch.Tensor) -> None:
    """Gradients are taken to be finite: the loss scaler then steps the optimizer, as it does in all but a few steps."""
