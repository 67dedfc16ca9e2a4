"""Which batch sizes are worth a run: the knee of throughput, the largest that fits, one between."""

from __future__ import annotations

import math

from vramcast.forecast.search import crossing
from vramcast.records.prediction import Prediction

# The second prediction is for this many times the batch.
FACTOR = 8
# Two predictions say nothing of batches beyond this many times the batch.
MAX_FACTOR = 64
UNPREDICTED_FACTORS = (2, 4, 8)
# A run that takes more than 0.92 of the memory does not count as sound.
MEMORY_SHARE = 0.88
# At the knee, throughput is this share of that of an infinite batch.
KNEE_SHARE = 0.95
# A size must be this many times the one before to be worth a run.
LEAST_RATIO = 1.2


def batch_sizes(
    batch: int, here: Prediction | str, larger: Prediction | str, max_seconds: float = math.inf
) -> list[int]:
    """All above `batch`, rising, with steps of at most `max_seconds`.

    `larger` is predicted for FACTOR times `batch`.
    """
    if isinstance(here, str) or isinstance(larger, str):
        return [factor * batch for factor in UNPREDICTED_FACTORS]
    slope, fixed_seconds = _line(batch, here.step_seconds, larger.step_seconds)
    in_time = (max_seconds - fixed_seconds) / slope if slope else math.inf
    largest = min(_largest_that_fits(batch, here, larger), float(MAX_FACTOR * batch), in_time)
    if largest <= batch:
        return []
    # Here the fixed part is a twentieth of the step; without a line, nothing is known of a knee.
    knee = KNEE_SHARE / (1 - KNEE_SHARE) * fixed_seconds / slope if slope else batch
    knee = min(largest, max(batch, knee))
    found = [batch]
    for size in map(_rounded, (knee, math.sqrt(knee * largest), largest)):
        if size >= LEAST_RATIO * found[-1]:
            found.append(size)
    return found[1:]


def gain_of_larger(here: Prediction | str, larger: Prediction | str) -> float:
    """How many times the throughput FACTOR times the batch has; 1 if unknown or unfit."""
    if isinstance(here, str) or isinstance(larger, str) or larger.fits is False:
        return 1.0
    before, after = here.step_seconds, larger.step_seconds
    return FACTOR * before / after if before and after else 1.0


def missing_bytes(prediction: Prediction) -> int:
    return max(1, prediction.peak_reserved_bytes - (prediction.capacity_bytes or 0))


def _largest_that_fits(batch: int, here: Prediction, larger: Prediction) -> float:
    if here.capacity_bytes is None:
        return math.inf
    known = {batch: here.peak_reserved_bytes, FACTOR * batch: larger.peak_reserved_bytes}
    found = crossing(known, int(MEMORY_SHARE * here.capacity_bytes))
    return math.inf if found is None else found


def _line(batch: int, seconds: float | None, larger_seconds: float | None) -> tuple[float, float]:
    """(seconds a sample, seconds that do not grow with the batch); (0, 0) if unknown."""
    if not seconds or not larger_seconds or larger_seconds <= seconds:
        return 0.0, 0.0
    slope = (larger_seconds - seconds) / ((FACTOR - 1) * batch)
    return slope, max(0.0, seconds - slope * batch)


def _rounded(size: float) -> int:
    """Down to a multiple of 8 from 16 on, of 32 from 128 on: kernels are fast for such sizes."""
    multiple = 32 if size >= 128 else 8 if size >= 16 else 1
    return int(size // multiple) * multiple
