"""Which batch sizes are worth a run: the knee of the predicted throughput, the largest that fits, and one between. Pure."""

from __future__ import annotations

import math

from vramcast.forecast.search import crossing
from vramcast.records.prediction import Prediction

FURTHER = 8  # times the batch, to see how memory and time grow
FURTHEST = 64  # times the batch: two points say nothing of what is beyond
COMFORTABLE = 0.88  # of the memory: above 0.92 a run does not count as sound
KNEE = 0.95  # of the throughput of an endless batch
APART = 1.2  # times the one before: nearer ones are not worth a run of their own
UNPREDICTED = (2, 4, 8)


def batch_sizes(
    batch: int, here: Prediction | str, further: Prediction | str, most_seconds: float = math.inf
) -> list[int]:
    """Rising, all above `batch`. `here` and `further` are predictions for `batch` and FURTHER times that; no step may take longer than
    `most_seconds`."""
    if isinstance(here, str) or isinstance(further, str):
        return [factor * batch for factor in UNPREDICTED]
    in_time = size_in_time(batch, here.step_seconds, further.step_seconds, most_seconds)
    largest = min(largest_that_fits(batch, here, further), float(FURTHEST * batch), in_time)
    if largest <= batch:
        return []
    knee = min(largest, max(batch, knee_of(batch, here.step_seconds, further.step_seconds)))
    found: list[int] = []
    for size in (_round(wanted) for wanted in (knee, math.sqrt(knee * largest), largest)):
        if size >= APART * (found[-1] if found else batch):
            found.append(size)
    return found


def gain_of_larger(here: Prediction | str, further: Prediction | str) -> float:
    """How many times the throughput FURTHER times the batch has, where it fits; 1 where that is not known."""
    if (
        isinstance(here, str)
        or isinstance(further, str)
        or not here.step_seconds
        or not further.step_seconds
        or further.fits is False
    ):
        return 1.0
    return FURTHER * here.step_seconds / further.step_seconds


def largest_that_fits(batch: int, here: Prediction, further: Prediction) -> float:
    if here.capacity_bytes is None:
        return float(FURTHEST * batch)
    known = {batch: here.peak_reserved_bytes, FURTHER * batch: further.peak_reserved_bytes}
    found = crossing(known, int(COMFORTABLE * here.capacity_bytes))
    return float(FURTHEST * batch) if found is None else found


def knee_of(batch: int, seconds: float | None, seconds_further: float | None) -> float:
    """Where what does not grow with the batch is a twentieth of it, by a straight line; `batch` where nothing is known."""
    if not seconds or not seconds_further or seconds_further <= seconds:
        return float(batch)
    slope = (seconds_further - seconds) / ((FURTHER - 1) * batch)
    fixed = max(0.0, seconds - slope * batch)
    return KNEE / (1 - KNEE) * fixed / slope


def size_in_time(
    batch: int, seconds: float | None, seconds_further: float | None, most_seconds: float
) -> float:
    """The batch at which a step takes so long, by the same line."""
    if not seconds or not seconds_further or seconds_further <= seconds:
        return math.inf
    return batch + (most_seconds - seconds) * (FURTHER - 1) * batch / (seconds_further - seconds)


def _round(size: float) -> int:
    """Down to a multiple of 8 from 16 on, of 32 from 128 on: kernels like such sizes."""
    for least, multiple in ((128, 32), (16, 8)):
        if size >= least:
            return int(size // multiple) * multiple
    return int(size)


def lengths(length: int) -> list[int]:
    return [length // 2] if length >= 2 else []


def missing_bytes(prediction: Prediction) -> int:
    return max(1, prediction.peak_reserved_bytes - (prediction.capacity_bytes or 0))
