"""Seconds of a pointwise operator on strided tensors: memory, and finding each element's place.

Every dimension costs time, and so does a cast. Where neighbours are not contiguous, every element
is a read of its own.
"""

import math
from collections.abc import Sequence

from vramcast.hardware.gpus import Gpu
from vramcast.tracing.work import OperatorWork

WALK = "walk"  # the key of its rates
RECORDED_ON = 132  # multiprocessors
LINE_BYTES, OF_CACHE = 64, 1 / 3
# If more elements than this are read before a neighbour is, a multiprocessor's own cache no longer
# helps; below, it helps by this power.
OWN_CACHE, HELPED = 384, 0.35


def is_walk(work: OperatorWork) -> bool:
    return work.sizes[0] < 0


def walk_seconds(work: OperatorWork, gpu: Gpu, known: Sequence[float]) -> float:
    """The seconds; note_walk in native/work.h describes the sizes. Memory and arithmetic partly
    overlap."""
    fixed, of_bandwidth, element, dim, cast, read, of_line = known
    _, elements, kind, reach = work.sizes
    dims, apart, is_cast = kind % 16, kind // 16 % 16, kind // 256
    each = element + dim * max(0, dims - 2) + cast * is_cast * (work.operator != "aten::copy_")
    each += apart * read * min(1.0, reach / OWN_CACHE) ** HELPED
    moved = work.num_bytes
    if reach * LINE_BYTES > OF_CACHE * gpu.l2_cache_bytes:
        moved += elements * apart * LINE_BYTES * of_line
    memory = moved / (gpu.bandwidth_bytes_per_second * of_bandwidth)
    return fixed + math.hypot(memory, elements * each * RECORDED_ON / gpu.num_multiprocessors)
