"""Sorts, scans and random permutations: scratch memory of the library CUB."""

from collections.abc import Sequence

import torch
from torch import Tensor

from vramcast.allocator.blocks import round_up
from vramcast.simulate.kernels.registry import (
    Target,
    draw_elements,
    drawing_from,
    guess,
    kernel,
    known,
    like,
    meta_result,
    new,
    scratch,
    set_known,
    take_random,
)

SINGLE_TILE = 2048  # sorted by one thread block, without scratch memory
LARGEST_DRAWN = 1 << 17  # longer orders of unknown values are not drawn at random


def radix_sort_bytes(n: int, key_bytes: int, value_bytes: int, bits: int | None = None) -> int:
    """The scratch memory of a CUB radix sort of n pairs by the low `bits` of the key.

    It has a second copy of the pairs if there are several passes, a histogram for each pass, a
    look-back table for each tile, and counters.
    """
    if n <= SINGLE_TILE:
        return 1
    passes = -(-(bits or 8 * key_bytes) // 8)
    pair_bytes = key_bytes + value_bytes
    tile = 4608 if pair_bytes >= 16 else 5376 if pair_bytes >= 12 else 5760
    copies = round_up(n * key_bytes, 256) + round_up(n * value_bytes, 256) if passes > 1 else 0
    return 255 + copies + passes * 2048 + -(-n // tile) * 1024 + 256


def tile_bytes(n: int, per_tile: int) -> int:
    """The scratch memory of a kernel that goes through n elements once: every tile keeps its
    progress."""
    return 255 + round_up((-(-n // per_tile) + 32) * 16, 256)


def scan_bytes(n: int) -> int:
    return 1279 + 256 * max(0, -(-n // 120000) - 1)


@kernel("sort.stable", "sort")
def sort(
    x: Tensor, dim: int = -1, descending: bool = False, stable: bool | None = False
) -> tuple[Tensor, Tensor]:
    operator = torch.ops.aten.sort.stable
    metas = meta_result(operator, x, stable=stable, dim=dim, descending=descending)
    length = x.shape[dim] if x.dim() else 1
    values, indices = like(metas[0]), like(metas[1])
    if x.numel():
        # long rows that are not contiguous are copied, and so are their results
        is_apart = length > 4096 and x.stride(dim) != 1
        again = (values.nbytes, indices.nbytes) if values.stride(dim) != 1 else ()
        copies = scratch(x.nbytes, *again) if is_apart else []
        _use_sort_scratch(x.numel(), length, x.element_size())
        copies.clear()
        _set_order(values, indices, x, dim, descending)
    return values, indices


def _use_sort_scratch(n: int, length: int, item_bytes: int) -> None:
    """Short rows are sorted in shared memory, and one long row by a radix sort. Many long rows are
    sorted by value, then by row."""
    if length <= 4096:
        scratch(length * 8)
    elif n == length:
        scratch(n * 8, radix_sort_bytes(n, item_bytes, 8))
    else:
        buffers = scratch(n * 8, n * 8, n * item_bytes)
        scratch(radix_sort_bytes(n, item_bytes, 8))
        scratch(radix_sort_bytes(n, 4, 4, bits=max((n // length).bit_length(), 1)))
        del buffers


def _set_order(values: Tensor, indices: Tensor, x: Tensor, dim: int, descending: bool) -> None:
    """The real order where the values are known, else a random one."""
    host = known(x)
    if host is not None:
        ordered = host.sort(dim=dim, descending=descending, stable=True)
        set_known(indices, ordered.indices)
        set_known(values, ordered.values)
    elif indices.numel() <= LARGEST_DRAWN:
        guess()
        set_known(indices, drawn(x.shape).argsort(dim))


def drawn(shape: Sequence[int]) -> Tensor:
    """Random numbers from a generator of our own, so that the program's numbers do not change."""
    return torch.rand(shape, generator=torch.Generator())


@kernel("median")
def median(x: Tensor) -> Tensor:
    """The median of all elements, by sorting them."""
    if not x.numel():
        return new(dtype=x.dtype)
    ordered = x.flatten().sort().values
    return torch.where(ordered[-1].isnan(), ordered[-1], ordered[(x.numel() - 1) // 2])


@kernel("nanmedian")
def median_of_numbers(x: Tensor) -> Tensor:
    if not x.numel():
        return new(dtype=x.dtype)
    ordered = x.flatten().sort().values
    is_nan = ordered.isnan()
    num_nan = is_nan.sum()
    num_after = torch.empty_like(num_nan).fill_(x.numel() - 1).sub_(num_nan)
    middle = num_after / 2
    place = middle.to(torch.int64)
    del middle, num_after, num_nan, is_nan
    return torch.ops.aten.index.Tensor(ordered, [place])


# TensorTopK.cu: with at least so many rows, several blocks share a row from this length on
SEVERAL_BLOCKS = {1: 20000, 21: 10000, 41: 8000, 81: 5000, 200: 3000, 800: 800, 4001: 400}
BLOCK_THREADS, BLOCKS_AT_ONCE, RADIX_DIGITS = 256, 6, 256


@kernel("topk")
def topk(
    x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, Tensor]:
    if -x.dim() <= dim < x.dim() and 0 <= k <= x.shape[dim]:
        shape = [*x.shape]
        shape[dim] = k
        values, indices = (new(*shape, dtype=dtype) for dtype in (x.dtype, torch.int64))
    else:  # a single number, or torch's error
        metas = meta_result(torch.ops.aten.topk.default, x, k, dim)
        values, indices = like(metas[0]), like(metas[1])
    if x.numel():
        dense = x.contiguous()
        length = x.shape[dim] if x.dim() else 1
        _use_topk_scratch(x.numel() // length, length, x.element_size())
        del dense
        host = known(x)
        if host is not None:
            found = host.topk(k, dim, largest, sorted)
            set_known(values, found.values)
            set_known(indices, found.indices)
        elif indices.numel() <= LARGEST_DRAWN:
            guess()
            set_known(indices, drawn(x.shape).topk(k, dim).indices)
    return values, indices


def _use_topk_scratch(num_rows: int, length: int, item_bytes: int) -> None:
    if length < next(n for rows, n in reversed(SEVERAL_BLOCKS.items()) if num_rows >= rows):
        return
    threads = Target.gpu.model.num_multiprocessors * BLOCKS_AT_ONCE * BLOCK_THREADS
    per_thread = min(64, max(4, -(-num_rows * length // threads)))
    blocks = num_rows * -(-length // (per_thread * BLOCK_THREADS))
    counts = blocks * RADIX_DIGITS * 2, num_rows * RADIX_DIGITS * 4
    buffers = scratch(num_rows * item_bytes, *[num_rows * 8] * 2, *counts, *[blocks * 4] * 2)
    for _ in range(2):
        scratch(scan_bytes(blocks))
    del buffers


@kernel("cumprod", "logcumsumexp", "_logcumsumexp")
def scan(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    is_integer = not (x.is_floating_point() or x.is_complex())
    dtype = dtype or (torch.int64 if is_integer else x.dtype)
    source = x if x.dtype == dtype else x.to(dtype)
    out = new(*source.shape, dtype=dtype)
    if x.dim() and x.numel() == x.shape[dim] > 1:
        scratch(scan_bytes(x.numel()))
    return out


@kernel("cumsum")
def running_sum(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    out = scan(x, dim, dtype)
    host = known(x)
    if host is not None and not x.is_floating_point():
        set_known(out, host.cumsum(dim, dtype=dtype))
    return out


@kernel("cummax", "cummin")
def running_extreme(x: Tensor) -> tuple[Tensor, Tensor]:
    return new(*x.shape, dtype=x.dtype), new(*x.shape, dtype=torch.int64)


@kernel("randperm", "randperm.generator")
def randperm(
    n: int, generator: torch.Generator | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Sorts the numbers by random keys, which are wider for long permutations."""
    out = new(n, dtype=dtype or torch.int64)
    scratch(8)
    key_bytes = 4 if n <= 65536 else 8
    scratch(n * 8, n * key_bytes, n * key_bytes, radix_sort_bytes(n, key_bytes, 8))
    with drawing_from(generator):
        draw_elements(n, per_thread=2)  # the keys, two words each
        take_random(n)  # to shuffle equal keys
    set_known(out, drawn((n,)).argsort())
    return out
