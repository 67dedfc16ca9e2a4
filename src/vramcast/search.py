"""The largest size that fits, with few questions asked. Pure; no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

LOOK_BEYOND = 3  # sizes past the first that fails: fragmentation can let one of them fit


@dataclass(frozen=True)
class Found:
    largest: int | None
    first_failing: int | None  # the next size after `largest`; None where the search ended at its limit
    fits_beyond: list[int] = field(default_factory=list)  # sizes above one that fails


def largest_fitting(fits: Callable[[int], bool], *, low: int, high: int, step: int) -> Found:
    """Among low, low + step, ... up to high: bisection, then a look past the edge."""
    last = low + (high - low) // step * step
    if not fits(low):
        return Found(None, low)
    if fits(last):
        return Found(last, None)
    good, bad = low, last
    while bad - good > step:
        middle = good + (bad - good) // step // 2 * step
        if fits(middle):
            good = middle
        else:
            bad = middle
    beyond = [size for size in range(bad + step, min(bad + LOOK_BEYOND * step, last) + 1, step) if fits(size)]
    return Found(good, bad, beyond)


def accumulation(global_batch: int, largest: int) -> tuple[int, int]:
    """(micro-batch, steps) that make up a global batch with as few steps as fit: the largest divisor that is not above `largest`."""
    micro = max(size for size in range(1, min(largest, global_batch) + 1) if global_batch % size == 0)
    return micro, global_batch // micro


@dataclass(frozen=True)
class Law:
    """bytes = intercept + slope x batch, by least squares."""

    intercept_bytes: float
    bytes_per_sample: float
    largest_residual: float  # relative


def memory_law(points: list[tuple[int, int]]) -> Law | None:
    if len({size for size, _ in points}) < 2:
        return None
    count = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    intercept = mean_y - slope * mean_x
    residual = max(abs(y - intercept - slope * x) / y for x, y in points)
    return Law(intercept, slope, residual)
