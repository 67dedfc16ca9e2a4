"""Memory through the step in which the peak lies: few enough points to draw, each with what
happened there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate

from vramcast.allocator.replay import EMPTY_CACHE
from vramcast.downsampling import downsample
from vramcast.records.prediction import AliveGroup, LargeTensor, StepMemory

MOST_POINTS = 240
MOST_GROUPS = 80
# Only so many of the tensors alive are looked up: the small ones take long and hold little memory.
MOST_LOOKED_UP = 4000
Describe = Callable[[int], LargeTensor]


def step_memory(
    events: Sequence[int],
    block_bytes: Sequence[int],
    categories: Sequence[str],
    describe: Describe,
    reserved_bytes: Sequence[int] | None = None,
) -> StepMemory:
    """The step in which most is allocated. `reserved_bytes` is after every event, where known."""
    changes = [_change_bytes(event, block_bytes) for event in events]
    allocated_bytes = list(accumulate(changes))
    peak = allocated_bytes.index(max(allocated_bytes))
    begin, end, phase = _step_around(events, peak)
    kept = [
        begin + index
        for index in downsample(allocated_bytes[begin:end], MOST_POINTS, [peak - begin])
    ]
    totals = {"allocated": allocated_bytes}
    if reserved_bytes is not None:
        totals["reserved"] = list(reserved_bytes)
    names = sorted(set(categories))
    by_category = _by_category(events, changes, categories, names, kept)
    tensors: dict[int, int] = {}
    return StepMemory(
        phase=phase,
        num_events=end - begin,
        columns=["event", *totals, *names],
        points=[
            [moment - begin, *(total[moment] for total in totals.values()), *parts]
            for moment, parts in zip(kept, by_category, strict=True)
        ],
        peak_point=kept.index(peak),
        changes=[_tensor_change(events[moment], tensors) for moment in kept],
        tensors=[describe(number) for number in tensors],
    )


def phase_of(events: Sequence[int], event_index: int) -> str:
    """'build', 'step 1', ..."""
    return _step_around(events, event_index)[2]


def _step_around(events: Sequence[int], event_index: int) -> tuple[int, int, str]:
    """(its first event, the one after its last, its name)."""
    starts = [index for index, event in enumerate(events) if event == 0]
    number = sum(start <= event_index for start in starts)
    bounds = [0, *starts, len(events)]
    return bounds[number], bounds[number + 1], f"step {number}" if number else "build"


def _change_bytes(event: int, block_bytes: Sequence[int]) -> int:
    if event in (0, EMPTY_CACHE):
        return 0
    return block_bytes[event - 1] if event > 0 else -block_bytes[-event - 1]


def _by_category(
    events: Sequence[int],
    changes: Sequence[int],
    categories: Sequence[str],
    names: Sequence[str],
    moments: Sequence[int],
) -> list[list[int]]:
    """Bytes of each category after some events, in their order."""
    totals = dict.fromkeys(names, 0)
    found, begin = [], 0
    for moment in moments:
        for index in range(begin, moment + 1):
            if changes[index]:
                totals[categories[abs(events[index]) - 1]] += changes[index]
        found.append(list(totals.values()))
        begin = moment + 1
    return found


def _tensor_change(event: int, tensors: dict[int, int]) -> list[int]:
    """What the event did; every tensor that is mentioned gets the next number in `tensors`."""
    if event in (0, EMPTY_CACHE):
        return []
    return [tensors.setdefault(abs(event), len(tensors)), int(event > 0)]


def alive_groups(
    alive: Sequence[int],
    block_bytes: Sequence[int],
    categories: Sequence[str],
    describe: Describe,
) -> list[AliveGroup]:
    """By category and module, largest first, with modules as detailed as MOST_GROUPS allows."""
    ranked = sorted(alive, key=lambda number: -block_bytes[number - 1])
    modules = [_module(describe(number)) for number in ranked[:MOST_LOOKED_UP]]
    modules += [""] * (len(ranked) - len(modules))
    deepest = max((module.count(".") + 1 for module in modules), default=1)
    for depth in range(deepest, -1, -1):
        keys = [
            (categories[number - 1], ".".join(module.split(".")[:depth]))
            for number, module in zip(ranked, modules, strict=True)
        ]
        counts = Counter(keys)
        if len(counts) <= MOST_GROUPS:
            break
    num_bytes: Counter[tuple[str, str]] = Counter()
    for key, number in zip(keys, ranked, strict=True):
        num_bytes[key] += block_bytes[number - 1]
    return [
        AliveGroup(category=key[0], module=key[1], num_bytes=size, num_tensors=counts[key])
        for key, size in num_bytes.most_common()
    ]


def _module(tensor: LargeTensor) -> str:
    """The module that owns a parameter, its gradient or its state; else the one that was
    running."""
    owner = tensor.name.partition(" ")[0].rpartition(".")[0]
    return owner or tensor.module
