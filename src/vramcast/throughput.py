"""Samples a second against the batch size: the fastest size, and the knee from which on a larger one hardly helps. No torch."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from vramcast.batch_records import Attempt, Choice, Speed
from vramcast.units import format_seconds

KNEE = 0.95  # of the most samples a second


def speeds_of(attempts: Sequence[Attempt], largest: int | None) -> list[Speed]:
    """Of every size that fits and whose time is known, smallest first. A measured time counts more than a predicted one."""
    timed = [a for a in attempts if a.outcome == "ok" and a.step_seconds and largest is not None and a.batch_size <= largest]
    measured = {a.batch_size: a for a in timed if a.source == "measured"}
    predicted = {a.batch_size: a for a in timed if a.source == "predicted"}
    factor = correction(measured, predicted)
    found = {size: _speed(a, factor, "predicted" if factor == 1.0 else "scaled") for size, a in predicted.items()}
    found |= {size: _speed(a, 1.0, "measured", predicted.get(size)) for size, a in measured.items()}
    return [found[size] for size in sorted(found)]


def correction(measured: dict[int, Attempt], predicted: dict[int, Attempt]) -> float:
    """How much longer measured sizes took than predicted: without it, one measured among predicted ones would look slow or fast."""
    both = [(a.step_seconds, predicted[size].step_seconds) for size, a in measured.items() if size in predicted and not a.num_alloc_retries]
    return statistics.median(real / guess for real, guess in both if real and guess) if both else 1.0


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
    return _choice(best, "the most of the sizes timed") if best is not None else None


def knee(speeds: Sequence[Speed]) -> Choice | None:
    """Where it lies between the sizes timed is not known: the smallest of them that is fast enough."""
    usable = comparable(speeds)
    most = max((speed.samples_per_second for speed in usable), default=0.0)
    first = next((speed for speed in usable if speed.samples_per_second >= KNEE * most), None)
    return _choice(first, f"{100 * first.samples_per_second / most:.0f} % of the most") if first is not None and len(usable) > 1 else None


def _choice(speed: Speed, why: str) -> Choice:
    rate = f"{speed.samples_per_second:.4g} samples/s, {format_seconds(speed.step_seconds)} a step"
    return Choice(batch_size=speed.batch_size, reason=f"{rate}, {speed.source}: {why}")


def scaling_notes(attempts: Sequence[Attempt], speeds: Sequence[Speed]) -> list[str]:
    scaled = next((speed for speed in speeds if speed.source == "scaled"), None)
    if scaled is None:
        return []
    predicted = next(a.step_seconds for a in attempts if a.batch_size == scaled.batch_size and a.source == "predicted" and a.step_seconds)
    return [f"times marked scaled are predicted ones times {scaled.step_seconds / predicted:.2f}, as sizes that were run took"]
