"""The large allocations of a step, each with the events at which it was made and freed."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vramcast.downsampling import downsample
from vramcast.tracing.trace import Labels, bytes_by_event, made_and_freed

# With so many, the page stays small, and each can still be pointed at.
MOST_BY_AREA = 300
MOST_AT_PEAK = 150
MOST_BY_SIZE = 40
MOST_REST_POINTS = 240
Numbers = NDArray[np.signedinteger]


class Lives(NamedTuple):
    """When chosen allocations were made and freed, as events of the whole run, in the order in
    which they were made."""

    numbers: list[int]  # from 1
    made: list[int]
    freed: list[int | None]  # None: never
    # By category, the bytes of all allocations that were not chosen. "event" counts from the step's
    # beginning.
    rest: dict[str, list[int]]


def large_allocations(
    events: Numbers, block_bytes: Numbers, categories: Labels, step: tuple[int, int], peak: int
) -> Lives:
    """The allocations with the most bytes times events alive in the step, the largest at its peak,
    and the largest of the whole step."""
    begin, end = step
    num_made = int(events[:end].max(initial=0))
    made, freed = made_and_freed(events[:end], num_made)
    alive_events = freed - np.maximum(made, begin)
    alive = np.flatnonzero(alive_events > 0)
    sizes = block_bytes[alive]
    at_peak = np.where((made[alive] <= peak) & (freed[alive] > peak), sizes, 0)
    chosen = {
        *_largest(alive, alive_events[alive] * sizes, MOST_BY_AREA),
        *_largest(alive, at_peak, MOST_AT_PEAK),
        *_largest(alive, sizes, MOST_BY_SIZE),
    }
    ordered = sorted(chosen, key=lambda index: (made[index], index))
    later = _freed_from(events, end, [index + 1 for index in ordered if freed[index] == end])
    return Lives(
        numbers=[index + 1 for index in ordered],
        made=[int(made[index]) for index in ordered],
        freed=[later.get(i + 1) if freed[i] == end else int(freed[i]) for i in ordered],
        rest=_rest(events, block_bytes, categories, ordered, step, peak),
    )


def _freed_from(events: Numbers, begin: int, numbers: list[int]) -> dict[int, int]:
    """For each of these allocations that is freed from `begin` on: the event that frees it."""
    wanted = -np.array(numbers or [1], int)
    near = begin + np.flatnonzero((events[begin:] < 0) & (events[begin:] >= wanted.min()))
    places = near[np.isin(events[near], wanted)]
    return dict(zip((-events[places]).tolist(), places.tolist(), strict=True))


def _largest(numbers: Numbers, values: Numbers, most: int) -> list[int]:
    ranked = np.argsort(-values, kind="stable")[:most]
    found: list[int] = numbers[ranked[values[ranked] > 0]].tolist()
    return found


def _rest(
    events: Numbers,
    block_bytes: Numbers,
    categories: Labels,
    chosen: Sequence[int],
    step: tuple[int, int],
    peak: int,
) -> dict[str, list[int]]:
    others = block_bytes.copy()
    others[np.array(chosen, int)] = 0
    begin, end = step

    def through_step(sizes: Numbers) -> Numbers:
        return bytes_by_event(events[:end], sizes).cumsum()[begin:]

    together = through_step(others)
    kept = downsample(together, MOST_REST_POINTS, [peak - begin])
    columns = {"event": kept}
    codes = Labels(categories.codes[others > 0], categories.words).used()
    for code in codes:
        own = together
        if len(codes) > 1:
            own = through_step(np.where(categories.codes == code, others, 0))
        if (points := own[kept]).any():
            columns[categories.words[code]] = points.tolist()
    return columns
