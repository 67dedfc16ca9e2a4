"""Loss curves in a line of text each: how fast models learn, by step and by time, side by side."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import accumulate

from vramcast.records.bench import TrainedRun
from vramcast.reporting.blocks import block

WIDTH = 32


def pieces(run: TrainedRun, by: str, until: float, width: int = WIDTH) -> list[float | None]:
    """The mean loss in each of `width` equal pieces from zero to `until`; `by` is "step" or "time". None where there is none."""
    places = (
        list(accumulate(run.step_seconds)) if by == "time" else list(range(1, len(run.losses) + 1))
    )
    found: list[list[float]] = [[] for _ in range(width)]
    for place, loss in zip(places, run.losses, strict=False):
        if loss is not None and math.isfinite(loss):
            found[min(width - 1, math.ceil(width * place / until) - 1)].append(loss)
    return [statistics.fmean(values) if values else None for values in found]


def curves(runs: Sequence[TrainedRun], by: str, width: int = WIDTH) -> tuple[list[str], str]:
    """A line for every run, all on one scale, and the scale in words.

    By logarithm, and the first eighth may be above the scale: what is gained late counts too.
    """
    ends = [sum(run.step_seconds) if by == "time" else float(len(run.losses)) for run in runs]
    until = max(ends, default=0.0)
    if until <= 0:
        return ["" for _ in runs], ""
    means = [pieces(run, by, until, width) for run in runs]
    later = [
        value for line in means for value in line[width // 8 :] if value is not None and value > 0
    ]
    if not later:
        return ["" for _ in runs], ""
    low, high = math.log(min(later)), math.log(max(later))
    lines = ["".join(_bar(value, low, high) for value in _filled(line)) for line in means]
    return lines, f"{max(later):.2f} or more to {min(later):.2f}"


def _filled(values: Sequence[float | None]) -> list[float | None]:
    """A piece shorter than a step has the loss of the step that it lies in; what comes after the last step is left empty."""
    filled = list(values)
    for i in reversed(range(len(filled) - 1)):
        if filled[i] is None:
            filled[i] = filled[i + 1]
    return filled


def _bar(value: float | None, low: float, high: float) -> str:
    if value is None or value <= 0:
        return " "
    return block((math.log(value) - low) / (high - low) if high > low else 0.0)
