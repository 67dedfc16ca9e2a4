"""Samples a second by batch size: the fastest, and the knee, above which more hardly helps."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from vramcast.records.prediction import Attempt, Choice, Speed
from vramcast.units import format_seconds

KNEE = 0.95  # this fraction of the most samples a second


def speeds_of(attempts: Sequence[Attempt], largest: int | None) -> tuple[list[Speed], list[str]]:
    """Every size that fits and has a known time, smallest first, and notes on the times."""
    usable = [
        a
        for a in attempts
        if a.outcome == "ok" and a.step_seconds and a.batch_size <= (largest or 0)
    ]
    measured, predicted = (
        {a.batch_size: a for a in usable if a.source == source}
        for source in ("measured", "predicted")
    )
    factor = _correction(measured, predicted)
    source = "predicted" if factor == 1.0 else "scaled"
    speeds = {size: _speed(a, source, a, factor) for size, a in predicted.items()}
    speeds |= {size: _speed(a, "measured", predicted.get(size, a)) for size, a in measured.items()}
    note = (
        f"times marked scaled are predicted times multiplied by {factor:.2f}, the ratio that was "
        "measured"
    )
    is_scaled = any(speed.source == "scaled" for speed in speeds.values())
    return [speeds[size] for size in sorted(speeds)], [note] if is_scaled else []


def _correction(measured: Mapping[int, Attempt], predicted: Mapping[int, Attempt]) -> float:
    """How many times longer than predicted the measured sizes took. Predicted times are scaled by
    it; else a measured size would look slow or fast beside them."""
    ratios = [
        (a.step_seconds or 0) / (predicted[size].step_seconds or 1)
        for size, a in measured.items()
        if size in predicted and not a.num_alloc_retries
    ]
    return statistics.median(ratios) if ratios else 1.0


def _speed(attempt: Attempt, source: str, predicted: Attempt, factor: float = 1.0) -> Speed:
    assert attempt.step_seconds is not None
    seconds = attempt.step_seconds * factor
    is_predicted = source == "predicted"
    return Speed(
        batch_size=attempt.batch_size,
        step_seconds=seconds,
        step_seconds_low=attempt.step_seconds_low if is_predicted else None,
        step_seconds_high=attempt.step_seconds_high if is_predicted else None,
        samples_per_second=attempt.batch_size / seconds,
        source=source,
        bound_by=predicted.bound_by,
        empties_cache=bool(attempt.num_alloc_retries),
    )


def comparable(speeds: Sequence[Speed]) -> list[Speed]:
    """The speeds without predicted ones where the allocator empties its cache: their time leaves
    out what that costs."""
    return [speed for speed in speeds if speed.source == "measured" or not speed.empties_cache]


def fastest(speeds: Sequence[Speed]) -> Choice | None:
    usable = comparable(speeds)
    if not usable:
        return None
    best = max(usable, key=lambda speed: speed.samples_per_second)
    which = "of the sizes timed" if len(usable) == len(speeds) else "without emptying the cache"
    return _choice(best, f"the most {which}")


def knee(speeds: Sequence[Speed], step: int = 1) -> Choice | None:
    """The smallest multiple of `step` that is fast enough. Times between two timed sizes are
    interpolated."""
    usable = comparable(speeds)
    if len(usable) < 2:
        return None
    enough = KNEE * max(speed.samples_per_second for speed in usable)
    index = next(i for i, speed in enumerate(usable) if speed.samples_per_second >= enough)
    found = _between(usable[index - 1], usable[index], enough, step) if index else usable[0]
    return _choice(found, f"the smallest batch with {100 * KNEE:.0f} % of the most samples/s")


def _between(low: Speed, high: Speed, enough: float, step: int) -> Speed:
    slope = (high.step_seconds - low.step_seconds) / (high.batch_size - low.batch_size)
    at_zero = low.step_seconds - slope * low.batch_size
    if enough * slope >= 1:
        return high
    # size / (at_zero + slope x size) >= enough
    size = math.ceil(enough * at_zero / (1 - enough * slope) / step) * step
    if not low.batch_size < size < high.batch_size:
        return high
    seconds = at_zero + slope * size
    return replace(
        high,
        batch_size=size,
        step_seconds=seconds,
        step_seconds_low=None,
        step_seconds_high=None,
        samples_per_second=size / seconds,
        source="interpolated",
    )


def _choice(speed: Speed, why: str) -> Choice:
    digits = ",.0f" if speed.samples_per_second >= 1e4 else ".4g"
    rate = f"{speed.samples_per_second:{digits}} samples/s"
    rate += f", {format_seconds(speed.step_seconds)} a step"
    return Choice(batch_size=speed.batch_size, reason=f"{rate}, {speed.source}: {why}")
