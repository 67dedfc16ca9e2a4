"""Memory through the step in which the peak lies, with few enough points to draw."""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from vramcast.allocator.replay import EMPTY_CACHE
from vramcast.downsampling import downsample
from vramcast.records.prediction import AliveGroup, LargeTensor, PhaseName, StepMemory

MOST_POINTS = 240
MOST_GROUPS = 80
# The small ones of the tensors alive take long to look up and hold little memory.
MOST_LOOKED_UP = 4000
Describe = Callable[[int], LargeTensor]


def step_memory(
    events: Sequence[int],
    block_bytes: Sequence[int],
    categories: Sequence[str],
    describe: Describe,
    reserved_bytes: Sequence[int] | None = None,
    segments: Sequence[PhaseName] = (),
) -> StepMemory:
    """The step in which most is allocated. `reserved_bytes` is after every event, where known."""
    changes = np.array([_change_bytes(event, block_bytes) for event in events])
    owners = np.array(
        [categories[abs(event) - 1] if change else "" for event, change in zip(events, changes)]
    )
    series = {"allocated": changes.cumsum()}
    if reserved_bytes is not None:
        series["reserved"] = np.array(reserved_bytes)
    for name in sorted(set(categories)):
        series[name] = np.where(owners == name, changes, 0).cumsum()
    peak = int(series["allocated"].argmax())
    begin, end, phase = _step_around(events, peak, segments)
    kept = downsample(series["allocated"][begin:end].tolist(), MOST_POINTS, [peak - begin])
    columns = {
        "event": np.array(kept),
        **{name: values[begin:end][kept] for name, values in series.items()},
    }
    tensors: dict[int, int] = {}
    return StepMemory(
        phase=phase,
        num_events=end - begin,
        columns=list(columns),
        points=np.stack([*columns.values()], axis=1).tolist(),
        peak_point=kept.index(peak - begin),
        changes=[_tensor_change(events[begin + index], tensors) for index in kept],
        tensors=[describe(number) for number in tensors],
    )


def _step_around(
    events: Sequence[int], event_index: int, segments: Sequence[PhaseName]
) -> tuple[int, int, str]:
    """(its first event, the one after its last, its name)."""
    starts = [index for index, event in enumerate(events) if event == 0]
    number = sum(start <= event_index for start in starts)
    bounds = [0, *starts, len(events)]
    return bounds[number], bounds[number + 1], _segment_name(number, segments)


def _segment_name(number: int, segments: Sequence[PhaseName]) -> str:
    """Of the part that the n-th mark begins; training steps have numbers."""
    if number == 0:
        return PhaseName.BUILD
    if segments and segments[number - 1] is not PhaseName.TRAIN:
        return segments[number - 1]
    num_steps = segments[:number].count(PhaseName.TRAIN) if segments else number
    return f"step {num_steps}"


def _change_bytes(event: int, block_bytes: Sequence[int]) -> int:
    if event in (0, EMPTY_CACHE):
        return 0
    return block_bytes[event - 1] if event > 0 else -block_bytes[-event - 1]


def _tensor_change(event: int, tensors: dict[int, int]) -> list[int]:
    """What the event did; a tensor gets the next number in `tensors`."""
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
    num_bytes = Counter[tuple[str, str]]()
    for key, number in zip(keys, ranked, strict=True):
        num_bytes[key] += block_bytes[number - 1]
    return [
        AliveGroup(category=key[0], module=key[1], num_bytes=size, num_tensors=counts[key])
        for key, size in num_bytes.most_common()
    ]


def _module(tensor: LargeTensor) -> str:
    """The owner of a parameter, its gradient or its state; else the module that was running."""
    owner = tensor.name.partition(" ")[0].rpartition(".")[0]
    return owner or tensor.module
