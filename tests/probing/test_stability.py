"""Every gate of the stability contract and its boundary."""

from __future__ import annotations

import math
from statistics import median_high
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramcast.probing.stability import (
    EXPLOSION_RATIO,
    GUARD_RATIO,
    JUDGEABLE_STEPS,
    is_paging,
    judge,
    p95,
    stall_threshold_seconds,
)
from vramcast.records.measurement import Device, FailReason, Outcome

GIB = 2**30


def evidence(**changes: Any) -> dict[str, Any]:
    """A sound run, but for the changes."""
    sound: dict[str, Any] = {
        "outcome": Outcome.OK,
        "stalled": False,
        "device": Device.CUDA,
        "step_seconds": [1.0] * 20,
        "losses": [1.0] * 22,
        "peak_reserved_bytes": GIB,
        "available_bytes": 2 * GIB,
    }
    return {**sound, **changes}


def slow_steps(ratio: float, *, steps: int = 20, slow: int = 2) -> list[float]:
    return [1.0] * (steps - slow) + [ratio] * slow


CASES: dict[
    str, tuple[dict[str, Any], list[str], list[str]]
] = {  # what happened; what failed; what was not judged
    "a sound run": (evidence(), [], []),
    "out of memory": (evidence(outcome=Outcome.OUT_OF_MEMORY), ["oom"], []),
    "crashed": (evidence(outcome=Outcome.CRASHED), ["runtime_exception"], []),
    "unsupported": (evidence(outcome=Outcome.UNSUPPORTED), ["runtime_exception"], []),
    "nan": (evidence(losses=[1.0, math.nan]), ["nan_or_inf"], []),
    "inf": (evidence(losses=[math.inf, 1.0]), ["nan_or_inf"], []),
    "minus inf beside no loss": (evidence(losses=[None, -math.inf]), ["nan_or_inf"], []),
    "some steps without a loss": (evidence(losses=[None, 1.0]), [], []),
    "no step with a loss": (evidence(losses=[None, None]), [], ["nan_or_inf"]),
    "p95 at 2.5 x the median": (evidence(step_seconds=slow_steps(EXPLOSION_RATIO)), [], []),
    "p95 above it": (
        evidence(step_seconds=slow_steps(EXPLOSION_RATIO + 0.01)),
        ["step_time_explosion"],
        [],
    ),
    "one outlier in twenty": (evidence(step_seconds=slow_steps(100.0, slow=1)), [], []),
    "19 steps": (evidence(step_seconds=slow_steps(100.0, steps=19)), [], ["step_time_explosion"]),
    "the document's 3 steps": (
        evidence(step_seconds=[1.0, 1.0, 100.0]),
        [],
        ["step_time_explosion"],
    ),
    "one step": (evidence(step_seconds=[1.0]), [], ["step_time_explosion"]),
    "no step timed": (evidence(step_seconds=[]), ["timing_missing"], []),
    "stalled": (evidence(outcome=Outcome.TIMEOUT, stalled=True), ["heartbeat_stall"], []),
    "reserved at 0.92": (evidence(peak_reserved_bytes=92, available_bytes=100), [], []),
    "reserved above 0.92": (
        evidence(peak_reserved_bytes=93, available_bytes=100),
        ["vram_guard"],
        [],
    ),
    "paging": (evidence(outcome=Outcome.PAGING), ["vram_guard"], []),
    "capacity not known": (evidence(available_bytes=None), [], ["vram_guard"]),
    "reserved not known": (evidence(peak_reserved_bytes=None), [], ["vram_guard"]),
    "on the CPU": (evidence(device=Device.CPU, peak_reserved_bytes=None), [], ["vram_guard"]),
    "several at once": (
        evidence(outcome=Outcome.OUT_OF_MEMORY, losses=[math.nan], step_seconds=[]),
        ["oom", "nan_or_inf", "timing_missing"],
        [],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_gate_fails_passes_or_says_that_it_did_not_judge(case: str) -> None:
    run, failed, not_judged = CASES[case]
    verdict = judge(**run)
    assert verdict.fail_reasons == failed
    assert list(verdict.not_judged) == not_judged
    assert all(verdict.not_judged.values()), "with a reason"
    assert verdict.stable is (run["outcome"] is Outcome.OK and not failed)


@pytest.mark.parametrize("steps", range(1, JUDGEABLE_STEPS))
def test_the_p95_gate_never_passes_in_silence_on_few_steps(steps: int) -> None:
    assert (
        str(steps)
        in judge(**evidence(step_seconds=[1.0] * steps)).not_judged["step_time_explosion"]
    )
    assert judge(**evidence(step_seconds=[1.0] * JUDGEABLE_STEPS)).not_judged == {}


def test_a_run_whose_steps_never_ended_is_not_told_that_they_returned_no_loss() -> None:
    assert judge(**evidence(losses=[], step_seconds=[])).not_judged["nan_or_inf"] == "no step ended"


@pytest.mark.parametrize(
    ("model", "reserved", "physical", "stalled", "paging"),
    [
        ("Linux", 101, 100, False, True),  # whatever the driver says: there is no more
        (None, 101, 100, False, True),
        ("Linux", 100, 100, True, False),
        ("WDDM", 95, 100, True, True),
        ("WDDM", 95, 100, False, False),
        ("WDDM", 92, 100, True, False),
        ("TCC", 95, 100, True, False),
        ("WDDM", None, 100, True, False),
        ("WDDM", 95, None, True, False),
    ],
)
def test_more_memory_than_there_is_or_a_stall_near_it_under_wddm_is_paging(
    model: str | None, reserved: int | None, physical: int | None, stalled: bool, paging: bool
) -> None:
    assert is_paging(reserved, physical, model, stalled) is paging


def test_a_stall_is_ten_medians_and_never_less_than_a_minute() -> None:
    assert stall_threshold_seconds([]) == 60
    assert stall_threshold_seconds([0.1] * 5) == 60
    assert stall_threshold_seconds([7.0, 7.0, 900.0]) == 70


seconds = st.floats(min_value=0, max_value=1e6)


@given(st.lists(seconds, min_size=1, max_size=200))
def test_median_and_p95_are_steps_and_in_order(values: list[float]) -> None:
    assert min(values) <= median_high(values) <= p95(values) <= max(values)
    assert {median_high(values), p95(values)} <= set(values)


@given(
    outcome=st.sampled_from(list(Outcome)),
    stalled=st.booleans(),
    step_seconds=st.lists(seconds, max_size=30),
    losses=st.lists(st.none() | st.floats(), max_size=30),
    reserved=st.none() | st.integers(0, 2**40),
    available=st.none() | st.integers(1, 2**40),
    device=st.sampled_from(list(Device)),
)
def test_stable_means_ok_with_nothing_failed_and_nothing_is_both_failed_and_not_judged(
    outcome: Outcome,
    stalled: bool,
    step_seconds: list[float],
    losses: list[float | None],
    reserved: int | None,
    available: int | None,
    device: Device,
) -> None:
    verdict = judge(
        outcome=outcome,
        stalled=stalled,
        step_seconds=step_seconds,
        losses=losses,
        peak_reserved_bytes=reserved,
        available_bytes=available,
        device=device,
    )
    assert verdict.stable is (outcome == "ok" and verdict.fail_reasons == [])
    assert set(verdict.fail_reasons) <= set(FailReason)
    assert not set(verdict.fail_reasons) & set(verdict.not_judged)
    if verdict.stable and "vram_guard" not in verdict.not_judged:
        assert (
            reserved is not None and available is not None and reserved <= GUARD_RATIO * available
        )
