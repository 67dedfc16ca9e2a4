"""Seconds of a reduction whose results are neighbours in memory, as the gradient of a bias is.

Which threads sum what is torch's choice (ATen/native/cuda/Reduce.cuh, setReduceConfig). What takes
time is reads that follow each other: each thread's own, then those of the block that adds up the
sums of all others.
"""

import math
from collections.abc import Sequence

from vramcast.hardware.gpus import Gpu
from vramcast.tracing.work import OperatorWork

_NAMES = ("sum", "mean", "prod", "amax", "amin", "any", "all", "linalg_vector_norm", "var", "std")
REDUCTIONS = frozenset(f"aten::{name}" for name in _NAMES)
THREADS, WARP, OF_MULTIPROCESSOR = 512, 32, 2048
FEWEST_VALUES, MOST_VALUES = 16, 256  # of a thread
AT_ONCE = 4  # reads of a thread that do not wait for each other
# Recorded: by how much reads of sums take longer where the last block has less than its full width.
RAGGED = 1.85


def reduction_seconds(work: OperatorWork, gpu: Gpu, known: Sequence[float]) -> float:
    fixed, of_bandwidth, read_seconds = known
    moved = work.num_bytes / (gpu.bandwidth_bytes_per_second * of_bandwidth)
    results = work.sizes[3]
    item_bytes = 2 if work.precision in ("bf16", "fp16") else 4
    rows = max(1, round(work.num_bytes / item_bytes / results) - 1)
    return fixed + moved + read_seconds * num_reads(rows, results, gpu.num_multiprocessors)


def num_reads(rows: int, results: int, num_multiprocessors: int) -> float:
    """One after the other, of the thread that has most."""
    at_once = next(size for size in (4, 2, 1) if results % size == 0)
    most = THREADS // at_once
    width, height = (_power_of_2(min(n, most)) for n in (results // at_once, rows))
    height = min(height, most // min(width, WARP))
    width = min(width, most // height)
    if rows < min(height * FEWEST_VALUES, MOST_VALUES):
        return rows / AT_ONCE
    values, blocks = rows / height, math.ceil(results / (width * at_once))
    resident = num_multiprocessors * (OF_MULTIPROCESSOR // (width * height))
    if values < MOST_VALUES or blocks > resident:
        return values / AT_ONCE
    shares = min(math.ceil(resident / blocks), math.ceil(values / FEWEST_VALUES))
    shares = max(shares, math.ceil(values / MOST_VALUES))
    of_sums = shares / height * (RAGGED if results % (width * at_once) else 1.0)
    return values / shares / AT_ONCE + of_sums


def _power_of_2(number: int) -> int:
    return 1 << max(1, number).bit_length() - 1
