"""Which part of the timeline is build, forward, backward, optimizer, evaluation, saving."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from vramcast.records.phases import PhaseBand, PhaseName, StepBand, StepPart
from vramcast.tracing.trace import SimulatedRun
from vramcast.tracing.work import BACKWARD, FORWARD

# So many stretches can be told apart; of more, those of the first steps are kept.
MOST_STEP_BANDS = 400


def phase_bands(trace: SimulatedRun, segments: Sequence[PhaseName]) -> list[PhaseBand]:
    found: list[PhaseBand] = []
    for name, begin, end in _stretches(trace, segments):
        if found and found[-1].name == name:
            begin = found.pop().first_event
        found.append(PhaseBand(name=name, first_event=begin, last_event=end))
    return found


def step_bands(trace: SimulatedRun, segments: Sequence[PhaseName]) -> list[StepBand]:
    found: list[StepBand] = []
    if not len(trace.parts):
        return found
    for name, begin, end in _stretches(trace, segments):
        if name is not PhaseName.TRAIN or len(found) > MOST_STEP_BANDS:
            continue
        parts = _parts_of(trace, begin, end)
        changes = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(parts)]
        for first, last in zip(changes, changes[1:], strict=False):
            part = PARTS[int(parts[first])]
            found.append(StepBand(name=part, first_event=begin + first, last_event=begin + last))
    return found


PARTS = list(StepPart)


def _parts_of(trace: SimulatedRun, begin: int, end: int) -> NDArray[np.int64]:
    """Of each event of a training step: the index of its part. What is freed belongs to what was
    allocated before."""
    events = trace.events[begin:end]
    kinds = np.asarray(trace.parts)[np.maximum(events, 1) - 1]
    is_backward = (events > 0) & (kinds == BACKWARD)
    # What needs no gradients, such as a teacher or compiled code, is an update after gradients and
    # goes on with the forward pass before them.
    is_known = (events > 0) & (is_backward | (kinds == FORWARD))
    known = np.maximum.accumulate(np.where(is_known, np.arange(len(events)), -1))
    is_after = (known >= 0) & is_backward[known]
    parts = np.where(
        is_backward,
        PARTS.index(StepPart.BACKWARD),
        np.where((kinds == FORWARD) | ~is_after, 0, PARTS.index(StepPart.OPTIMIZER)),
    )
    last = np.maximum.accumulate(np.where(events > 0, np.arange(len(events)), -1))
    return np.where(last < 0, 0, parts[np.maximum(last, 0)])


def _stretches(
    trace: SimulatedRun, segments: Sequence[PhaseName]
) -> Iterator[tuple[PhaseName, int, int]]:
    bounds = [0, *np.flatnonzero(trace.events == 0).tolist(), len(trace.events)]
    return zip([PhaseName.BUILD, *segments], bounds, bounds[1:], strict=False)
