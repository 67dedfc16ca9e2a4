"""The parts of a plan that need no simulation: lengths, stages, curricula, accumulation."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
import torch
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.console import Console

from vramcast.allocator.settings import AllocatorSettings
from vramcast.errors import UsageError
from vramcast.forecast.budget import Budget
from vramcast.forecast.largest import BatchSearch
from vramcast.predicting.checks import read_lengths, read_tokens
from vramcast.predicting.plan import as_yaml
from vramcast.predicting.plan_stages import (
    gain_of_doubling,
    in_sequence,
    make_stage,
    step_seconds,
    totals,
    what_binds,
)
from vramcast.records.plan import GpuPlan, Plan, Stage
from vramcast.records.prediction import BatchSizePoint
from vramcast.reporting.showing import show
from vramcast.simulate.accumulating import accumulating
from vramcast.tracing.trace import SimulatedRun

MiB, GiB = 1 << 20, 1 << 30


def point(
    batch_size: int, seconds: float | None = None, bound_by: str = "", reserved: int = GiB
) -> BatchSizePoint:
    return BatchSizePoint(
        batch_size=batch_size,
        peak_allocated_bytes=reserved,
        peak_reserved_bytes=reserved,
        fits=True,
        num_alloc_retries=0,
        simulated=True,
        step_seconds=seconds,
        bound_by=bound_by,
    )


def stage(
    seq_len: int,
    batch_size: int,
    passes: int = 1,
    seconds: float | None = None,
    tokens_per_step: int | None = None,
) -> Stage:
    plain = vars(point(batch_size, seconds, "compute" if seconds else ""))
    twice = {**plain, "step_seconds": None if seconds is None else 1.8 * seconds}
    found = {
        "seq_len": seq_len,
        "batch_size": batch_size,
        "accumulation_steps": passes,
        "largest_batch": batch_size,
        "first_failing_batch": batch_size + 1,
        "plain": plain,
        "used": twice if passes > 1 else plain,
        "points": [plain],
    }
    return make_stage(
        found,
        capacity_bytes=3 * GiB,
        limit_bytes=2 * GiB,
        tokens_per_step=tokens_per_step,
        tokens=10**9,
    )


# ---------------------------------------------------------------------------------------- curricula
STAGES = st.lists(
    st.tuples(st.integers(1, 4096), st.integers(1, 10**4), st.integers(1, 64)),
    min_size=1,
    max_size=12,
)


@given(STAGES, st.integers(1, 10**13))
def test_the_tokens_of_all_stages_add_up_to_the_budget_and_less_than_a_step_more(
    sizes: list[tuple[int, int, int]], tokens: int
) -> None:
    stages = in_sequence([stage(*size) for size in sizes], tokens)
    done = 0
    for number, one in enumerate(stages, 1):
        assert one.steps is not None and one.tokens_per_step is not None
        assert one.start_step == sum(s.steps or 0 for s in stages[: number - 1])
        assert one.tokens == one.steps * one.tokens_per_step
        done += one.tokens
        assert done * len(stages) >= tokens * number, (
            "no stage ends before its part of the tokens is done"
        )
    assert tokens <= done < tokens + max(s.tokens_per_step or 0 for s in stages)
    assert totals(stages)["total_tokens"] == done
    assert totals(stages)["total_steps"] == sum(s.steps or 0 for s in stages)


def test_hours_are_those_of_the_steps_and_unknown_where_one_is_unknown() -> None:
    timed = in_sequence([stage(8, 10, seconds=0.5), stage(16, 10, seconds=2.0)], 16_000)
    assert [s.steps for s in timed] == [100, 50]
    assert totals(timed)["total_hours"] == pytest.approx((100 * 0.5 + 50 * 2.0) / 3600)
    assert (
        totals(in_sequence([stage(8, 10, seconds=0.5), stage(16, 10)], 16_000))["total_hours"]
        is None
    )


def test_where_a_stage_does_not_fit_nothing_is_added_up() -> None:
    assert set(totals([stage(8, 10), replace(stage(16, 10), fits=False)]).values()) == {None}


def a_plan(stages: list[Stage]) -> Plan:
    gpu = GpuPlan(
        gpu="h200", capacity_bytes=3 * GiB, limit_bytes=2 * GiB, stages=stages, **totals(stages)
    )
    return Plan(
        workload="w.py: [odd] 'name'",
        knobs={"a": 1, "b": "x: y"},
        seq_lens=[8],
        tokens=16_000,
        tokens_per_step=None,
        safety=0.05,
        split="",
        gpus=[gpu],
        step_seconds_reason="",
        allocator_settings="",
    )


def test_a_training_loop_reads_the_curriculum_back_from_yaml() -> None:
    plan = a_plan(in_sequence([stage(8, 10), stage(16, 5, passes=2)], 16_000))
    read = yaml.safe_load(as_yaml(plan, plan.gpus[0]))
    keys = ("start_step", "seq_len", "batch_size", "gradient_accumulation_steps")
    assert [tuple(s[key] for key in keys) for s in read["curriculum_stages"]] == [
        (0, 8, 10, 1),
        (100, 16, 5, 2),
    ]
    assert (read["workload"], read["knobs"], read["total_steps"]) == (
        plan.workload,
        plan.knobs,
        150,
    )


def test_a_stage_for_which_no_tokens_are_left_is_not_in_the_curriculum() -> None:
    plan = a_plan(in_sequence([stage(8, 10_000), stage(16, 10)], 100))
    assert [
        s["seq_len"] for s in yaml.safe_load(as_yaml(plan, plan.gpus[0]))["curriculum_stages"]
    ] == [8]


def test_a_plan_is_the_same_after_json() -> None:
    plan = a_plan(in_sequence([stage(8, 10, seconds=0.5), stage(16, 5, passes=2)], 16_000))
    assert Plan.from_json(plan.to_json()) == plan


# ------------------------------------------------------------------------------------------- stages
def test_memory_binds_where_it_limits_the_batch_and_a_larger_one_would_be_faster() -> None:
    assert what_binds(point(8, 1.0, "compute"), True, 1.30) == "memory"
    assert what_binds(point(8, 1.0, "compute"), True, 1.01) == "compute"
    assert what_binds(point(8, 1.0, "launch"), False, 1.90) == "launch"
    assert what_binds(point(8), True, None) == "memory"
    assert what_binds(point(8), False, None) is None


def test_doubling_gains_as_much_as_the_part_of_the_time_that_does_not_grow() -> None:
    constant, proportional = [point(4, 1.0), point(8, 1.0)], [point(4, 1.0), point(8, 2.0)]
    assert gain_of_doubling(constant[1], constant) == pytest.approx(2.0)
    assert gain_of_doubling(proportional[1], proportional) == pytest.approx(1.0)
    assert gain_of_doubling(point(8, 1.0), [point(8, 1.0)]) is None
    assert gain_of_doubling(point(8), [point(4), point(8)]) is None


def test_accumulated_passes_take_a_pass_each_and_one_update() -> None:
    """A pass of 0.8 s and an update of 0.2 s: 1.0 s plain, 1.8 s with two passes."""
    assert step_seconds(point(8, 1.0), point(8, 1.8), 1) == 1.0
    assert step_seconds(point(8, 1.0), point(8, 1.8), 5) == pytest.approx(4.2)
    assert step_seconds(point(8), point(8, 1.8), 5) is None


def test_rates_follow_from_the_step() -> None:
    found = stage(128, 4, passes=2, seconds=1.0, tokens_per_step=1024)
    assert found.tokens_per_second == pytest.approx(1024 / 1.8)
    assert found.samples_per_second == pytest.approx(8 / 1.8)
    assert found.hours_to_budget == pytest.approx(10**9 / (1024 / 1.8) / 3600)
    assert found.share_of_memory == pytest.approx(1 / 3)
    assert "1024 tokens a step are 8 samples, in 2 passes of 4" in found.why


# -------------------------------------------------------------------------------------------- input
@given(st.lists(st.integers(-3, 40), max_size=6))
def test_lengths_are_taken_only_if_they_are_positive_and_rise(lengths: list[int]) -> None:
    good = bool(lengths) and min(lengths) >= 1 and lengths == sorted(set(lengths))
    text = ",".join(map(str, lengths))
    for given_as in (lengths, text):
        if good:
            assert read_lengths(given_as) == lengths
        else:
            with pytest.raises(UsageError):
                read_lengths(given_as)


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        ",",
        "8,,16",
        "8,sixteen",
        "8.5",
        "1e3",
        "٣",
        "8,16,...,64",
        [True],
        [8.0],
        [None],
        "9" * 30,
    ],
)
def test_what_is_no_list_of_lengths_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError):
        read_lengths(wrong)


@pytest.mark.parametrize(
    ("text", "tokens"), [("1e9", 10**9), ("1000", 1000), (5e8, 5 * 10**8), (7, 7)]
)
def test_a_budget_of_tokens_may_be_written_with_an_exponent(text: Any, tokens: int) -> None:
    assert read_tokens(text) == tokens


@pytest.mark.parametrize("wrong", ["0", "-1e9", "nan", "inf", "many", None, True])
def test_what_is_no_budget_of_tokens_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError):
        read_tokens(wrong)


# --------------------------------------------------------------------------------------- the search
def search_over(
    constant: int, per_sample: int, limit: int, most: int, other_events: bool = False
) -> tuple[BatchSearch, list[int]]:
    """With `other_events`, odd sizes have one more allocation than even ones."""
    simulated: list[int] = []

    def trace_at(size: int) -> SimulatedRun:
        simulated.append(size)
        events = [1, 0, 2, -2] + ([3, -3] if other_events and size % 2 else [])
        return SimulatedRun(
            events=events,
            sizes=[constant, per_sample * size, 512],
            categories=[],
            num_parameters=0,
            notes=(),
            torch_version="",
            allocation=lambda number: pytest.fail("not asked for"),
        )

    budget = Budget(gpu=None, memory_bytes=limit, settings=AllocatorSettings.parse(""))
    return BatchSearch(trace_at, budget, maximum=most), simulated


@settings(max_examples=60)
# 12 fits by its own segment, 2 to 11 do not, 1 does
@example(1, 873_771, 12 * MiB, 12, False, 3, None)
@given(
    st.integers(1, 300 * MiB),
    st.integers(512, 200 * MiB),
    st.integers(MiB, 4 * GiB),
    st.integers(1, 3000),
    st.booleans(),
    st.none() | st.integers(0, 10_000),
    st.none() | st.integers(0, 10_000),
)
def test_the_batch_found_fits_was_simulated_and_the_next_does_not_fit(
    constant: int,
    per_sample: int,
    limit: int,
    most: int,
    odd: bool,
    guess: int | None,
    below: int | None,
) -> None:
    search, simulated = search_over(constant, per_sample, limit, most, odd)
    largest, failing = search.run(guess, below)
    assert all(1 <= size <= most for size in simulated)

    def fits(size: int) -> bool:
        return search_over(constant, per_sample, limit, most, odd)[0].simulate(size).fits

    if largest is None:
        assert not fits(1)
        return
    assert largest in simulated and largest <= most
    assert fits(largest)
    assert failing == (None if largest == most else largest + 1)
    assert failing is None or (failing in simulated and not fits(failing))
    assert len(simulated) < 40


def test_with_the_tokens_of_another_length_as_a_guess_few_sizes_are_simulated() -> None:
    search, _ = search_over(100 * MiB, 3 * MiB, GiB, 10**6)
    largest, _ = search.run()
    assert largest is not None
    other, simulated = search_over(100 * MiB, 6 * MiB, GiB, 10**6)
    assert other.run(guess=largest * 64 // 128) == (154, 155)
    assert len(simulated) <= 3


# ------------------------------------------------------------------------------------- accumulation
@pytest.mark.parametrize("zero_grad", ["first", "last", "of the module"])
@pytest.mark.parametrize("scheduled", [False, True])
def test_an_accumulating_step_adds_the_gradients_of_two_passes_and_updates_once(
    zero_grad: str, scheduled: bool
) -> None:
    inputs = iter(torch.arange(1.0, 9.0).reshape(8, 1))
    layer = torch.nn.Linear(1, 1, bias=False)

    def build(*, batch_size: int = 1) -> Any:
        torch.nn.init.zeros_(layer.weight)
        optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
        if scheduled:
            torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)

        def step() -> None:
            if zero_grad == "first":
                optimizer.zero_grad()
            layer(next(inputs)).sum().backward()
            optimizer.step()
            if zero_grad == "last":
                optimizer.zero_grad()
            elif zero_grad == "of the module":
                layer.zero_grad()

        return step

    step = accumulating(build)(batch_size=1)
    step()
    assert layer.weight.item() == -(1 + 2)
    step()
    assert layer.weight.item() == -(1 + 2) - (3 + 4)
    plain = build()
    plain()
    assert layer.weight.item() == -5, "a step that does not accumulate is as it was"


# --------------------------------------------------------------------------------------- the report
def test_a_plan_with_times_is_one_line_a_stage_in_80_columns() -> None:
    large = replace(
        stage(2048, 7358, passes=16, seconds=1.23456),
        tokens_per_step=131072,
        peak_reserved_bytes=int(132.09 * GiB),
        share_of_memory=0.95,
        tokens_per_second=123456.7,
        samples_per_second=12345.6,
        hours_to_budget=1234.5,
        binds="bandwidth",
        start_step=107786,
        steps=1,
    )
    plan = a_plan([large])
    console = Console(width=80, file=io.StringIO(), color_system=None)
    show(plan, console)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    row = next(line for line in lines if line.split()[:1] == ["2048"])
    assert row.split() == [
        "2048",
        "7358",
        "16",
        "131072",
        "132.09",
        "GiB",
        "95",
        "%",
        "bandwidth",
        "123457",
        "12346",
        "1234",
        "107786",
    ]
    assert all(len(line) <= 80 and "…" not in line for line in lines)
