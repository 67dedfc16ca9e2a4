"""Memory through a step: thinned, but the peak and the sums are as they are."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from vramcast.allocator.replay import EMPTY_CACHE, replay
from vramcast.forecast.step_memory import (
    MOST_GROUPS,
    MOST_PLACES,
    MOST_POINTS,
    alive_groups,
    alive_places,
    step_memory,
)
from vramcast.records.prediction import LargeTensor, StepMemory
from vramcast.tracing.trace import Labels


def tensor(number: int, module: str = "", name: str = "") -> LargeTensor:
    return LargeTensor(
        num_bytes=number,
        category="activations",
        name=name,
        shape=[number],
        dtype="float32",
        operator="aten::add",
        module=module,
        source="",
    )


def run_of(num_steps: int, num_tensors: int) -> tuple[list[int], list[int], list[str]]:
    """Steps that allocate many tensors and free them in another order."""
    random = Random(0)
    events, sizes = [1, 2], [4096, 10_000_000]
    for _ in range(num_steps):
        events.append(0)
        alive = []
        for _ in range(num_tensors):
            sizes.append(random.randrange(1, 5_000_000))
            events.append(len(sizes))
            alive.append(len(sizes))
            if random.random() < 0.4:
                events.append(-alive.pop(random.randrange(len(alive))))
        events += [-number for number in alive]
    categories = [
        "parameters",
        "parameters",
        *("activations" if i % 3 else "gradients" for i in range(len(sizes) - 2)),
    ]
    return events, sizes, categories


def made(events: list[int], sizes: list[int], categories: list[str]) -> StepMemory:
    whole = replay(events, sizes)
    return step_memory(
        np.array(events),
        np.array(whole.block_bytes),
        Labels.of(categories),
        tensor,
        np.array(whole.reserved_bytes),
    )


def test_a_long_step_is_thinned_and_keeps_its_peak_exactly() -> None:
    events, sizes, categories = run_of(3, 2000)
    memory, whole = made(events, sizes, categories), replay(events, sizes)
    assert 100 < len(memory.points) <= MOST_POINTS < memory.num_events
    peak = memory.points[memory.peak_point]
    assert peak[1] == whole.peak_allocated_bytes == max(point[1] for point in memory.points)
    assert memory.columns == [
        "event",
        "allocated",
        "reserved",
        "activations",
        "gradients",
        "parameters",
    ]
    assert memory.points[0][0] == 0 and memory.points[-1][0] == memory.num_events - 1


def test_the_most_that_is_reserved_is_kept_though_it_lasts_for_one_event() -> None:
    events, sizes, categories = run_of(3, 2000)
    whole = replay(events, sizes)
    reserved = np.full(len(events), max(whole.reserved_bytes))
    memory = made(events, sizes, categories)
    place = memory.first_event + memory.num_events // 2 + 1
    reserved[place] *= 2
    again = step_memory(
        np.array(events), np.array(whole.block_bytes), Labels.of(categories), tensor, reserved
    )
    assert reserved[place] in [point[again.columns.index("reserved")] for point in again.points]


def test_the_categories_of_a_point_are_what_is_alive_there() -> None:
    events, sizes, categories = run_of(2, 50)
    memory, block_bytes = made(events, sizes, categories), replay(events, sizes).block_bytes
    begin = [index for index, event in enumerate(events) if event == 0][
        int(memory.phase.removeprefix("step ")) - 1
    ]
    for point in memory.points:
        alive = set()
        for event in events[: begin + point[0] + 1]:
            (alive.add(event) if event > 0 else alive.discard(-event)) if event else None
        for name, value in zip(memory.columns[3:], point[3:], strict=True):
            assert value == sum(block_bytes[n - 1] for n in alive if categories[n - 1] == name)


def test_a_point_says_which_tensor_came_or_went() -> None:
    memory = made(
        [1, 0, 2, -2, 3, EMPTY_CACHE, -3],
        [512, 2048, 1024],
        ["parameters", "activations", "activations"],
    )
    assert memory.phase == "step 1"
    assert memory.changes == [[], [0, 1], [0, 0], [1, 1], [], [1, 0]]
    assert [t.num_bytes for t in memory.tensors][:2] == [2, 3]


def test_a_peak_before_the_first_step_is_in_the_build() -> None:
    memory = made([1, 2, -2, 0, 3, -3], [512, 99_999, 512], ["parameters"] * 3)
    assert (memory.phase, memory.num_events) == ("build", 3)


def test_large_allocations_and_the_rest_are_all_that_is_allocated() -> None:
    events, sizes, categories = run_of(3, 600)
    memory = made(events, sizes, categories)
    assert len(memory.allocations) < memory.num_events / 2  # some are left for the rest
    others = zip(*(column for name, column in memory.rest.items() if name != "event"), strict=True)
    rest = dict(zip(memory.rest["event"], map(sum, others), strict=True))
    first = memory.first_event
    both = [point for point in memory.points if point[0] in rest]
    assert len(both) > 2 and memory.points[memory.peak_point] in both
    for event, allocated, *_ in both:
        alive = [
            one.num_bytes
            for one in memory.allocations
            if one.made_event <= first + event
            and (one.freed_event is None or one.freed_event > first + event)
        ]
        assert sum(alive) + rest[event] == allocated


def test_a_large_allocation_has_the_events_at_which_it_is_made_and_freed() -> None:
    memory = made([1, 0, 2, 3, -3, -2, 0], [512, 9000, 4096], ["parameters", "a", "a"])
    found = [(each.made_event, each.freed_event) for each in memory.allocations]
    assert (memory.first_event, found) == (1, [(0, None), (2, 5), (3, 4)])
    assert [memory.tensors[each.tensor].num_bytes for each in memory.allocations] == [1, 2, 3]


def test_without_the_allocator_nothing_is_said_of_what_is_reserved() -> None:
    events, sizes = np.array([0, 1, 2, -1]), np.array([512, 1024])
    memory = step_memory(events, sizes, Labels.of(["a", "b"]), tensor)
    assert memory.columns == ["event", "allocated", "a", "b"]
    assert memory.points[memory.peak_point] == [2, 512 + 1024, 512, 1024]


@pytest.mark.parametrize(("num_layers", "deepest"), [(2, 3), (12, 3), (200, 1)])
def test_modules_are_named_as_far_down_as_that_makes_few_groups(
    num_layers: int, deepest: int
) -> None:
    parts = [
        f"blocks.{i}.{part}" for i in range(num_layers) for part in ("qkv", "up", "down", "norm")
    ]
    sizes = [1024] * len(parts)
    groups = alive_groups(
        np.arange(1, len(parts) + 1),
        np.array(sizes),
        Labels.of(["activations"] * len(parts)),
        lambda n: tensor(n, module=parts[n - 1]),
    )
    assert len(groups) <= MOST_GROUPS
    assert max(group.module.count(".") + 1 for group in groups) == deepest
    assert sum(group.num_bytes for group in groups) == 1024 * len(parts)
    assert sum(group.num_tensors for group in groups) == len(parts)


def test_a_parameters_state_belongs_to_the_module_that_has_the_parameter() -> None:
    one = tensor(1, module="Trainer", name="blocks.0.qkv.weight exp_avg")
    (group,) = alive_groups(
        np.array([1]), np.array([512]), Labels.of(["optimizer_state"]), lambda _: one
    )
    assert group.module == "blocks.0.qkv"


def test_blocks_that_are_alike_are_one_place_with_their_number() -> None:
    found = alive_places(
        np.arange(1, 13),
        np.array([512] * 12),
        Labels.of(["activations"] * 12),
        lambda n: tensor(n, module=f"blocks.{n}.up" if n < 12 else "head"),
    )
    assert [(each.module, each.num_modules, each.num_bytes) for each in found] == [
        ("blocks.*.up", 11, 11 * 512),
        ("head", 1, 512),
    ]


def test_places_hold_all_that_is_alive_however_many_there_are() -> None:
    many = MOST_PLACES + 100
    found = alive_places(
        np.arange(1, many + 1),
        np.arange(1, many + 1) * 512,
        Labels.of(["activations"] * many),
        lambda n: tensor(n, module=f"module_{n}"),
    )
    assert len(found) == MOST_PLACES + 1
    assert sum(each.num_bytes for each in found) == 512 * many * (many + 1) // 2
    (left,) = (each for each in found if not each.module)
    assert left.num_tensors == 100
