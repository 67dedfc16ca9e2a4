"""Two traces lined up: what counts as the same, what as different, and where."""

from __future__ import annotations

import json
import random
import time
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_examples import ROWS, of, trace, traces

from vramcast.records.trace_diff import DifferenceKind, TraceDiff
from vramcast.tracing.diff import diff_traces
from vramcast.tracing.files import to_json
from vramcast.tracing.trace import Trace


def counts(result: TraceDiff) -> dict[str, int]:
    return {kind: number for kind, number in result.num_differences.items() if number}


def first_numbers(result: TraceDiff) -> tuple[int | None, int | None]:
    """Of the allocations at the first difference."""
    assert result.first is not None
    a, b = result.first.lines[result.first.position]
    return a and a.number, b and b.number


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("mm:100 add:20 -1 mm:5", "mm:100 add:20 -1 mm:5"),
        (
            "mm:1 mm:2 mm:3 -1 -2 mm:4",
            "mm:1 mm:2 mm:3 -2 -1 mm:4",
        ),  # frees in one burst, in any order
        ("mm:1 -1 | mm:2", "mm:1 | -1 mm:2"),  # and on either side of a step's beginning
        ("mm:1 mm:2 -1", "mm:1 mm:2"),  # behind the last allocation nothing sees it
        ("cublas_workspace:64 mm:1", "addmm:64 mm:1"),
        ("mm:1 add:2", "?:1 ?:2"),
        ("mm:1 | mm:2 | mm:3 | mm:4 -4", "mm:1 | mm:2 | mm:3"),  # the steps both have
        ("mm:1 -1 ! mm:2", "mm:1 -1 ! mm:2"),
        ("", ""),
    ],
)
def test_these_are_the_same(a: str, b: str) -> None:
    result = diff_traces(of(a), of(b))
    assert result.same
    assert (result.first, result.first_in_memory, result.ops, counts(result)) == (
        None,
        None,
        [],
        {},
    )


@pytest.mark.parametrize(
    ("a", "b", "expected", "first"),
    [
        ("mm:1 mm:2 mm:3 mm:4", "mm:1 mm:2 mm:9 mm:4", {"bytes": 1}, (3, 3)),
        ("mm:1 mm:2 mm:3 mm:4", "mm:1 add:2 mm:3 mm:4", {"name": 1}, (2, 2)),
        ("mm:1 mm:2 mm:3 mm:4", "mm:1 mm:3 mm:4", {"only_a": 1}, (2, None)),
        ("mm:1 mm:3 mm:4", "mm:1 mm:2 mm:3 mm:4", {"only_b": 1}, (None, 2)),
        ("mm:1 mm:2 mm:3", "mm:1 add:8 mm:3", {"only_a": 1, "only_b": 1}, (2, None)),
        ("mm:1 mm:2", "mm:1", {"only_a": 1}, (2, None)),
        ("", "mm:1", {"only_b": 1}, (None, 1)),
        ("mm:1 -1 mm:2 mm:3", "mm:1 mm:2 -1 mm:3", {"alive": 1}, (2, 2)),
        ("mm:1 mm:2 -1 mm:3", "mm:1 mm:2 mm:3", {"alive": 1}, (3, 3)),
        (
            "mm:1 -1 ! mm:2",
            "mm:1 ! -1 mm:2",
            {"alive": 1},
            (0, 0),
        ),  # emptying the cache sees what is alive
        ("mm:1 -1 ! mm:2", "mm:1 -1 mm:2", {"only_a": 1}, (0, None)),
        ("mm:1 | mm:2 mm:3", "mm:1 mm:2 | mm:3", {"step": 1}, (2, 2)),
        ("cublas_workspace:64 mm:1", "addmm:32 mm:1", {"only_a": 1, "only_b": 1}, (1, None)),
        ("cublas_workspace:64 mm:1", "cublas_workspace:32 mm:1", {"bytes": 1}, (1, 1)),
        ("mm:1 ! mm:2", "mm:1 ?:0 mm:2", {"only_a": 1, "only_b": 1}, (0, None)),
    ],
)
def test_these_differ_here(
    a: str, b: str, expected: dict[str, int], first: tuple[Any, Any]
) -> None:
    result = diff_traces(of(a), of(b))
    assert not result.same
    assert counts(result) == expected
    assert first_numbers(result) == first


def test_the_place_shows_context_on_both_sides_with_running_bytes() -> None:
    place = diff_traces(
        of("mm:1 mm:600 -1 | mm:3 mm:4 mm:5"), of("mm:1 mm:600 -1 | mm:3 mm:700 mm:5")
    ).first
    assert place is not None
    assert place.step == 1
    assert place.position == 3
    assert [(a and a.allocated_bytes, b and b.allocated_bytes) for a, b in place.lines] == [
        *(
            (512, 512),
            (512 + 1024, 512 + 1024),
            (1024 + 512, 1024 + 512),
            (1024 + 1024, 1024 + 512 + 1024),
            (2560, 3072),
        ),
    ]
    a, b = place.lines[place.position]
    assert a is not None
    assert b is not None
    assert (a.op, a.num_bytes, b.op, b.num_bytes) == ("aten::mm", 4, "aten::mm", 700)


def test_what_is_alive_on_one_side_only_is_named_largest_first() -> None:
    result = diff_traces(of("mm:10 mm:20 mm:30 -1 -2 mm:4 -3"), of("mm:10 mm:20 mm:30 -3 mm:4"))
    assert counts(result) == {"alive": 3}
    assert result.first is not None
    assert [line.number for line in result.first.alive_only_a] == [3]
    assert [line.number for line in result.first.alive_only_b] == [2, 1]
    assert first_numbers(result) == (4, 4)


def test_a_name_that_differs_does_not_hide_the_first_difference_in_memory() -> None:
    result = diff_traces(of("mm:1 mm:2 mm:3 mm:4"), of("add:1 mm:2 mm:5 mm:4"))
    assert result.first is not None
    assert result.first.kinds == ["name"]
    assert result.first_in_memory is not None
    assert result.first_in_memory.kinds == ["bytes"]


def test_operators_are_listed_by_the_bytes_they_differ_in_and_equal_ones_are_not() -> None:
    result = diff_traces(
        of("cublas_workspace:64 mm:10 add:5 add:5 gelu:7"), of("addmm:64 mm:900 add:5 gelu:7")
    )
    assert [(op.op, op.count_a, op.count_b, op.bytes_a, op.bytes_b) for op in result.ops] == [
        ("aten::mm", 1, 1, 10, 900),
        ("aten::add", 2, 1, 10, 5),
    ]


def test_the_summary_counts_each_side_over_the_steps_compared() -> None:
    result = diff_traces(of("mm:600 | mm:1 | mm:5000"), of("mm:600 | mm:1", source="measured"))
    assert (result.a.num_allocations, result.a.peak_allocated_bytes, result.a.num_steps) == (
        2,
        1536,
        2,
    )
    assert (result.b.num_allocations, result.b.num_steps, result.b.source) == (2, 1, "measured")
    assert result.num_steps_compared == 1


def test_a_change_of_every_size_is_that_and_nothing_else() -> None:
    """As another batch size: operators line up though no size does, and though some sizes of one
    are found in the other."""
    layer = [("addmm", 3), ("gelu", 2), ("addmm", 1), ("add", 1), ("native_layer_norm", 1)]
    a, b = (
        of(" ".join(f"{op}:{size * scale}" for _ in range(50) for op, size in layer))
        for scale in (1, 2)
    )
    assert counts(diff_traces(a, b)) == {"bytes": 250}


def test_a_layer_that_is_missing_is_missing_and_the_rest_is_the_same() -> None:
    layer = " ".join(f"op{index % 7}:{1000 + index % 5}" for index in range(300))
    a, b = of(f"mm:1 {layer} {layer} add:2 sum:3 mean:4"), of(f"mm:1 {layer} add:2 sum:3 mean:4")
    assert counts(diff_traces(a, b)) == {"only_a": 300}


@given(traces())
def test_a_trace_is_the_same_as_itself(example: Trace) -> None:
    assert diff_traces(example, example).same


@given(traces(), traces())
def test_any_two_traces_can_be_compared_and_sides_exchanged(a: Trace, b: Trace) -> None:
    one, other = diff_traces(a, b), diff_traces(b, a)
    assert one.same == other.same
    assert one.same == (not any(one.num_differences.values()))
    assert set(one.num_differences) == set(DifferenceKind)
    json.dumps(asdict(one))


def without(example: Trace, number: int) -> Trace:
    rows = [
        row
        for row in json.loads(to_json(example))["events"]
        if not (row[0] in ("alloc", "free") and row[1] == number)
    ]
    return trace(
        [
            [row[0], row[1] - (row[1] > number), *row[2:]] if row[0] in ("alloc", "free") else row
            for row in rows
        ]
    )


@given(traces().filter(lambda example: example.allocations), st.integers(0, 59))
def test_one_allocation_taken_out_is_found_at_its_place(example: Trace, choice: int) -> None:
    index = choice % len(example.allocations)
    num_steps = len(example.steps)
    result = diff_traces(example, without(example, index + 1))
    assert not result.same
    assert result.num_steps_compared == num_steps
    found, _ = first_numbers(result)
    # not before it, and behind it only as long as what follows could be it
    position = next(event for event, number in enumerate(example.events) if number == index + 1)
    assert found is None or found == 0 or found > index
    between = [
        number
        for number in example.events[position + 1 :]
        if number > 0 and found and number <= found
    ]
    taken = example.allocations[index]
    alike = [example.allocations[number - 1].num_bytes == taken.num_bytes for number in between]
    assert all(alike)


def long_trace(
    length: int, *, scale: int = 1, leave_out: frozenset[int] = frozenset(), seed: int = 0
) -> Trace:
    """So many allocations and nearly as many frees: each is freed 200 later."""
    choose = random.Random(seed)
    rows: list[Any] = []
    number_of: dict[int, int] = {}
    for index in range(length):
        op, size = (
            choose.choice(("mm", "add", "gelu", "_to_copy")),
            choose.randrange(1, 60) * 4096 * scale,
        )
        if index not in leave_out:
            number_of[index] = len(number_of) + 1
            rows.append(["alloc", number_of[index], size, f"aten::{op}"])
        if index - 200 in number_of:
            rows.append(["free", number_of[index - 200]])
    return trace(rows)


def test_two_hundred_thousand_events_are_compared_in_seconds() -> None:
    a = b = long_trace(100_000)
    began = time.process_time()
    assert diff_traces(a, b).same
    assert time.process_time() - began < 10  # processor seconds; about one


def test_many_small_differences_are_found_one_by_one() -> None:
    a, b = long_trace(10_000), long_trace(10_000, leave_out=frozenset(range(50, 10_000, 1000)))
    began = time.process_time()
    result = diff_traces(a, b)
    assert time.process_time() - began < 5
    assert counts(result) == {"only_a": 10}


@pytest.mark.parametrize(
    "other", [{"scale": 3}, {"seed": 1}], ids=["all sizes changed", "nothing in common"]
)
def test_traces_that_differ_everywhere_take_not_much_longer(other: dict[str, Any]) -> None:
    a, b = long_trace(10_000), long_trace(10_000, **other)
    began = time.process_time()
    result = diff_traces(a, b)
    assert time.process_time() - began < 5  # less than one
    assert sum(result.num_differences.values()) >= 10_000


def test_the_example_of_the_other_tests_differs_from_itself_cut_short() -> None:
    result = diff_traces(trace(), trace(ROWS[:-1]))
    assert counts(result) == {"only_a": 1}
    assert first_numbers(result) == (5, None)


def test_a_diff_is_a_record_that_is_read_back_as_it_was() -> None:
    found = diff_traces(of("mm:1 mm:2 mm:3 mm:4"), of("mm:1 mm:2 mm:9 mm:4"))
    data = json.loads(found.to_json())
    assert (data["kind"], data["version"]) == ("trace_diff", 1)
    assert TraceDiff.from_json(found.to_json()) == found
