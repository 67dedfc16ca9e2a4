"""Fourier transforms by cuFFT: the copies that torch makes around them, and cuFFT's work area."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from vramcast.simulate.kernels.registry import kernel, new, note, scratch

MAX_DIMS = 3  # cuFFT transforms at most so many at once
# Recorded (H200, torch 2.11): one kernel transforms lines of up to this length on chip.
MAX_LINE, MAX_REAL_LINE = 24576, 1080
MAX_FACTOR, MAX_PRIME = 31, 127
# Longer lines of real numbers that have such a kernel too, and shorter ones that have none.
LONGER = {1296, 1728, 1920, 2187, 2401}
LACKING = {75, 98, 147, 196, 245, 294, 375, 500, 525, 675, 686, 700, 735, 882, 900, 980, 1029, 1050}
ESTIMATED = "cuFFT does not publish the size of its work areas: they are estimates"
COMPLEX = {torch.float16: torch.complex32, torch.float64: torch.complex128}
REAL = {torch.complex32: torch.float16, torch.complex128: torch.float64}


def _transform(out: Tensor, x: Tensor, sizes: Sequence[int], dims: Sequence[int]) -> Tensor:
    """Transforms `x` into the memory of `out`, whose dimensions are then in the order of x's."""
    batch = [d for d in range(x.dim()) if d not in dims]
    batch.sort(key=lambda d: -x.stride()[d])
    order = [*batch, *dims]
    permuted = x.permute(order)
    lines = permuted.reshape(-1, *permuted.shape[len(batch) :])  # copies what cannot be a view
    if not _is_embedded(lines):
        lines = lines.clone(memory_format=torch.contiguous_format)
    signal = [max(x.shape[d], sizes[d]) for d in dims]
    scratch(_work_area_bytes(signal, out, x))
    shape = [sizes[d] for d in order]
    dense = out.resize_(math.prod(shape)).view(shape)
    return dense.permute([order.index(d) for d in range(x.dim())])


def _is_embedded(lines: Tensor) -> bool:
    """Whether the strides are those of a slice of a dense tensor: cuFFT can read nothing else."""
    sizes, strides = lines.shape, lines.stride()
    last = strides[-1]
    if last <= 0 or (sizes[0] > 1 and strides[0] == 0):
        return False
    for size, stride in zip(reversed(sizes[1:-1]), reversed(strides[1:-1]), strict=True):
        if size > 1:
            if stride <= 0 or stride % last:
                return False
            last = stride
    return True


def _work_area_bytes(signal: Sequence[int], *sides: Tensor) -> int:
    """cuFFT's work area: none where all lines fit on chip, else about as large as one side of the
    transform."""
    if max(map(_largest_factor, signal)) > 7:
        note(ESTIMATED)
    left = list(signal)
    for side in sides:
        if not side.is_complex():
            length = left.pop()
            if not _has_real_kernel(length, _largest_factor(length), side.itemsize):
                return 2 * side.nbytes + 256 if length % 2 else side.nbytes
    if all(map(_is_on_chip, left)):
        return 0
    return next(side.nbytes for side in sides if side.is_complex())


def _is_on_chip(length: int) -> bool:
    largest = _largest_factor(length)
    is_made = length == largest or not MAX_FACTOR < largest <= MAX_PRIME
    return is_made and length <= MAX_LINE


def _has_real_kernel(length: int, largest: int, itemsize: int) -> bool:
    if length == largest <= MAX_PRIME:
        return True
    if largest <= 2:
        return length <= 1 << (12 if itemsize == 8 else 14)
    is_short = length <= MAX_REAL_LINE and length not in LACKING
    return largest <= 11 and is_short or length in LONGER


def _largest_factor(number: int) -> int:
    factor, largest = 2, 1
    while factor * factor <= number:
        while number % factor == 0:
            number, largest = number // factor, factor
        factor += 1
    return max(largest, number)


def _uses_one_plan(dims: Sequence[int]) -> bool:
    return len(dims) <= MAX_DIMS and list(dims[:2]) != [0, 1]


@kernel("_fft_c2c")
def complex_to_complex(x: Tensor, dim: Sequence[int]) -> Tensor:
    if not dim:
        return x.clone()
    out, source, left = new(*x.shape, dtype=x.dtype), x, list(dim)
    while True:
        left.sort(key=lambda d: -source.stride()[d])
        now, left = left[-MAX_DIMS:], left[:-MAX_DIMS]
        out = _transform(out, source, x.shape, now)
        if not left:
            return out
        source, out = out, new(*x.shape, dtype=x.dtype) if source is x else source


@kernel("_fft_r2c")
def real_to_complex(x: Tensor, dim: Sequence[int], onesided: bool) -> Tensor:
    if x.dtype == torch.bfloat16:
        x = x.float()
    half = list(x.shape)
    half[dim[-1]] = half[dim[-1]] // 2 + 1
    sizes = half if onesided else list(x.shape)
    dtype = COMPLEX.get(x.dtype, torch.complex64)
    out = new(*sizes, dtype=dtype)
    if _uses_one_plan(dim):
        return _transform(out, x, sizes, dim)
    out = _transform(out, x, half, dim[-1:])
    other, left = new(*sizes, dtype=dtype), list(dim[:-1])
    while left:
        out, other = other, out
        now, left = left[-MAX_DIMS:], left[:-MAX_DIMS]
        out = _transform(out, other, half, now)
    return out if onesided else other.resize_(sizes)


@kernel("_fft_c2r")
def complex_to_real(x: Tensor, dim: Sequence[int], last_dim_size: int) -> Tensor:
    sizes = list(x.shape)
    sizes[dim[-1]] = last_dim_size
    out = new(*sizes, dtype=REAL.get(x.dtype, torch.float32))
    if _uses_one_plan(dim) or len(dim) == 1:  # cuFFT overwrites its input
        copy = x.clone(memory_format=torch.contiguous_format)
        return _transform(out, copy, sizes, dim)
    between = complex_to_complex(x, dim[:-1])
    return _transform(out, between, sizes, dim[-1:])
