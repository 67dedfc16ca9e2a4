"""Seconds of atomic additions, to places that several threads share, fitted to recorded ones.

The recordings are in benchmarks/step_time/recorded/atomics.jsonl. Additions of a warp to one sector
of 32 bytes take as many passes as the most that go to one of its places.
"""

import math
from collections.abc import Sequence

from vramcast.hardware.gpus import Gpu
from vramcast.tracing.work import CROWD_PARTS, STRIDED, OperatorWork

ENLARGED = "upsample_bilinear2d_backward"
ADDING = ("index_add", "scatter_add", ENLARGED)
WARP, SECTOR, PASS_SECONDS = 32, 8, 1.76e-9
# How many sectors are written at once: this power of their number, and at most so many. How many
# additions a multiprocessor has under way.
POWER, MOST, QUEUED = 0.578, 144, 8192
# Of an addition that waits for the one before it, by the width of the rows: where they are in the
# cache, and where they are not.
IN_TURN_SECONDS = {
    1.9: (91e-9, 91e-9),
    40.0: (0.178e-6, 0.24e-6),
    140.0: (0.475e-6, 0.73e-6),
    math.inf: (0.64e-6, 0.9e-6),
}
PASSES_IN_TURN, OF_CACHE = 3, 1.5
SUM = "sum of rows"  # the key of its rates


def additions_seconds(work: OperatorWork, gpu: Gpu) -> float:
    """The seconds of atomic additions; 0 for other operators. Rows go to random places; the
    gradient of an upsampled image goes through its places in order. Where it is known that many go
    to one place, these wait for each other."""
    first, number, places, rows = work.sizes
    is_adding = work.is_generated or any(name in work.operator for name in ADDING)
    if not places or not number or not is_adding:
        return 0.0
    row, alike, touched = number / (rows or number), 1.0, places
    if ENLARGED in work.operator:
        row, alike = WARP, 1 if first else min(WARP, math.sqrt(number / (4 * places)))
        touched = min(places, 1 + QUEUED * gpu.num_multiprocessors * places // number)
    passes = number / WARP * passes_of_warp(places, row, alike)
    spread = passes / min(MOST, math.pow(max(1.0, touched / SECTOR), POWER))
    in_turn = number * first / CROWD_PARTS if work.is_generated else 0.0
    return PASS_SECONDS * max(spread, in_turn)


def passes_of_warp(places: int, row: float, alike: float) -> float:
    """How many passes a warp's additions take. `alike` neighbouring additions go to one place."""
    row = min(row, places, WARP / alike)
    fullest = most_of(WARP / (alike * places), max(1.0, min(SECTOR, places) / row))
    return alike * max(1.0, row / SECTOR, max(1.0, places / SECTOR) * fullest)


def most_of(mean: float, places: float) -> float:
    """The expected number of additions in the fullest of some places, with `mean` additions in each
    (Poisson)."""
    share = below = math.exp(-mean)
    expected, number = 0.0, 0
    while below < 1 - 1e-9 and number < 8 * WARP:
        expected, number = expected + 1 - below**places, number + 1
        share *= mean / number
        below += share
    return expected


def in_turn_seconds(work: OperatorWork, gpu: Gpu) -> float:
    """The seconds of additions at places that were sorted first (index_put), of which a warp makes
    those to one place in turn; 0 for other operators. They are taken to be spread evenly."""
    _, _, places, rows = work.sizes
    if not work.operator.startswith("aten::_index_put") or work.access != STRIDED or not places:
        return 0.0
    width = work.num_bytes / max(1, rows) / (PASSES_IN_TURN * work.item_bytes)
    small, large = next(known for widest, known in IN_TURN_SECONDS.items() if width <= widest)
    missed = min(1.0, work.num_bytes / (OF_CACHE * gpu.l2_cache_bytes))
    most = rows / places + math.sqrt(rows / places)
    return most * (small + (large - small) * missed)


def is_sum(work: OperatorWork) -> bool:
    """Whether this is an embedding's gradient that sorts its rows first."""
    return work.operator.endswith("_dense_backward") and work.sizes[2] > 0


def sum_seconds(work: OperatorWork, known: Sequence[float]) -> float:
    """The seconds of an embedding's gradient: sorted rows are summed ten at a time, then the
    partial sums of each place are added."""
    fixed, sorting, of_part, of_row, narrowest, of_byte = known
    _, rows, places, width = work.sizes
    touched = -places * math.expm1(-rows / places)
    parts = max(touched, rows / 10 + touched / 2)
    threads = WARP * math.ceil(width / WARP)
    each = parts * max(threads, narrowest) * of_part + (rows - parts) * width * of_row
    each /= 1 - 2048 % min(threads, 1024) / 2048
    return fixed + rows * sorting + each + places * width * work.item_bytes * of_byte
