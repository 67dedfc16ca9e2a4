"""Why a run does not fit: the allocation that fails, and memory that grows from step to step."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vramcast.allocator.compiled import rounded_bytes
from vramcast.allocator.replay import EMPTY_CACHE, Replay, live_at, replay
from vramcast.forecast.budget import Budget
from vramcast.forecast.step_memory import step_around
from vramcast.records.prediction import FailedAllocation, LargeTensor, MemoryGrowth, PhaseName
from vramcast.tracing.trace import SimulatedRun

NUM_ALIVE = NUM_GROWING = 5
# Settings with which a run may fit that fails because of fragmentation.
OTHER_SETTINGS = ("expandable_segments:True", "max_split_size_mb:512")
# With these settings the allocator's model runs in Python: a second for 400,000 events.
MOST_EVENTS = 2_000_000
# Memory that grows by less than this in a step does not fill a GPU in a hundred thousand steps.
LEAST_GROWTH_BYTES = 1 << 16
Describe = Callable[[int], LargeTensor]
Numbers = NDArray[np.int64]


def failed_allocation(
    trace: SimulatedRun,
    budget: Budget,
    limited: Replay,
    shown: Replay,
    segments: Sequence[PhaseName],
    describe: Describe,
) -> FailedAllocation | None:
    """The first allocation that fails. `limited` is the replay within the run's budget, `shown` the
    replay with enough memory."""
    failed, capacity = limited.out_of_memory, budget.capacity_bytes
    if failed is None or capacity is None:
        return None
    index = len(limited.allocated_bytes)
    number = int(trace.events[index])
    _, _, phase = step_around(trace.events, index, segments)
    alive = np.array(live_at(trace.events, index - 1), np.int64)
    # Ranked by the bytes that were asked for, not by those of their blocks.
    largest = alive[np.argsort(-trace.sizes[alive - 1], kind="stable")][:NUM_ALIVE].tolist()
    return FailedAllocation(
        tensor=describe(number),
        phase=phase,
        # Only training steps have parts; elsewhere the recorded part is that of the step before.
        during="" if phase in tuple(PhaseName) else trace.allocation(number).phase,
        free_bytes=max(0, capacity - failed.reserved_bytes),
        fragmented_bytes=max(0, failed.reserved_bytes - failed.allocated_bytes),
        alive_bytes=_by_category(trace, alive, shown.block_bytes),
        largest_alive=[describe(each) for each in largest],
        settings_that_fit=_settings_that_fit(trace, budget),
        event=index,
    )


def _by_category(trace: SimulatedRun, alive: Numbers, block_bytes: Numbers) -> dict[str, int]:
    codes, sizes = trace.categories.codes[alive - 1], block_bytes[alive - 1]
    found = {
        word: int(sizes[codes == code].sum()) for code, word in enumerate(trace.categories.words)
    }
    return dict(sorted(((k, v) for k, v in found.items() if v), key=lambda item: -item[1]))


def _settings_that_fit(trace: SimulatedRun, budget: Budget) -> list[str]:
    if len(trace.events) > MOST_EVENTS:
        return []
    found = []
    for setting in OTHER_SETTINGS:
        name = setting.partition(":")[0]
        if name in budget.settings_text:
            continue
        text = ",".join(filter(None, (budget.settings_text, setting)))
        other = replay(
            trace.events,
            trace.sizes,
            budget.with_settings(text).settings,
            budget.capacity_bytes,
            **trace.circumstances(),
        )
        if other.fits:
            found.append(setting)
    return found


def _grown(step: NDArray[np.int64], sizes: NDArray[np.int64]) -> int:
    made, freed = step[step > 0], -step[(step < 0) & (step != EMPTY_CACHE)]
    return int(sizes[made - 1].sum() - sizes[freed - 1].sum())


def memory_growth(
    trace: SimulatedRun,
    shown: Replay,
    capacity_bytes: int | None,
    segments: Sequence[PhaseName],
    describe: Describe,
) -> MemoryGrowth | None:
    """The memory that every step leaves behind. The first step does not count, because it makes the
    optimizer's state."""
    marks = np.flatnonzero(trace.events == 0)
    starts = [mark for mark, name in zip(marks, segments, strict=False) if name is PhaseName.TRAIN]
    if len(starts) < 4:
        return None
    # Requested bytes, because block sizes differ from step to step.
    sizes = rounded_bytes(trace.sizes)
    grown = min(_grown(trace.events[begin:end], sizes) for begin, end in pairwise(starts[1:]))
    if grown < LEAST_GROWTH_BYTES:
        return None
    # Made in the last step but one, and still there at the end. Not the second step: it may replace
    # things once, as DistributedDataParallel replaces its buckets.
    step = trace.events[starts[-2] : starts[-1]]
    left = np.intersect1d(step[step > 0], live_at(trace.events, len(trace.events) - 1))
    if not len(left):
        return None
    order = np.argsort(-sizes[left - 1], kind="stable")
    num_steps = None
    if capacity_bytes is not None and shown.peak_reserved_bytes <= capacity_bytes:
        num_steps = len(starts) + max(0, (capacity_bytes - shown.peak_reserved_bytes) // grown)
    return MemoryGrowth(
        bytes_per_step=grown,
        num_tensors_per_step=len(left),
        tensors=[describe(int(each)) for each in left[order][:NUM_GROWING]],
        num_steps_that_fit=num_steps,
    )
