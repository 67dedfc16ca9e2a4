"""Seconds of a product of two matrices: cuBLAS takes the tiles, and the parts of the inner
dimension, that are fastest. Tiles run in rounds over the multiprocessors, and the last round takes
as long as a full one."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from vramcast.forecast.timing.many_products import is_many
from vramcast.forecast.timing.rates import peak_flops
from vramcast.hardware.gpus import Gpu
from vramcast.tracing.work import CONVERTING, PLAIN, TURNED, OperatorWork

_NAMES = (
    *("mm", "addmm", "addmm_", "bmm", "baddbmm", "baddbmm_", "addbmm", "addmv", "addmv_"),
    *("_addmm_activation", "_scaled_mm", "_grouped_mm"),
)
PRODUCTS = frozenset(f"aten::{name}" for name in _NAMES)
# Kinds of products on tensor cores, beside "fp32", which has none of these.
ALIGNED, ODD, EVEN, ONE_TURNED, BOTH_TURNED = (
    *("tensor", "tensor unaligned", "tensor even"),
    *("tensor turned", "tensor both turned"),
)
# As many matrices as there are groups, of any sizes: CUTLASS goes through the tiles of all.
GROUPED, GROUPED_PRODUCT = "grouped", "aten::_grouped_mm"
# Into how many parts the inner dimension may be split, and how long they are at least.
PARTS, SHORTEST_PART = np.array((1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)), 128
BYTES_OF_SUM = 4

Floats = NDArray[np.float64]


def tiles_of(down: Sequence[int], right: Sequence[int]) -> Floats:
    """All of these sides that a multiprocessor has room for."""
    return np.array([(d, r) for d in down for r in right if d * r <= 128 * 256], float)


OF_CORES = tiles_of((32, 64, 128, 192, 256), (32, 64, 96, 128, 192, 256))
OF_LANES = tiles_of((32, 64, 128, 256), (32, 64, 128, 256))


class TileRates(NamedTuple):
    fixed: float
    of_bandwidth: float
    of_element: float  # operations of a tile for each of its elements and step of the inner size
    of_side: float  # and for each row and column
    prologue: float  # of a tile, in steps
    of_split: float  # seconds, where the inner dimension is split
    of_step: float  # seconds that a step takes at least
    power: float  # with which memory and tiles overlap
    of_sums: float  # of the bandwidth, at which the parts' sums are added


class Products(NamedTuple):
    """Columns of numbers, a row for each product."""

    sizes: Floats  # how many, rows, columns, inner size
    num_bytes: Floats
    peak_flops: Floats
    tiles: Floats  # that there are for all of them

    @classmethod
    def of(cls, works: Sequence[OperatorWork], gpu: Gpu) -> Self:
        return cls(
            np.array([work.sizes for work in works], float),
            np.array([work.num_bytes for work in works]),
            np.array([peak_flops(gpu, work.precision) for work in works]),
            OF_LANES if works[0].precision == "fp32" else OF_CORES,
        )


def product_kind(work: OperatorWork) -> str:
    if work.precision == "fp32":
        return "fp32"
    aligned = {PLAIN: ALIGNED, CONVERTING: ONE_TURNED, TURNED: BOTH_TURNED}
    if work.access in aligned:
        return aligned[work.access]
    # kinds by alignment: rows begin at multiples of 16 bytes (above), of 4, or of 2
    is_odd = work.precision != "tf32" and any(size % 2 for size in work.sizes[1:])
    return ODD if is_odd else EVEN


def key_of_single(kind: str, work: OperatorWork) -> str:
    """The key of its rates."""
    return f"{kind} tf32" if work.precision == "tf32" else kind


def product_seconds(
    products: Products, gpu: Gpu, known: Sequence[float], may_split: bool = True
) -> tuple[Floats, Floats]:
    """In all, and of the tiles alone."""
    rates = TileRates(*known)
    tiles = tiles_seconds(products, gpu, rates, may_split)
    memory = products.num_bytes / (gpu.bandwidth_bytes_per_second * rates.of_bandwidth)
    together = (tiles**rates.power + memory**rates.power) ** (1 / rates.power)
    return rates.fixed + together, np.where(tiles > memory, tiles, 0.0)


def tiles_seconds(products: Products, gpu: Gpu, rates: TileRates, may_split: bool) -> Floats:
    many, rows, columns, inner = products.sizes.T
    parts = PARTS if may_split else PARTS[:1]
    down, right = products.tiles.T
    num_tiles = many[:, None] * np.ceil(rows[:, None] / down) * np.ceil(columns[:, None] / right)
    rounds = np.ceil(num_tiles[:, :, None] * parts / gpu.num_multiprocessors)
    operations = down * right * rates.of_element + (down + right) * rates.of_side
    computed = operations * gpu.num_multiprocessors / products.peak_flops[:, None]
    step = np.hypot(computed, rates.of_step)[:, :, None]
    steps = np.ceil(inner[:, None] / parts) + rates.prologue
    sums = many * rows * columns * BYTES_OF_SUM
    added = rates.of_split + sums[:, None] * parts / (
        gpu.bandwidth_bytes_per_second * rates.of_sums
    )
    seconds = rounds * steps[:, None, :] * step + np.where(parts > 1, added, 0.0)[:, None, :]
    is_taken = (parts == 1) | (inner[:, None] / parts >= SHORTEST_PART)
    found: Floats = np.where(is_taken[:, None, :], seconds, np.inf).min((1, 2))
    return found


def single_seconds(work: OperatorWork, gpu: Gpu, known: Sequence[float]) -> tuple[float, float]:
    """As product_seconds, of one."""
    seconds, of_tiles = product_seconds(Products.of([work], gpu), gpu, known, not is_many(work))
    return float(seconds[0]), float(of_tiles[0])
