"""Memory through the step in which the peak lies, with few enough points to draw."""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from vramcast.allocator.replay import EMPTY_CACHE
from vramcast.downsampling import downsample
from vramcast.forecast.step_allocations import large_allocations
from vramcast.records.phases import PhaseName
from vramcast.records.step_memory import (
    AliveGroup,
    AlivePlace,
    LargeTensor,
    StepAllocation,
    StepMemory,
)
from vramcast.tracing.trace import Labels, by_event, bytes_by_event

MOST_POINTS = 240
MOST_GROUPS = 80
MOST_PLACES = 300
# Small tensors take long to look up and hold little memory.
MOST_LOOKED_UP = 4000
Describe = Callable[[int], LargeTensor]
Numbers = NDArray[np.signedinteger]


def step_memory(
    events: Numbers,
    block_bytes: Numbers,
    categories: Labels,
    describe: Describe,
    reserved_bytes: Numbers | None = None,
    segments: Sequence[PhaseName] = (),
    allocated: Numbers | None = None,
) -> StepMemory:
    """The step in which most is allocated. `reserved_bytes` and `allocated` have a value for every
    event, if known."""
    if allocated is None:
        allocated = bytes_by_event(events, block_bytes).cumsum()
    peak = int(allocated.argmax())
    begin, end, phase = step_around(events, peak, segments)
    changes = bytes_by_event(events[:end], block_bytes)
    peaks = [peak - begin]
    if reserved_bytes is not None:  # its peak may last for only one event, and must be kept
        peaks.append(int(reserved_bytes[begin:end].argmax()))
    kept = downsample(allocated[begin:end], MOST_POINTS, peaks)
    columns = {"event": np.array(kept), "allocated": allocated[begin:end][kept]}
    if reserved_bytes is not None:
        columns["reserved"] = reserved_bytes[begin:end][kept]
    owners = by_event(events[:end], -1, categories.codes)
    by_name = {categories.words[code]: code for code in categories.used()}
    for name in sorted(by_name):
        own_bytes = np.where(owners == by_name[name], changes, 0).cumsum()
        columns[name] = own_bytes[begin:][kept]
    tensors: dict[int, int] = {}
    shown = events[begin:end][kept].tolist()
    changed = [_tensor_change(event, tensors) for event in shown]
    large = large_allocations(events, block_bytes, categories, (begin, end), peak)
    allocations = [
        StepAllocation(
            tensor=tensors.setdefault(number, len(tensors)),
            num_bytes=int(block_bytes[number - 1]),
            made_event=made,
            freed_event=freed,
        )
        for number, made, freed in zip(large.numbers, large.made, large.freed, strict=True)
    ]
    return StepMemory(
        phase=phase,
        num_events=end - begin,
        columns=list(columns),
        points=np.stack([*columns.values()], axis=1).tolist(),
        peak_point=kept.index(peak - begin),
        changes=changed,
        tensors=[describe(number) for number in tensors],
        allocations=allocations,
        rest=large.rest,
        first_event=begin,
    )


def step_around(
    events: Numbers, event_index: int, segments: Sequence[PhaseName]
) -> tuple[int, int, str]:
    """The step's first event, the event after its last, and its name."""
    starts = np.flatnonzero(events == 0).tolist()
    number = sum(start <= event_index for start in starts)
    bounds = [0, *starts, len(events)]
    return bounds[number], bounds[number + 1], _segment_name(number, segments)


def _segment_name(number: int, segments: Sequence[PhaseName]) -> str:
    """The name of the segment that the n-th mark begins. Training steps have numbers."""
    if number == 0:
        return PhaseName.BUILD
    if segments and segments[number - 1] is not PhaseName.TRAIN:
        return segments[number - 1]
    num_steps = segments[:number].count(PhaseName.TRAIN) if segments else number
    return f"step {num_steps}"


def _tensor_change(event: int, tensors: dict[int, int]) -> list[int]:
    """The tensor's index in `tensors`, and whether the event allocates it. Empty for other
    events."""
    if event in (0, EMPTY_CACHE):
        return []
    return [tensors.setdefault(abs(event), len(tensors)), int(event > 0)]


def alive_groups(
    alive: Numbers, block_bytes: Numbers, categories: Labels, describe: Describe
) -> list[AliveGroup]:
    """Live memory by category and module, largest first. Module names are as deep as MOST_GROUPS
    allows."""
    ranked = alive[np.argsort(-block_bytes[alive - 1], kind="stable")]
    large, small = ranked[:MOST_LOOKED_UP].tolist(), ranked[MOST_LOOKED_UP:]
    modules = [_module(describe(number)) for number in large]
    owners = [categories.words[code] for code in categories.codes[np.array(large, int) - 1]]
    rest = _rest(small, block_bytes, categories)
    deepest = max((module.count(".") + 1 for module in modules), default=1)
    for depth in range(deepest, -1, -1):
        shortened = (".".join(module.split(".")[:depth]) for module in modules)
        keys = list(zip(owners, shortened, strict=True))
        counts = Counter(keys)
        counts.update({key: number for key, (_, number) in rest.items()})
        if len(counts) <= MOST_GROUPS:
            break
    num_bytes = Counter[tuple[str, str]]()
    for key, number in zip(keys, large, strict=True):
        num_bytes[key] += int(block_bytes[number - 1])
    num_bytes.update({key: size for key, (size, _) in rest.items()})
    return [
        AliveGroup(category=key[0], module=key[1], num_bytes=size, num_tensors=counts[key])
        for key, size in num_bytes.most_common()
    ]


def alive_places(
    alive: Numbers, block_bytes: Numbers, categories: Labels, describe: Describe
) -> list[AlivePlace]:
    """Live memory by category, module and line, largest first. The rest has neither module nor
    line."""
    ranked = alive[np.argsort(-block_bytes[alive - 1], kind="stable")].tolist()
    sums: dict[tuple[str, str, str], list[int]] = {}
    modules: dict[str, set[str]] = {}
    for number in ranked[:MOST_LOOKED_UP]:
        tensor = describe(number)
        module = _module(tensor)
        folded = ".".join("*" if part.isdigit() else part for part in module.split("."))
        modules.setdefault(folded, set()).add(module)
        key = (tensor.category, folded, tensor.source)
        _count_in(sums, key, int(block_bytes[number - 1]), 1)
    kept = sorted(sums, key=lambda key: -sums[key][0])[:MOST_PLACES]
    left = {key: sums.pop(key) for key in sums.keys() - set(kept)}
    for (category, _, _), (num_bytes, num_tensors) in left.items():
        _count_in(sums, (category, "", ""), num_bytes, num_tensors)
    small = np.array(ranked[MOST_LOOKED_UP:], np.int64)
    for (category, _), (num_bytes, num_tensors) in _rest(small, block_bytes, categories).items():
        _count_in(sums, (category, "", ""), num_bytes, num_tensors)
    return [
        AlivePlace(
            category=key[0],
            module=key[1],
            num_modules=len(modules.get(key[1], ())),
            source=key[2],
            num_bytes=sums[key][0],
            num_tensors=sums[key][1],
        )
        for key in sorted(sums, key=lambda key: -sums[key][0])
    ]


def _count_in(
    sums: dict[tuple[str, str, str], list[int]],
    key: tuple[str, str, str],
    num_bytes: int,
    num_tensors: int,
) -> None:
    found = sums.setdefault(key, [0, 0])
    found[0] += num_bytes
    found[1] += num_tensors


def _rest(
    numbers: Numbers, block_bytes: Numbers, categories: Labels
) -> dict[tuple[str, str], tuple[int, int]]:
    """Bytes and number of the tensors that are not looked up, by category, without a module."""
    codes, first = np.unique(categories.codes[numbers - 1], return_index=True)
    own = categories.codes[numbers - 1]
    return {
        (categories.words[code], ""): (
            int(block_bytes[numbers[own == code] - 1].sum()),
            int(np.count_nonzero(own == code)),
        )
        for code in codes[np.argsort(first)]
    }


def _module(tensor: LargeTensor) -> str:
    """The owner of a parameter, its gradient or its state; else the module that was running."""
    owner = tensor.name.partition(" ")[0].rpartition(".")[0]
    return owner or tensor.module
