"""From what a run told to a record: nothing measured is lost, nothing edited is believed."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vramcast.errors import UsageError
from vramcast.probing.facts import Facts
from vramcast.probing.measurement import measurement_from, unfinished
from vramcast.probing.run_folder import read_measurement
from vramcast.probing.trial import Trial
from vramcast.processes.ask import FailureKind, TaskFailed
from vramcast.records.measurement import Device, Measurement, Memory, Outcome
from vramcast.records.prediction import Prediction
from vramcast.workload import Text

GIB = 2**30
TRIAL = Trial(workload="work.py:build", knobs={"batch_size": Text("4")})


def memory(gib: int) -> Memory:
    return Memory(allocated_bytes=gib * GIB, reserved_bytes=(gib + 1) * GIB)


# what a worker has told, phase after phase
TOLD: dict[str, dict[str, Any]] = {
    "start": {},
    "loading": {
        "gpu": "H200",
        "capacity_bytes": 140 * GIB,
        "context_bytes": 500,
        "torch_version": "2.13",
        "driver_model": "Linux",
    },
    "build": {"knobs": {"batch_size": 4, "seq_len": 16}},
    "warm-up": {"build_seconds": 1.5, "num_parameters": 7, "build": memory(1)},
    "warming up": {"first_step": memory(3), "warmup_seconds": [9.0], "losses": [5.0]},
    "measure": {"cold": memory(4), "warmup_seconds": [9.0, 2.0], "losses": [5.0, 4.0]},
    "measuring": {"step_seconds": [1.0, 3.0], "losses": [5.0, 4.0, 3.0, None]},
    "done": {"warm": memory(2), "wall_seconds": 5.0},
}
PHASES = list(TOLD)
WORDS = "last words"
ENDS = {
    "killed": TaskFailed(FailureKind.KILLED, "Killed.", WORDS, signal="SIGKILL"),
    "exited": TaskFailed(FailureKind.EXITED, "It left.", WORDS),
    "too long": TaskFailed(FailureKind.TIMEOUT, "Too late.", WORDS),
    "stalled": TaskFailed(FailureKind.STOPPED, "Stopped.", WORDS),
}


def facts_until(phase: str, **others: Any) -> Facts:
    told: dict[str, Any] = {}
    for name in PHASES[: PHASES.index(phase) + 1]:
        told.update(TOLD[name])
    return Facts(**{**told, **others})


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("phase", PHASES)
def test_whenever_and_however_a_worker_dies_what_it_had_measured_is_in_the_record(
    phase: str, end: str
) -> None:
    facts = facts_until(phase)
    record = measurement_from(TRIAL, facts, ENDS[end])
    assert record.outcome == ("timeout" if end in ("too long", "stalled") else "crashed")
    assert not record.verdict.stable
    assert record.error
    assert record.signal == ("SIGKILL" if end == "killed" else None)
    assert (WORDS in record.error) is (end in ("killed", "exited"))
    assert ("heartbeat_stall" in record.verdict.fail_reasons) is (end == "stalled")
    for name in ("gpu", "capacity_bytes", "context_bytes", "build_seconds", "num_parameters"):
        assert getattr(record, name) == getattr(facts, name), name
    phases = ("build", "first_step", "cold", "warm")
    for name in phases:
        assert getattr(record, name) == getattr(facts, name), name
    assert record.losses == facts.losses
    assert record.warmup_seconds == facts.warmup_seconds
    assert record.steps_done == len(facts.step_seconds)
    assert (record.times.seconds if record.times else []) == facts.step_seconds
    known = [m for m in (getattr(facts, name) for name in phases) if m is not None]
    assert record.peak_allocated_bytes == max((m.allocated_bytes for m in known), default=None)
    assert record.peak_reserved_bytes == max((m.reserved_bytes for m in known), default=None)
    assert record.knobs == (facts.knobs or {"batch_size": "4"})
    assert Measurement.from_json(record.to_json()) == record


def test_a_sound_run_has_rates_by_the_wall_clock_and_process_memory_from_peak_and_outside() -> None:
    facts = facts_until(
        "done", outcome=Outcome.OK, outside_bytes=900, num_alloc_retries=0, last=memory(1)
    )
    record = measurement_from(TRIAL, facts, seconds=12.0)
    assert (record.outcome, record.verdict.stable, record.seconds) == ("ok", True, 12.0)
    assert record.samples_per_second == 4 * 2 / 5.0
    assert record.tokens_per_second == 16 * 4 * 2 / 5.0
    assert record.process_bytes == 5 * GIB + 900
    assert record.loaded_kernels_bytes == 400
    assert record.notes == []


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_broken_off_run_names_the_clock_of_its_device(device: str) -> None:
    times = measurement_from(
        Trial(workload="w", device=Device(device)), facts_until("measuring"), ENDS["killed"]
    ).times
    assert times is not None
    assert times.clock == {"cuda": "cuda_events", "cpu": "perf_counter"}[device]
    assert times.wall_seconds == 4.0


def test_on_the_cpu_nothing_is_reserved() -> None:
    record = measurement_from(
        Trial(workload="w", device=Device.CPU), facts_until("done", outcome=Outcome.OK)
    )
    assert record.peak_reserved_bytes is None
    assert record.peak_allocated_bytes == 4 * GIB


@pytest.mark.parametrize(
    ("cap_gib", "guarded"), [(None, False), (6, False), (5, True), (1000, False)]
)
def test_a_cap_counts_as_the_card_and_never_as_a_larger_one(
    cap_gib: int | None, guarded: bool
) -> None:
    trial = Trial(workload="w", memory_cap_bytes=None if cap_gib is None else cap_gib * GIB)
    facts = facts_until("done", outcome=Outcome.OK)  # 5 GiB at the most
    assert ("vram_guard" in measurement_from(trial, facts).verdict.fail_reasons) is guarded
    small_card = replace(facts, capacity_bytes=5 * GIB)
    assert "vram_guard" in measurement_from(trial, small_card).verdict.fail_reasons


def test_more_than_the_card_has_is_paging_whatever_the_worker_says() -> None:
    record = measurement_from(
        TRIAL, facts_until("done", outcome=Outcome.OK, capacity_bytes=4 * GIB)
    )
    assert (record.outcome, record.verdict.stable) == ("paging", False)
    assert record.verdict.fail_reasons == ["vram_guard"]


def test_a_stall_near_the_limit_under_wddm_is_paging_and_so_is_no_other() -> None:
    near = {"capacity_bytes": 5 * GIB + GIB // 10, "driver_model": "WDDM"}
    stalled, out = facts_until("measuring", **near), Outcome.OUT_OF_MEMORY
    assert measurement_from(TRIAL, stalled, ENDS["stalled"]).outcome == "paging"
    elsewhere = replace(stalled, driver_model="TCC")
    assert measurement_from(TRIAL, elsewhere, ENDS["stalled"]).outcome == "timeout"
    assert measurement_from(TRIAL, replace(stalled, outcome=out)).outcome == out


def test_no_step_timed_has_no_times_and_equal_or_instant_steps_no_spread() -> None:
    for seconds in ([], [2.0, 2.0], [0.0, 0.0]):
        times = measurement_from(TRIAL, Facts(step_seconds=seconds)).times
        assert (times.spread if times else None) == (0.0 if seconds else None)


def test_an_unfinished_record_says_so_and_keeps_the_steps_heard_of() -> None:
    assert unfinished(TRIAL, Facts()).outcome == "unfinished"
    record = unfinished(TRIAL, facts_until("measuring"))
    assert (record.outcome, record.steps_done, record.verdict.stable) == ("unfinished", 2, False)


def whole() -> Measurement:
    losses = [1.0, math.inf, -math.inf, None]
    return measurement_from(TRIAL, facts_until("done", outcome=Outcome.OK, losses=losses))


def test_a_record_comes_back_from_json_as_it_was_and_its_json_is_everyones() -> None:
    record = whole()

    def refuse(name: str) -> Any:
        raise AssertionError(f"{name} is not JSON")

    json.loads(record.to_json(), parse_constant=refuse)
    assert Measurement.from_json(record.to_json()) == record
    nan = Measurement.from_json(
        measurement_from(
            TRIAL, facts_until("done", outcome=Outcome.OK, losses=[math.nan])
        ).to_json()
    )
    assert math.isnan(nan.losses[0] or 0.0)


def test_a_later_programs_extra_fields_are_left_out() -> None:
    assert Measurement.from_dict({**whole().to_dict(), "of_the_future": 1}) == whole()


EDITS: dict[str, Any] = {
    "no outcome": {"outcome": None},
    "another outcome": {"outcome": "splendid"},
    "an older version": {"version": 0},
    "a newer version": {"version": 2},
    "a version that is true": {"version": True},
    "a prediction": {"source": "predicted"},
    "text for a number": {"peak_allocated_bytes": "12"},
    "a fraction of a byte": {"peak_allocated_bytes": 1.5},
    "true for a number": {"steps_done": True},
    "none for a list": {"losses": None},
    "text for losses": {"losses": "nan"},
    "a loss that is text": {"losses": ["much"]},
    "a verdict that is none": {"verdict": None},
    "a verdict that is a list": {"verdict": [True]},
    "a verdict cut short": {"verdict": {"stable": True}},
    "a verdict of text": {"verdict": {"stable": "yes", "fail_reasons": [], "not_judged": {}}},
    "memory with a hole": {"cold": {"allocated_bytes": 1}},
    "memory that is a number": {"warm": 3},
    "times of text": {"times": {**whole().to_dict()["times"], "seconds": ["1"]}},
    "knobs that are a list": {"knobs": []},
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_or_foreign_record_is_refused_with_a_reason(edit: str) -> None:
    with pytest.raises(UsageError) as caught:
        Measurement.from_dict({**whole().to_dict(), **EDITS[edit]})
    assert caught.value.message and caught.value.advice


@pytest.mark.parametrize("missing", ["workload", "outcome", "verdict", "version", "measure_steps"])
def test_a_record_that_lacks_something_is_refused(missing: str) -> None:
    data = whole().to_dict()
    del data[missing]
    with pytest.raises(UsageError, match=missing):
        Measurement.from_dict(data)


def test_a_record_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    text = whole().to_json()
    for end in range(0, len(text), 37):
        (tmp_path / "metrics.json").write_text(text[:end])
        with pytest.raises(UsageError):
            read_measurement(tmp_path)


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return (open, ("sprung", "w"))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[]",
        b"3",
        b'"text"',
        b"[" * 100_000,
        pickle.dumps(Trap()),
        b"!!python/object/apply:os.system [id]",
    ],
    ids=["empty", "no UTF-8", "null", "list", "number", "text", "deep", "pickle", "yaml"],
)
def test_whatever_else_is_in_a_file_is_refused_and_never_run(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "metrics.json").write_bytes(content)
    for place in (tmp_path, tmp_path / "metrics.json"):
        with pytest.raises(UsageError):
            read_measurement(place)
    assert not (tmp_path / "sprung").exists()


def test_a_folder_without_a_record_is_named(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "absent"):
        with pytest.raises(UsageError, match=str(place)):
            read_measurement(place)


def test_a_prediction_is_not_read_as_a_measurement_nor_the_other_way() -> None:
    with pytest.raises(UsageError, match="not a prediction"):
        Prediction.from_dict(whole().to_dict())


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-1e308"])
def test_a_number_that_nobody_measured_is_refused(number: str) -> None:
    """Sums of such numbers overflow: far from the file that would be a traceback."""
    text = measurement_from(TRIAL, facts_until("done", outcome=Outcome.OK), seconds=12.5).to_json()
    assert Measurement.from_json(text).seconds == 12.5
    with pytest.raises(UsageError, match="seconds|JSON"):
        Measurement.from_json(text.replace("12.5", number))
