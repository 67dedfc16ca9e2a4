"""A long step that does what the step before did stands for those that would come after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vramcast.allocator.replay import EMPTY_CACHE
from vramcast.tracing.trace import HELD, in_canonical_order
from vramcast.tracing.work import BACKWARD, UPDATE

Numbers = NDArray[np.int64]
# Operators. Shorter steps take less than a second: all of them run.
LONG_STEP = 50_000
COMPARED = ["num_bytes", "operator_name", "stream"]


def does_the_same(
    events: Numbers, allocations: NDArray[Any], works: NDArray[Any], bounds: Sequence[int]
) -> bool:
    """Whether the last two steps allocate, free and compute the same, in the same order. `bounds`
    are those of the steps in `works`."""
    before, last = (works[begin:end] for begin, end in zip(bounds[-3:], bounds[-2:], strict=False))
    # the mark of the last step ends the one before
    if before[:-1].tobytes() != last.tobytes():
        return False
    # gradients accumulate: a later step will update
    if BACKWARD in last["phase"] and UPDATE not in last["phase"]:
        return False
    *earlier, mark_before, mark = np.flatnonzero(events == 0).tolist()
    first = _relative(events[:mark], earlier[-1] if earlier else 0, mark_before)
    second = _relative(events, mark_before, mark)
    if first is None or second is None or not np.array_equal(first[0], second[0]):
        return False
    num_made = int((events[mark:] > 0).sum())
    made = allocations[len(allocations) - 2 * num_made :][COMPARED]
    freed, freed_again = (allocations[step[1] - 1][COMPARED] for step in (first, second))
    same = np.array_equal(made[:num_made], made[num_made:])
    return same and np.array_equal(freed, freed_again)


def _relative(events: Numbers, before: int, mark: int) -> tuple[Numbers, Numbers] | None:
    """The events of the last step, which begins at `mark`, and the allocations of the step `before`
    that it frees. In the events these are HELD, and its own allocations are counted from its first.
    None where it frees older ones, or one that another stream may use."""
    step = in_canonical_order(events[mark:])
    first_before, first = (1 + int((events[:begin] > 0).sum()) for begin in (before, mark))
    is_free = (step < 0) & (step != EMPTY_CACHE)
    if (-step[is_free] < first_before).any() or (step[is_free] <= HELD).any():
        return None
    is_older = is_free & (-step < first)
    return np.where(is_older, HELD, _moved(step, 1 - first)), -step[is_older]


def _moved(step: Numbers, by: int) -> Numbers:
    is_tensor = (step != 0) & (step != EMPTY_CACHE)
    return np.where(is_tensor, step + by * np.sign(step), step)


def with_repetitions(events: Numbers, num_repetitions: int) -> Numbers:
    """The last step so many times more, each with allocations of its own."""
    last, num_made = _last_step(events)
    more = [_moved(last, num_made * number) for number in range(1, num_repetitions + 1)]
    return np.concatenate([events, *more])


def originals(events: Numbers, num_allocations: int, num_repetitions: int) -> Numbers:
    """The index of the allocation that each one of `with_repetitions` repeats, or is."""
    recorded = np.arange(num_allocations)
    own = recorded[num_allocations - _last_step(events)[1] :]
    return np.concatenate([recorded, *[own] * num_repetitions])


def _last_step(events: Numbers) -> tuple[Numbers, int]:
    """Its events, and how many allocations it makes."""
    marks = np.flatnonzero(events == 0)
    last = events[int(marks[-1]) if len(marks) else 0 :]
    return last, int((last > 0).sum())
