"""Seconds of additions to places that threads share, fitted to recorded ones.
They are in benchmarks/step_time/recorded/atomics.jsonl.

A warp's to a sector of 32 bytes take as many passes as one of its places has.
"""

import math
from collections.abc import Sequence

from vramcast.hardware.gpus import Gpu
from vramcast.tracing.work import GENERATED, OperatorWork

ENLARGED = "upsample_bilinear2d_backward"
ADDING = ("index_add", "scatter_add", ENLARGED, GENERATED)
WARP, SECTOR, PASS_SECONDS = 32, 8, 1.76e-9
# Sectors at once: a power of all, and the most. Additions of a multiprocessor on their way.
POWER, MOST, QUEUED = 0.578, 144, 8192
SUM = "sum of rows"  # a name of rates


def additions_seconds(work: OperatorWork, gpu: Gpu) -> float:
    """Rows begin anywhere; enlarged pictures are gone through in order."""
    is_across, number, places, rows = work.sizes
    if not places or not number or not any(name in work.operator for name in ADDING):
        return 0.0
    row, alike, touched = number / (rows or number), 1.0, places
    if ENLARGED in work.operator:
        row, alike = WARP, 1 if is_across else min(WARP, math.sqrt(number / (4 * places)))
        touched = min(places, 1 + QUEUED * gpu.num_multiprocessors * places // number)
    passes = number / WARP * passes_of_warp(places, row, alike)
    return passes * PASS_SECONDS / min(MOST, math.pow(max(1.0, touched / SECTOR), POWER))


def passes_of_warp(places: int, row: float, alike: float) -> float:
    """`alike` neighbours go to one place."""
    row = min(row, places, WARP / alike)
    fullest = most_of(WARP / (alike * places), max(1.0, min(SECTOR, places) / row))
    return alike * max(1.0, row / SECTOR, max(1.0, places / SECTOR) * fullest)


def most_of(mean: float, places: float) -> float:
    """In the fullest place."""
    share = below = math.exp(-mean)
    expected, number = 0.0, 0
    while below < 1 - 1e-9 and number < 8 * WARP:
        expected, number = expected + 1 - below**places, number + 1
        share *= mean / number
        below += share
    return expected


def is_sum(work: OperatorWork) -> bool:
    """Of sorted rows."""
    return work.operator.endswith("_dense_backward") and work.sizes[2] > 0


def sum_seconds(work: OperatorWork, known: Sequence[float]) -> float:
    """Of ten each, then of a place."""
    fixed, sorting, of_part, of_row, narrowest, of_byte = known
    _, rows, places, width = work.sizes
    touched = -places * math.expm1(-rows / places)
    parts = max(touched, rows / 10 + touched / 2)
    threads = WARP * math.ceil(width / WARP)
    each = parts * max(threads, narrowest) * of_part + (rows - parts) * width * of_row
    each /= 1 - 2048 % min(threads, 1024) / 2048
    return fixed + rows * sorting + each + places * width * work.item_bytes * of_byte
