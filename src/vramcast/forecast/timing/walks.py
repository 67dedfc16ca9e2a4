"""Seconds of a pointwise operator that follows strides: memory, and finding each element's place.

native/walking.h says how torch goes through it. Dividing the place out of an element's number takes
time for every dimension, casting it some more, and where neighbours lie apart every element is a
read of its own: of the multiprocessor's cache, of that of all, or of memory, by how many others are
read before its neighbour.
"""

import math
from collections.abc import Sequence

from vramcast.hardware.gpus import Gpu
from vramcast.tracing.work import OperatorWork

WALK = "walk"  # a name of its rates
RECORDED_ON = 132  # multiprocessors
FEWEST_DIMS = 2
LINE_BYTES = 64
# Recorded: elements from which on the own cache does not help, and what it helps before.
OWN_CACHE, HELPED = 384, 0.35
# Of the cache of all, beside what is written.
OF_CACHE = 1 / 3
# How far memory and arithmetic hide each other: neither all of it nor nothing.
POWER = 2.0


def is_walk(work: OperatorWork) -> bool:
    return work.sizes[0] < 0


def walk_seconds(work: OperatorWork, gpu: Gpu, known: Sequence[float]) -> float:
    fixed, of_bandwidth, element, dim, cast, read, of_line = known
    _, elements, kind, reach = work.sizes
    dims, apart, is_cast = kind % 16, kind // 16 % 16, kind // 256
    each = element + dim * max(0, dims - FEWEST_DIMS)
    each += cast * is_cast * (work.operator != "aten::copy_")
    each += apart * read * min(1.0, reach / OWN_CACHE) ** HELPED
    moved = work.num_bytes
    if apart and reach * LINE_BYTES > OF_CACHE * gpu.l2_cache_bytes:
        moved += elements * apart * LINE_BYTES * of_line
    memory = moved / (gpu.bandwidth_bytes_per_second * of_bandwidth)
    placed = elements * each * RECORDED_ON / gpu.num_multiprocessors
    return fixed + math.pow(memory**POWER + placed**POWER, 1 / POWER)
