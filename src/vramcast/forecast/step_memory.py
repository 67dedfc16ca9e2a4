"""Memory through the step in which the peak lies: few enough points to draw, each with what happened there. No torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

from vramcast.allocator.replay import EMPTY_CACHE
from vramcast.records.prediction import AliveGroup, LargeTensor, StepMemory

MOST_POINTS = 240
MOST_GROUPS = 80
LOOKED_AT = 4000  # of the tensors alive, the largest: the many small ones take long to look up and little memory
BLOCK_BYTES = 512  # what the allocator rounds to
History = Sequence[tuple[int, int, int]]  # (event index, allocated bytes, reserved bytes)


def rounded(num_bytes: int) -> int:
    return max(BLOCK_BYTES, -(-num_bytes // BLOCK_BYTES) * BLOCK_BYTES)


def step_memory(
    events: Sequence[int],
    sizes: Sequence[int],
    categories: Sequence[str],
    describe: Callable[[int], LargeTensor],
    *,
    peak_event: int,
    history: History | None = None,
) -> StepMemory:
    """Of the step with this event. Without a history, what is allocated is the sum of what the tensors take, and nothing is said of
    what is reserved."""
    begin, end, phase = _step_around(events, peak_event)
    allocated = (
        [point[1] for point in history[begin:end]]
        if history is not None
        else _sums(events[:end], sizes)[begin:]
    )
    kept = _kept(allocated, peak_event - begin)
    names = sorted(set(categories))
    points = [
        [
            index,
            allocated[index],
            *(history[begin + index][2:] if history is not None else ()),
            *by_category,
        ]
        for index, by_category in zip(
            kept,
            _by_category(events, sizes, categories, names, [begin + index for index in kept]),
            strict=True,
        )
    ]
    tensors: dict[int, int] = {}
    return StepMemory(
        phase=phase,
        num_events=end - begin,
        columns=["event", "allocated", *(["reserved"] if history is not None else []), *names],
        points=points,
        peak_point=kept.index(peak_event - begin),
        changes=[_change(events[begin + index], tensors) for index in kept],
        tensors=[describe(number) for number in tensors],
    )


def _sums(events: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """What is allocated after every event."""
    total, found = 0, []
    for event in events:
        if event not in (0, EMPTY_CACHE):
            total += rounded(sizes[event - 1]) if event > 0 else -rounded(sizes[-event - 1])
        found.append(total)
    return found


def _by_category(
    events: Sequence[int],
    sizes: Sequence[int],
    categories: Sequence[str],
    names: Sequence[str],
    moments: Sequence[int],
) -> list[list[int]]:
    """Bytes of each category after some events, in their order."""
    place = {name: index for index, name in enumerate(names)}
    sums, found, begin = [0] * len(names), [], 0
    for moment in moments:
        for event in events[begin : moment + 1]:
            if event not in (0, EMPTY_CACHE):
                number = abs(event) - 1
                sums[place[categories[number]]] += (
                    rounded(sizes[number]) if event > 0 else -rounded(sizes[number])
                )
        found.append(list(sums))
        begin = moment + 1
    return found


def _step_around(events: Sequence[int], peak_event: int) -> tuple[int, int, str]:
    """(its first event, the one after its last, its name)."""
    starts = [index for index, event in enumerate(events) if event == 0]
    number = sum(start <= peak_event for start in starts)
    bounds = [0, *starts, len(events)]
    return bounds[number], bounds[number + 1], f"step {number}" if number else "build"


def _kept(allocated: Sequence[int], peak: int) -> list[int]:
    """Of every stretch the highest and the lowest; the ends, and the peak."""
    if len(allocated) <= MOST_POINTS:
        return list(range(len(allocated)))
    num_stretches = (MOST_POINTS - 3) // 2
    bounds = [len(allocated) * index // num_stretches for index in range(num_stretches + 1)]
    kept = {0, len(allocated) - 1, peak}
    for begin, end in pairwise(bounds):
        kept |= {
            max(range(begin, end), key=allocated.__getitem__),
            min(range(begin, end), key=allocated.__getitem__),
        }
    return sorted(kept)


def _change(event: int, tensors: dict[int, int]) -> list[int]:
    """What the event did; `tensors` gives every tensor that is spoken of a number."""
    if event in (0, EMPTY_CACHE):
        return []
    return [tensors.setdefault(abs(event), len(tensors)), int(event > 0)]


def alive_groups(
    alive: Sequence[int],
    sizes: Sequence[int],
    categories: Sequence[str],
    describe: Callable[[int], LargeTensor],
) -> list[AliveGroup]:
    """By category and module, largest first. Modules are named as far down as that makes few enough groups."""
    ranked = sorted(alive, key=lambda number: -sizes[number - 1])
    modules = [_module(describe(number)) for number in ranked[:LOOKED_AT]] + [""] * max(
        0, len(ranked) - LOOKED_AT
    )
    deepest = max((module.count(".") + 1 for module in modules), default=1)
    for depth in range(deepest, -1, -1):
        keys = [
            (categories[number - 1], _shortened(module, depth))
            for number, module in zip(ranked, modules, strict=True)
        ]
        if len(set(keys)) <= MOST_GROUPS:
            break
    num_bytes: Counter[tuple[str, str]] = Counter()
    for key, number in zip(keys, ranked, strict=True):
        num_bytes[key] += rounded(sizes[number - 1])
    counts = Counter(keys)
    return [
        AliveGroup(
            category=category, module=module, num_bytes=size, num_tensors=counts[category, module]
        )
        for (category, module), size in num_bytes.most_common()
    ]


def _shortened(module: str, depth: int) -> str:
    """Its first parts: blocks.3.mlp.up is blocks.3 with a depth of 2."""
    return ".".join(module.split(".")[:depth])


def _module(tensor: LargeTensor) -> str:
    """Of a parameter, its gradient and its state: the module whose it is, not the one that was running when it was made."""
    owner = tensor.name.partition(" ")[0].rpartition(".")[0]
    return owner or tensor.module
