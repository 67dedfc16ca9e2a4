"""Repeats a long step that did the same as the step before, instead of running more steps."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vramcast.allocator.replay import EMPTY_CACHE
from vramcast.tracing.trace import HELD, in_canonical_order
from vramcast.tracing.work import BACKWARD, UPDATE

Numbers = NDArray[np.int64]
# Operators of a step. Shorter ones take less than a second, so they are all run.
LONG_STEP = 50_000
NOTHING = np.empty(0, np.int64)
COMPARED = ["num_bytes", "operator_name", "stream"]


def does_the_same(
    events: Numbers, allocations: NDArray[Any], works: NDArray[Any], bounds: Sequence[int]
) -> bool:
    """Whether the last two steps allocate, free and compute the same, in the same order. `bounds`
    says where the steps begin and end in `works`."""
    before, last = (works[begin:end] for begin, end in zip(bounds[-3:], bounds[-2:], strict=False))
    # the mark of the last step ends the one before
    if not np.array_equal(before[:-1].view(np.uint64), last.view(np.uint64)):
        return False
    # gradients accumulate, and a later step will update
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


def made_by_first_alone(
    events: Numbers, allocations: NDArray[Any], works: NDArray[Any], bounds: Sequence[int]
) -> Numbers | None:
    """The numbers of the allocations that only the first of two steps made and kept, such as an
    optimizer's state. None where the steps differ in anything else."""
    marks = np.flatnonzero(events == 0).tolist()
    if len(bounds) != 3 or len(marks) != 2 or BACKWARD not in works["phase"][bounds[1] :]:
        return None
    if not _lacks_only_updates(works[bounds[0] : bounds[1] - 1], works[bounds[1] :]):
        return None
    one, two = (
        in_canonical_order(part) for part in (events[: marks[1]][marks[0] :], events[marks[1] :])
    )
    first, second = (1 + int((events[:mark] > 0).sum()) for mark in marks)
    freed, freed_later = (-part[_is_free(part)] for part in (one, two))
    if min(freed.min(initial=first), freed_later.min(initial=first)) < first:
        return None
    if max(freed.max(initial=0), freed_later.max(initial=0)) >= -HELD:
        return None
    is_freed = np.zeros(len(allocations) + 1, bool)
    is_freed[freed] = is_freed[freed_later] = True
    kept = first + np.flatnonzero(~is_freed[first:second])
    again = _moved(two[~_is_free(two) | (-two >= second)], 1 - second)
    without = one[(one <= 0) | is_freed[np.maximum(one, 0)]]
    shifts = np.searchsorted(kept, np.abs(without)) + first - 1
    is_tensor = (without > 0) | _is_free(without)
    without = np.where(is_tensor, without - np.sign(without) * shifts, without)
    if not np.array_equal(in_canonical_order(without), in_canonical_order(again)):
        return None
    left, later = (
        allocations[first - 1 : second - 1][is_freed[first:second]],
        allocations[second - 1 :],
    )
    return kept if all(np.array_equal(left[name], later[name]) for name in COMPARED) else None


def _lacks_only_updates(first: NDArray[Any], second: NDArray[Any]) -> bool:
    """Whether the second step is the first without one contiguous part of its update."""
    num_more = len(first) - len(second)
    if num_more < 0 or UPDATE not in second["phase"]:
        return False
    differs = np.append(_rows(first[: len(second)]) != _rows(second), True)
    start = int(differs.argmax())
    more, after = first[start : start + num_more], first[start + num_more :]
    return bool((more["phase"] == UPDATE).all()) and after.tobytes() == second[start:].tobytes()


def _rows(works: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(works).view(f"V{works.itemsize}")


def _is_free(step: Numbers) -> NDArray[np.bool_]:
    return (step < 0) & (step != EMPTY_CACHE)


def _relative(events: Numbers, before: int, mark: int) -> tuple[Numbers, Numbers] | None:
    """The events of the last step, which begins at `mark`, numbered so that they can be compared,
    and the allocations of the step `before` that it frees. Its own allocations are counted from its
    first; frees of the step before are HELD. None where it frees older allocations, or one that
    another stream may use."""
    step = in_canonical_order(events[mark:])
    first_before, first = (1 + int((events[:begin] > 0).sum()) for begin in (before, mark))
    is_free = _is_free(step)
    if (-step[is_free] < first_before).any() or (step[is_free] <= HELD).any():
        return None
    is_older = is_free & (-step < first)
    return np.where(is_older, HELD, _moved(step, 1 - first)), -step[is_older]


def _moved(step: Numbers, by: int) -> Numbers:
    is_tensor = (step != 0) & (step != EMPTY_CACHE)
    return np.where(is_tensor, step + by * np.sign(step), step)


def with_repetitions(
    events: Numbers, num_repetitions: int, made_once: Numbers = NOTHING
) -> Numbers:
    """The events with the last step repeated, each time with allocations of its own. `made_once`
    are allocations of the step before it that are not made again."""
    last, num_made = _last_step(events)
    if len(made_once):
        first = 1 + int((events > 0).sum()) - num_made
        is_older = _is_free(last) & (-last < first)
        num_later = len(made_once) - np.searchsorted(made_once, np.abs(last))
        last = np.where(is_older, last - num_later, last)
    more = [_moved(last, num_made * number) for number in range(1, num_repetitions + 1)]
    return np.concatenate([events, *more])


class Originals(NamedTuple):
    """Maps allocations of `with_repetitions` to those that were recorded."""

    num_recorded: int
    num_last: int
    num_repetitions: int

    def each(self, values: NDArray[Any]) -> NDArray[Any]:
        """The values of all allocations, from the values of those that were recorded."""
        own = values[self.num_recorded - self.num_last :]
        return np.concatenate([values, *[own] * self.num_repetitions])

    def number(self, repeated: int) -> int:
        further = max(repeated - self.num_recorded, 0)
        return self.num_recorded - -further % self.num_last if further else repeated


def originals(events: Numbers, num_allocations: int, num_repetitions: int) -> Originals:
    return Originals(num_allocations, _last_step(events)[1], num_repetitions)


def _last_step(events: Numbers) -> tuple[Numbers, int]:
    """The events of the last step, and how many allocations it makes."""
    marks = np.flatnonzero(events == 0)
    last = events[int(marks[-1]) if len(marks) else 0 :]
    return last, int((last > 0).sum())
