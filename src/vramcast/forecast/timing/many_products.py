"""Seconds of many products of one kind (bmm): each matrix has tiles of its own, which take their
time however few elements they have. cuBLAS does not share out the inner dimension of these."""

import math
from collections.abc import Sequence
from itertools import product

from vramcast.forecast.timing.rates import peak_flops
from vramcast.hardware.gpus import Gpu
from vramcast.tracing.work import OperatorWork

MANY, THIN = "many", "thin"  # of the keys of their rates
SIDES = (16, 32, 64, 128)  # of tiles


def is_many(work: OperatorWork) -> bool:
    return work.sizes[0] > 1


def is_thin(work: OperatorWork) -> bool:
    """Whether one dimension is a single element, for which there are kernels without tiles."""
    return min(work.sizes[1:]) == 1


def key_of(kind: str, work: OperatorWork) -> str:
    """The key of their rates, for a kind of product."""
    if is_thin(work):
        return f"{MANY} {THIN} {kind}"
    return f"{MANY} {kind} tf32" if work.precision == "tf32" else f"{MANY} {kind}"


def tiles_seconds(work: OperatorWork, gpu: Gpu, known: Sequence[float]) -> float:
    """Of the tiles that take least: operations for each element and for each row and column that is
    read. Where there are few tiles, each waits for its steps."""
    of_element, of_side, of_step, prologue, smallest = known
    many, rows, columns, inner = work.sizes
    side_by_side = gpu.num_multiprocessors
    least = min(
        math.ceil(many * math.ceil(rows / down) * math.ceil(columns / right) / side_by_side)
        * (down * right * of_element + (down + right) * of_side)
        for down, right in product(SIDES, SIDES)
        if min(down, right) >= smallest
    )
    step = least * side_by_side / peak_flops(gpu, work.precision)
    return (inner + prologue) * math.hypot(step, of_step)
