"""An accuracy run with everything that costs time faked: what is done, kept, resumed and compared."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from vramcast.errors import UsageError, WorkloadError
from vramcast.probing.measurement import measurement_from
from vramcast.probing.trial import Trial
from vramcast.records.accuracy import AccuracyResult, AccuracyRow
from vramcast.records.measurement import Measurement
from vramcast.records.prediction import Prediction
from vramcast.suites import campaign
from vramcast.suites.accuracy import accuracy
from vramcast.suites.catalogue import SUITES, Row, covering, rows_of
from vramcast.suites.figure import write_figure
from vramcast.suites.page import as_markdown
from vramcast.suites.results import errors_over, goals, summarise

GIB = 2**30
ROWS = [
    Row(name, "train.py:build", {"batch_size": size})
    for name, size in (("one", 1), ("two", 2), ("dies", 3), ("wrong", 4))
]


def prediction(row: Row, reserved: int) -> Prediction:
    empty: dict[str, Any] = {
        "breakdown_bytes": {},
        "largest_tensors": [],
        "timeline": [],
        "limits": [],
        "knobs": row.knobs,
    }
    numbers = dict.fromkeys(
        (
            "first_step_allocated_bytes",
            "first_step_reserved_bytes",
            "num_alloc_retries",
            "num_parameters",
        ),
        0,
    )
    unknown = dict.fromkeys(
        (
            "headroom_bytes",
            "failed_allocation_bytes",
            "step_seconds",
            "tokens_per_second",
            "capacity_bytes",
        )
    )
    return Prediction(
        workload=row.workload,
        gpu="h200",
        peak_allocated_bytes=reserved - 1,
        peak_reserved_bytes=reserved,
        process_bytes=reserved + GIB,
        fits=True,
        peak_phase="",
        step_seconds_reason="",
        allocator_settings="",
        torch_version="2.11.0",
        seconds=1.5,
        **empty,
        **numbers,
        **unknown,
    )


def measurement(
    row: Row, reserved: int, outcome: str = "ok", cap: int | None = None
) -> Measurement:
    trial = Trial(workload=row.workload, knobs=row.knobs, memory_cap_bytes=cap)
    peaks = {"allocated_bytes": reserved - 1, "reserved_bytes": reserved}
    facts = {
        "outcome": outcome,
        "step_seconds": [0.1],
        "losses": [1.0],
        "warm": peaks,
        "gpu": "NVIDIA H200",
        "torch_version": "2.11.0",
    }
    return measurement_from(
        trial, {**facts, "warmup_step_seconds": [], "wall_seconds": 0.1, "outside_bytes": GIB}
    )


class Machine:
    """Predicts exactly but for the row "wrong"; the row "dies" crashes when it is run."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def predict(self, row: Row) -> Prediction:
        self.asked.append(("predict", row.name))
        return prediction(row, row.knobs["batch_size"] * GIB * (2 if row.name == "wrong" else 1))

    def measure(self, row: Row, cap: int | None) -> Measurement:
        self.asked.append(("measure" if cap is None else "capped", row.name))
        if row.name == "dies":
            return measurement(row, GIB, "crashed")
        return measurement(row, row.knobs["batch_size"] * GIB, cap=cap)

    def ask_peers(self, row: Row) -> dict[str, Any]:
        answers = {"memtracker": GIB, "accelerate": None, "four_times_parameters": 1}
        return {
            method: {"bytes": num_bytes, "error": None} for method, num_bytes in answers.items()
        }

    def seams(self) -> campaign.Seams:
        return campaign.Seams(self.predict, self.measure, self.ask_peers)


def result_of(records: campaign.Records) -> AccuracyResult:
    return summarise(
        campaign.compared(ROWS, records),
        gpu="h200",
        torch_version="2.11.0",
        measured_torch_version="2.11.0",
    )


def test_every_row_is_predicted_measured_and_measured_again_capped_and_a_dying_one_costs_one_row(
    tmp_path: Path,
) -> None:
    machine = Machine()
    records = campaign.run(ROWS, tmp_path, machine.seams(), {})
    assert set(records["one"]) == {"prediction", "peers", "measurement", "capped"}
    assert ("capped", "dies") not in machine.asked
    result = result_of(records)
    assert (result.num_exact, result.reserved["vramcast"].num_rows, result.num_capped) == (2, 3, 3)
    assert result.reserved["vramcast"].worst == pytest.approx(100)
    assert result.reserved["accelerate"].num_failed == 3
    assert (
        next(row for row in result.rows if row.name == "dies").problem == "not measured: crashed, "
    )


def test_what_is_on_disk_is_not_done_again_and_a_torn_line_costs_one_record(tmp_path: Path) -> None:
    first = Machine()
    campaign.run(ROWS, tmp_path, first.seams(), {})
    file = tmp_path / campaign.RECORDS_NAME
    file.write_bytes(file.read_bytes()[:-40])  # killed while the last record was written
    again = Machine()
    records = campaign.run(ROWS, tmp_path, again.seams(), campaign.read_records(tmp_path))
    assert len(again.asked) == 1
    assert result_of(records) == result_of(campaign.read_records(tmp_path))


def test_a_workload_that_cannot_be_predicted_is_a_row_with_its_reason(tmp_path: Path) -> None:
    machine = Machine()

    def predict(row: Row) -> Prediction:
        raise WorkloadError("The workload's step failed.", "advice")

    seams = replace(machine.seams(), predict=predict)
    (row,) = campaign.compared(ROWS[:1], campaign.run(ROWS[:1], tmp_path, seams, {}))
    assert row.problem == "not predicted: The workload's step failed."
    assert row.reserved_error is None and row.measured_reserved_bytes == GIB


def test_without_a_gpu_only_predictions_are_made(tmp_path: Path) -> None:
    machine = Machine()
    campaign.run(ROWS, tmp_path, campaign.Seams(machine.predict, None, None), {})
    assert {kind for kind, _ in machine.asked} == {"predict"}


def test_the_result_is_the_same_after_a_round_trip_and_its_page_names_every_row(
    tmp_path: Path,
) -> None:
    result = result_of(campaign.run(ROWS, tmp_path, Machine().seams(), {}))
    assert AccuracyResult.from_json(result.to_json()) == result
    page = as_markdown(result)
    assert all(f"| {name} |" in page for name in ("one", "two", "wrong"))
    assert "- dies: not measured" in page
    assert "✗ missed worst" in page


def test_the_figure_has_every_method(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write_figure(
        result_of(campaign.run(ROWS, tmp_path, Machine().seams(), {})), tmp_path / "figure.svg"
    )
    text = (tmp_path / "figure.svg").read_text()
    assert text.startswith("<?xml") and "MemTracker" in text


def test_goals_are_reached_missed_or_not_judged() -> None:
    nothing = summarise([], gpu=None, torch_version="", measured_torch_version="")
    assert [reached for _, reached in goals(nothing)] == [None] * 8


def test_rows_that_were_not_predicted_miss_a_goal_and_a_few_times_are_not_judged() -> None:
    rows = [timed("timed", 1.0, "compute")]
    rows += [
        AccuracyRow(name=name, predicted_reserved_bytes=GIB, measured_reserved_bytes=GIB)
        for name in "ab"
    ]
    rows += [AccuracyRow(name="not predicted", measured_reserved_bytes=GIB)]
    found = dict(goals(summarise(rows, gpu=None, torch_version="", measured_torch_version="")))
    assert found["every workload is predicted: 3 of 4"] is False
    assert [reached for text, reached in found.items() if "step time" in text] == [None, None]


def timed(
    name: str, predicted: float, bound_by: str, *, calibrated_on: bool = False
) -> AccuracyRow:
    times = {
        "predicted_step_seconds": predicted,
        "median_step_seconds": 1.0,
        "bound_by": bound_by,
        "calibrated_on": calibrated_on,
    }
    return AccuracyRow(
        name=name, predicted_reserved_bytes=GIB, measured_reserved_bytes=GIB, **times
    )


def test_step_times_are_judged_on_rows_they_were_not_calibrated_on_and_apart_where_the_gpu_waits() -> (
    None
):
    rows = [timed("a", 1.02, "compute"), timed("b", 0.96, "bandwidth"), timed("c", 1.3, "launch")]
    rows.append(timed("d", 9.0, "launch", calibrated_on=True))
    result = summarise(rows, gpu="h200", torch_version="", measured_torch_version="")
    assert (
        result.step_time.num_rows,
        result.busy_step_time.num_rows,
        result.launch_step_time.num_rows,
    ) == (3, 2, 1)
    assert result.busy_step_time.worst == pytest.approx(
        4.0
    ) and result.step_time.worst == pytest.approx(30.0)
    assert [reached for _, reached in goals(result)][-2:] == [True, False]
    assert "| the GPU is busy | 2 | 3.0 % | 4.0 % | 4.0 % |" in as_markdown(result)


ERRORS = [
    ([0.0], 0, 0, 0),
    ([-3.0, 1.0], 2, 3, 3),
    ([0.0] * 19 + [5.0], 0, 0, 5),
    ([0.0] * 18 + [4.0, 5.0], 0, 4, 5),
]


@pytest.mark.parametrize(("values", "median", "p95", "worst"), ERRORS)
def test_95_percent_means_all_but_one_in_twenty(
    values: list[float], median: float, p95: float, worst: float
) -> None:
    found = errors_over([*values, None])
    assert (found.median, found.p95, found.worst, found.num_failed) == (median, p95, worst, 1)


def test_there_are_at_least_sixty_workloads_each_with_its_own_name() -> None:
    names = [row.name for row in rows_of([])]
    assert len(names) == len(set(names)) >= 60
    assert len({row.knobs["size"] for row in SUITES["hf"]}) >= 12
    with pytest.raises(UsageError, match="no suite 'opne'"):
        rows_of(["opne"])


def test_in_few_combinations_every_two_values_meet() -> None:
    settings = [("a", "b", "c"), ("x", "y"), ("1", "2", "3", "4")]
    chosen = covering(settings)
    met = {pair for values in chosen for pair in combinations(enumerate(values), 2)}
    assert len(met) == 3 * 2 + 3 * 4 + 2 * 4
    assert len(chosen) <= 14


@pytest.mark.parametrize(
    "content", ["", "nonsense\n", '{"row": 3}\n', json.dumps({"row": "a", "kind": "b"}) + "\n"]
)
def test_a_foreign_file_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / campaign.RECORDS_NAME).write_text(content)
    with pytest.raises(UsageError, match="no records"):
        campaign.read_records(tmp_path)


def recorded(folder: Path) -> Path:
    campaign.append_line(
        folder / campaign.RECORDS_NAME,
        {"row": "x", "kind": "measurement", "record": {"outcome": "ok", "gpu": "h200"}},
    )
    return folder / campaign.RECORDS_NAME


def test_begin_again_with_a_mistyped_request_deletes_nothing(tmp_path: Path) -> None:
    kept = recorded(tmp_path)
    for wrong in ({"only": ["typo"]}, {"suites": ["typo"]}, {"against": tmp_path / "absent"}):
        with pytest.raises(UsageError):
            accuracy(out=tmp_path, force=True, **wrong)  # type: ignore[arg-type]
    assert kept.exists()


def test_begin_again_never_deletes_the_measurements_it_compares_with(tmp_path: Path) -> None:
    kept = recorded(tmp_path)
    for against in (tmp_path, kept):
        with pytest.raises(UsageError, match="--against"):
            accuracy(out=tmp_path, against=against, force=True)
    assert kept.exists()


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("out", ["a-file", "a-file/below", "/proc/absent/below"])
def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, out: str, force: bool) -> None:
    (tmp_path / "a-file").write_text("")
    (tmp_path / "measured").mkdir()
    recorded(tmp_path / "measured")
    with pytest.raises(UsageError, match="cannot be used") as raised:
        accuracy(out=tmp_path / out, against=tmp_path / "measured", force=force)
    assert out in raised.value.message


@pytest.mark.parametrize(
    ("name", "value"),
    [("peak_reserved_bytes", "many"), ("peak_reserved_bytes", float("nan")), ("gpu", ["h200"])],
)
def test_a_record_with_a_value_of_another_kind_is_named(
    tmp_path: Path, name: str, value: Any
) -> None:
    line = {"row": "one", "kind": "measurement", "record": {"outcome": "ok", name: value}}
    campaign.append_line(tmp_path / campaign.RECORDS_NAME, line)
    with pytest.raises(UsageError, match=f"{name} of 'one'"):
        campaign.read_records(tmp_path)


@pytest.mark.parametrize(
    ("kind", "edit"),
    [
        ("measurement", {"times": [None]}),
        ("measurement", {"times": {"median_seconds": "long"}}),
        ("measurement", {"peak_reserved_bytes": 10**400}),
        ("prediction", {"step": "launch"}),
        ("prediction", {"limits": 5}),
        ("prediction", {"seconds": float("nan")}),
        ("peers", {"memtracker": [1]}),
    ],
)
def test_records_that_make_no_row_are_named(
    tmp_path: Path, kind: str, edit: dict[str, Any]
) -> None:
    campaign.append_line(
        tmp_path / campaign.RECORDS_NAME,
        {"row": "one", "kind": kind, "record": {"outcome": "ok", **edit}},
    )
    with pytest.raises(
        UsageError, match=r"rows\.jsonl: the records of 'one' do not fit together"
    ) as raised:
        campaign.read_records(tmp_path)
    assert "measure it again" in raised.value.advice


def test_a_row_that_was_never_measured_is_not_passed_over() -> None:
    """As in a file of records that was cut off."""
    (row,) = campaign.compared(ROWS[:1], {"one": {"prediction": {"peak_reserved_bytes": 5}}})
    assert row.problem == "not measured: there is no record of it"
