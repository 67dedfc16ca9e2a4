"""Seconds of a reduction whose results are neighbours in memory, such as the gradient of a bias.

torch chooses the threads (Reduce.cuh, setReduceConfig). The time is that of reads that follow each
other: those of one thread, then those of the block that adds up all sums.
"""

import math
from collections.abc import Sequence

from vramcast.allocator.blocks import last_power_of_two
from vramcast.hardware.gpus import Gpu
from vramcast.tracing.work import OperatorWork

_NAMES = ("sum", "mean", "prod", "amax", "amin", "any", "all", "linalg_vector_norm", "var", "std")
REDUCTIONS = frozenset(f"aten::{name}" for name in _NAMES)
THREADS, WARP, OF_MULTIPROCESSOR = 512, 32, 2048
FEWEST_VALUES, MOST_VALUES = 16, 256  # the fewest and the most values that a thread adds up
WHOLE_IN_VECTORS = 128
AT_ONCE = 4  # reads that a thread has under way at the same time
# Recorded factors: where the last block is not full, and where addresses must be computed first.
RAGGED, PLACED = 1.85, 4.0


def reduction_seconds(work: OperatorWork, gpu: Gpu, known: Sequence[float]) -> float:
    fixed, of_bandwidth, read_seconds = known
    moved = work.num_bytes / (gpu.bandwidth_bytes_per_second * of_bandwidth)
    results = work.sizes[3]
    rows = work.sizes[1] or max(1, round(work.num_bytes / work.item_bytes / results) - 1)
    return fixed + moved + read_seconds * num_reads(rows, results, gpu.num_multiprocessors)


def num_reads(rows: int, results: int, num_multiprocessors: int) -> float:
    """The reads that follow each other, in the thread that has most of them."""
    at_once = next(size for size in (4, 2, 1) if results % size == 0)
    width, height = _block(results // at_once, rows, THREADS // at_once)
    if rows < min(height * FEWEST_VALUES, MOST_VALUES):
        return rows / AT_ONCE
    values, blocks = rows / height, math.ceil(results / (width * at_once))
    resident = num_multiprocessors * (OF_MULTIPROCESSOR // (width * height))
    if values < MOST_VALUES or blocks > resident:
        return values / AT_ONCE
    shares = _shares(values, resident / blocks)
    of_sums = shares / height * (RAGGED if results % (width * at_once) else 1.0)
    return values / shares / AT_ONCE + of_sums


def _block(across: int, down: int, most: int) -> tuple[int, int]:
    width, height = (last_power_of_two(min(n, most)) for n in (across, down))
    height = min(height, most // min(width, WARP))
    return min(width, most // height), height


def _shares(values: float, free: float) -> int:
    shares = min(math.ceil(free), math.ceil(values / FEWEST_VALUES))
    return max(shares, math.ceil(values / MOST_VALUES))


def is_inner(work: OperatorWork) -> bool:
    return work.operator in REDUCTIONS and not work.sizes[0] and work.sizes[1] > 0


def inner_seconds(work: OperatorWork, gpu: Gpu, known: Sequence[float]) -> float:
    """Seconds of a reduction along neighbours. Where the elements of a result are not all
    contiguous, their places must be found, as in walks.py."""
    fixed, of_bandwidth, block_seconds, read_seconds, place_seconds, share_seconds = known
    _, length, run, results = work.sizes
    moved = work.num_bytes / (gpu.bandwidth_bytes_per_second * of_bandwidth)
    placed = length * results * place_seconds if run < length else 0.0
    read_seconds *= PLACED if run < length else 1.0
    rounds, reads, shares = rounds_and_reads(length, run, results, gpu.num_multiprocessors)
    seconds = max(moved, placed, rounds * (block_seconds + reads * read_seconds))
    return fixed + seconds + math.log2(shares) * share_seconds


def rounds_and_reads(
    length: int, run: int, results: int, num_multiprocessors: int
) -> tuple[float, int, int]:
    """The rounds of blocks, the reads in the thread that has most, and how many blocks share a
    result."""
    is_whole = results == 1 and run > WHOLE_IN_VECTORS
    width, height = _block(run // AT_ONCE if is_whole else run, results, THREADS)
    values, outputs, shares = length / width, height, 1
    if is_split := values >= min(height * FEWEST_VALUES, MOST_VALUES):
        values, outputs = values / height, 1
    blocks = math.ceil(results / outputs)
    resident = num_multiprocessors * (OF_MULTIPROCESSOR // (width * height))
    if is_split and values >= MOST_VALUES and blocks <= resident:
        shares = _shares(values, resident / blocks)
    return max(1.0, blocks * shares / resident), math.ceil(values / shares / AT_ONCE), shares
