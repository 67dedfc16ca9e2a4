"""Which part of the timeline is build, forward, backward, optimizer, evaluation, saving."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from vramcast.records.phases import PhaseBand, PhaseName, StepBand, StepPart
from vramcast.tracing.trace import SimulatedRun
from vramcast.tracing.work import BACKWARD, FORWARD

# More bands could not be told apart in a chart; only those of the first steps are kept.
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
        made = begin + np.flatnonzero(trace.events[begin:end] > 0)
        # a free belongs to the same part as the allocation before it
        parts = _parts_of(np.asarray(trace.parts)[trace.events[made] - 1])
        changes = np.flatnonzero(np.diff(parts, prepend=0))
        names = [PARTS[0], *(PARTS[part] for part in parts[changes].tolist())]
        bounds = [begin, *made[changes].tolist(), end]
        for part, first, last in zip(names, bounds, bounds[1:], strict=False):
            if first < last:
                found.append(StepBand(name=part, first_event=first, last_event=last))
    return found


PARTS = list(StepPart)


def _parts_of(kinds: NDArray[np.int32]) -> NDArray[np.int64]:
    """For each allocation of a training step, the index of its part."""
    is_backward, is_forward = kinds == BACKWARD, kinds == FORWARD
    # Work without gradients, such as a teacher or compiled code, counts as the update if it comes
    # after the backward pass, and as the forward pass before.
    known = np.maximum.accumulate(np.where(is_backward | is_forward, np.arange(len(kinds)), -1))
    is_after = (known >= 0) & is_backward[known]
    backward, update = PARTS.index(StepPart.BACKWARD), PARTS.index(StepPart.OPTIMIZER)
    return np.where(is_backward, backward, np.where(is_forward | ~is_after, 0, update))


def _stretches(
    trace: SimulatedRun, segments: Sequence[PhaseName]
) -> Iterator[tuple[PhaseName, int, int]]:
    bounds = [0, *np.flatnonzero(trace.events == 0).tolist(), len(trace.events)]
    return zip([PhaseName.BUILD, *segments], bounds, bounds[1:], strict=False)
