"""Samples a second by batch size: the fastest, and the knee, above which more hardly helps."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from vramcast.records.max_batch import Choice, Speed
from vramcast.records.prediction import Attempt
from vramcast.units import format_seconds

KNEE = 0.95  # of the most samples a second


def speeds_of(attempts: Sequence[Attempt], largest: int | None) -> list[Speed]:
    """Of every size that fits and whose time is known, smallest first; measured where possible."""
    timed = [
        a
        for a in attempts
        if a.outcome == "ok" and a.step_seconds and largest is not None and a.batch_size <= largest
    ]
    measured = {a.batch_size: a for a in timed if a.source == "measured"}
    predicted = {a.batch_size: a for a in timed if a.source == "predicted"}
    factor = correction(measured, predicted)
    found = {
        size: _speed(a, factor, "predicted" if factor == 1.0 else "scaled")
        for size, a in predicted.items()
    }
    found |= {size: _speed(a, 1.0, "measured", predicted.get(size)) for size, a in measured.items()}
    return [found[size] for size in sorted(found)]


def correction(measured: dict[int, Attempt], predicted: dict[int, Attempt]) -> float:
    """How much longer measured sizes took than predicted.

    Without it, one measured size among predicted ones would look slow or fast.
    """
    both = [
        (a.step_seconds, predicted[size].step_seconds)
        for size, a in measured.items()
        if size in predicted and not a.num_alloc_retries
    ]
    return (
        statistics.median(real / guess for real, guess in both if real and guess) if both else 1.0
    )


def _speed(attempt: Attempt, factor: float, source: str, predicted: Attempt | None = None) -> Speed:
    assert attempt.step_seconds is not None
    seconds = attempt.step_seconds * factor
    return Speed(
        batch_size=attempt.batch_size,
        step_seconds=seconds,
        samples_per_second=attempt.batch_size / seconds,
        source=source,
        bound_by=attempt.bound_by or (predicted.bound_by if predicted else ""),
        empties_cache=bool(attempt.num_alloc_retries),
    )


def comparable(speeds: Sequence[Speed]) -> list[Speed]:
    """Without sizes whose time leaves out what emptying the allocator's cache costs."""
    return [speed for speed in speeds if speed.source == "measured" or not speed.empties_cache]


def fastest(speeds: Sequence[Speed]) -> Choice | None:
    best = max(comparable(speeds), key=lambda speed: speed.samples_per_second, default=None)
    emptied = any(speed not in comparable(speeds) for speed in speeds)
    which = "the most without emptying the cache" if emptied else "the most of the sizes timed"
    return _choice(best, which) if best is not None else None


def knee(speeds: Sequence[Speed], step: int = 1) -> Choice | None:
    """The smallest multiple of `step` that is fast enough.

    Between two sizes that were timed, the time of a step is taken as a straight line.
    """
    usable = comparable(speeds)
    if len(usable) < 2:
        return None
    enough = KNEE * max(speed.samples_per_second for speed in usable)
    index = next(i for i, speed in enumerate(usable) if speed.samples_per_second >= enough)
    found = (
        usable[index] if index == 0 else _between(usable[index - 1], usable[index], enough, step)
    )
    return _choice(found, f"the smallest with {100 * KNEE:.0f} % of the most")


def _between(low: Speed, high: Speed, enough: float, step: int) -> Speed:
    slope = (high.step_seconds - low.step_seconds) / (high.batch_size - low.batch_size)
    # size / (seconds at low + slope x (size - low)) >= enough
    least = (
        enough * (low.step_seconds - slope * low.batch_size) / (1 - enough * slope)
        if enough * slope < 1
        else float(high.batch_size)
    )
    size = -int(-least // step) * step
    if not low.batch_size < size < high.batch_size:
        return high
    seconds = low.step_seconds + slope * (size - low.batch_size)
    return replace(
        high,
        batch_size=size,
        step_seconds=seconds,
        samples_per_second=size / seconds,
        source="interpolated",
    )


def _choice(speed: Speed, why: str) -> Choice:
    rate = f"{speed.samples_per_second:.4g} samples/s, {format_seconds(speed.step_seconds)} a step"
    return Choice(batch_size=speed.batch_size, reason=f"{rate}, {speed.source}: {why}")


def scaling_notes(attempts: Sequence[Attempt], speeds: Sequence[Speed]) -> list[str]:
    scaled = next((speed for speed in speeds if speed.source == "scaled"), None)
    if scaled is None:
        return []
    predicted = next(
        a.step_seconds
        for a in attempts
        if a.batch_size == scaled.batch_size and a.source == "predicted" and a.step_seconds
    )
    factor = f"{scaled.step_seconds / predicted:.2f}"
    return [f"times marked scaled are predicted ones times {factor}, as sizes that were run took"]
