"""An accuracy run with fakes for what takes time: what is done, kept, continued and compared."""

from __future__ import annotations

import json
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from vramcast.errors import UsageError, WorkloadError
from vramcast.probing.facts import Facts
from vramcast.probing.measurement import measurement_from
from vramcast.probing.trial import Trial
from vramcast.records.accuracy import (
    ROWS_FILE,
    AccuracyResult,
    AccuracyRow,
    Estimate,
    PeerEstimates,
    Records,
    RowPrediction,
    RowRecords,
    errors_over,
    goals,
    read_records,
    result_from,
    row_from,
    summarise,
)
from vramcast.records.measurement import Measurement, Memory, Outcome
from vramcast.records.prediction import BoundBy, Prediction
from vramcast.records.store import append_line
from vramcast.reporting.accuracy import scatter
from vramcast.reporting.showing import markdown_of
from vramcast.reporting.svg import write_view
from vramcast.suites.accuracy import accuracy, estimates_of_peers, run
from vramcast.suites.catalogue import SUITES, SuiteRow, rows_of
from vramcast.workload.reference import KNOWN_MODELS

GIB = 2**30
ROWS = [
    SuiteRow(name, "train.py:build", {"batch_size": size})
    for name, size in (("one", 1), ("two", 2), ("dies", 3), ("wrong", 4))
]


def prediction(row: SuiteRow, reserved: int) -> Prediction:
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
    row: SuiteRow, reserved: int, outcome: str = "ok", cap: int | None = None
) -> Measurement:
    trial = Trial(workload=row.workload, knobs=row.knobs, memory_cap_bytes=cap)
    facts = Facts(
        outcome=Outcome(outcome),
        step_seconds=[0.1],
        losses=[1.0],
        warm=Memory(allocated_bytes=reserved - 1, reserved_bytes=reserved),
        gpu="NVIDIA H200",
        torch_version="2.11.0",
        wall_seconds=0.1,
        outside_bytes=GIB,
    )
    return measurement_from(trial, facts)


class Machine:
    """Predicts exactly but for the row "wrong"; the row "dies" crashes when it is run."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def predict(self, row: SuiteRow, _: Any) -> Prediction:
        self.asked.append(("predict", row.name))
        return prediction(row, row.knobs["batch_size"] * GIB * (2 if row.name == "wrong" else 1))

    def measure(self, trial: Trial) -> Measurement:
        (row,) = [row for row in ROWS if row.knobs == trial.knobs]
        cap = trial.memory_cap_bytes
        self.asked.append(("measure" if cap is None else "capped", row.name))
        if row.name == "dies":
            return measurement(row, GIB, "crashed")
        return measurement(row, row.knobs["batch_size"] * GIB, cap=cap)

    def ask_peers(self, row: SuiteRow) -> PeerEstimates:
        return PeerEstimates(
            memtracker=Estimate(bytes=GIB),
            accelerate=Estimate(error="it failed"),
            four_times_parameters=Estimate(bytes=1),
        )

    def dependencies(self) -> dict[str, Any]:
        return {"predict": self.predict, "measure": self.measure, "ask_peers": self.ask_peers}


def result_of(records: Records) -> AccuracyResult:
    return result_from({row.name: records[row.name] for row in ROWS}, ())


def test_every_row_is_predicted_measured_and_measured_again_capped_and_a_dying_one_costs_one_row(
    tmp_path: Path,
) -> None:
    machine = Machine()
    records = run(ROWS, tmp_path, {}, **machine.dependencies())
    assert None not in vars(records["one"]).values()
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
    run(ROWS, tmp_path, {}, **first.dependencies())
    file = tmp_path / ROWS_FILE
    file.write_bytes(file.read_bytes()[:-40])  # killed while the last record was written
    again = Machine()
    records = run(ROWS, tmp_path, read_records(tmp_path), **again.dependencies())
    assert len(again.asked) == 1
    assert result_of(records) == result_of(read_records(tmp_path))


def test_a_workload_that_cannot_be_predicted_is_a_row_with_its_reason(tmp_path: Path) -> None:
    machine = Machine()

    def predict(row: SuiteRow, _: Any) -> Prediction:
        raise WorkloadError("The workload's step failed.", "advice")

    dependencies = {**machine.dependencies(), "predict": predict}
    (row,) = result_from(run(ROWS[:1], tmp_path, {}, **dependencies), ()).rows
    assert row.problem == "not predicted: The workload's step failed."
    assert row.reserved_error is None and row.measured_reserved_bytes == GIB


def test_a_row_that_cannot_be_run_is_a_row_with_its_reason(tmp_path: Path) -> None:
    def measure(trial: Trial) -> Measurement:
        raise WorkloadError("There is no package transformers.", "advice")

    run(ROWS, tmp_path, {}, **{**Machine().dependencies(), "measure": measure})
    reasons = {row.problem for row in result_of(read_records(tmp_path)).rows}
    assert reasons == {"not measured: unsupported, There is no package transformers."}


def test_a_row_may_be_a_launch_line(tmp_path: Path) -> None:
    words = ("python", "train.py", "--batch_size={batch_size}")
    row = SuiteRow("program", " ".join(words), {"batch_size": 8}, line=words)
    trials: list[Trial] = []

    def measure(trial: Trial) -> Measurement:
        trials.append(trial)
        return measurement_from(trial, Facts(outcome=Outcome.OK))

    found = run(
        [row],
        tmp_path,
        {},
        predict=lambda row, _: prediction(row, GIB),
        measure=measure,
        ask_peers=estimates_of_peers,
    )["program"]
    assert [trial.line for trial in trials] == [words, words]
    assert found.measurement is not None and found.measurement.knobs == {"batch_size": 8}
    assert found.peers == PeerEstimates.all_failed("takes no launch line")


def test_without_a_gpu_only_predictions_are_made(tmp_path: Path) -> None:
    machine = Machine()
    records = run(ROWS, tmp_path, {}, predict=machine.predict)
    assert {kind for kind, _ in machine.asked} == {"predict"}
    page = markdown_of(result_of(records), "Accuracy")
    assert "nothing was compared" in page and "not measured." in page


def test_the_result_is_the_same_after_a_round_trip_and_its_page_names_every_row(
    tmp_path: Path,
) -> None:
    result = result_of(run(ROWS, tmp_path, {}, **Machine().dependencies()))
    assert AccuracyResult.from_json(result.to_json()) == result
    page = markdown_of(result, "Accuracy")
    assert all(f"| {name} |" in page for name in ("one", "two", "wrong"))
    assert "| dies | not measured" in page
    assert "✗ missed: worst" in page


def test_the_figure_has_every_method(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    chart = scatter(result_of(run(ROWS, tmp_path, {}, **Machine().dependencies())))
    write_view(chart, chart.views[0], tmp_path / "figure.svg")
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
    # nor measured
    rows += [AccuracyRow(name="neither")]
    found = dict(goals(summarise(rows, gpu=None, torch_version="", measured_torch_version="")))
    assert found["every workload is predicted: 3 of 5"] is False
    assert [reached for text, reached in found.items() if "step time" in text] == [None, None]


def timed(
    name: str, predicted: float, bound_by: str, *, calibrated_on: bool = False
) -> AccuracyRow:
    return AccuracyRow(
        name=name,
        predicted_reserved_bytes=GIB,
        measured_reserved_bytes=GIB,
        predicted_step_seconds=predicted,
        median_step_seconds=1.0,
        bound_by=BoundBy(bound_by),
        calibrated_on=calibrated_on,
    )


def test_step_times_are_judged_on_other_rows_than_they_were_calibrated_on() -> None:
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
    assert "| the GPU is busy | 2 | 0 | 3.0 % | 4.0 % | 4.0 % |" in markdown_of(result, "Accuracy")


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


MINE = """
[small]
workload = "python train.py --batch_size={batch_size} --name 'two words'"
batch_size = 8
[function]
workload = "train.py:build"
allocator = "expandable_segments:True"
[words]
workload = ["python", "train.py"]
"""


def test_a_suite_may_be_a_file_with_launch_lines_and_functions(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(MINE)
    small, function, words = rows_of([str(file)])
    assert small.line == (
        *("python", "train.py", "--batch_size={batch_size}", "--name", "two words"),
    )
    assert (small.name, small.knobs) == ("small", {"batch_size": 8})
    assert (function.workload, function.line) == ("train.py:build", ())
    assert function.allocator == "expandable_segments:True"
    assert (words.workload, words.line) == ("python train.py", ("python", "train.py"))


WRONG_SUITES = {
    "workload = 'train.py:build'": "has a row that is not one",
    "[one]\nbatch_size = 8": "has a row that is not one.*workload",
    '[one]\nworkload = "python \'train.py"': "has a row that is not one: No closing quotation",
    "[one]\nworkload = 5": "A workload is a function or its name, not int",
    "[one": "The suite .* is not TOML",
}


@pytest.mark.parametrize("content", WRONG_SUITES)
def test_a_file_that_is_no_suite_is_said_to_be_none(tmp_path: Path, content: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(content)
    with pytest.raises(UsageError, match=WRONG_SUITES[content]):
        rows_of([str(file)])


def test_rows_of_two_suites_have_different_names(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(f"[{SUITES['open'][0].name}]\nworkload = 'a.py:build'")
    with pytest.raises(UsageError, match="Two rows have the name"):
        rows_of(["open", str(tmp_path / "mine.toml")])
    assert rows_of(["open", "open"]) == SUITES["open"]


def test_the_knobs_of_every_row_are_those_of_its_workload() -> None:
    for row in rows_of(SUITES):
        if ":" not in row.workload:
            continue
        module, _, name = row.workload.partition(":")
        if module in ("timm", "torchvision") and find_spec(module) is None:
            continue
        if module in KNOWN_MODELS:
            module = KNOWN_MODELS[module]
        knobs = signature(getattr(import_module(module), name)).parameters
        assert set(row.knobs) <= set(knobs), row.name


def test_any_two_values_of_two_settings_meet_in_a_row() -> None:
    rows = [
        (
            (row.knobs.get("autocast"), row.knobs.get("precision")),
            *(row.knobs[name] for name in ("checkpointing", "attention", "optimizer")),
            row.allocator,
        )
        for row in SUITES["settings"]
    ]
    met = {pair for values in rows for pair in combinations(enumerate(values), 2)}
    choices = [set(values) for values in zip(*rows, strict=True)]
    assert list(map(len, choices)) == [4, 3, 4, 5, 4]
    assert len(met) == sum(len(a) * len(b) for a, b in combinations(choices, 2))


@pytest.mark.parametrize(
    "content", ["", "nonsense\n", '{"row": 3}\n', json.dumps({"row": "a", "kind": "b"}) + "\n"]
)
def test_a_foreign_file_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / ROWS_FILE).write_text(content)
    with pytest.raises(UsageError, match="no records"):
        read_records(tmp_path)


def record(kind: str, **edits: Any) -> dict[str, Any]:
    """A line of the file, with some fields of the record changed."""
    whole = {
        "prediction": RowPrediction.from_prediction(prediction(ROWS[0], GIB)),
        "measurement": measurement(ROWS[0], GIB),
        "peers": Machine().ask_peers(ROWS[0]),
    }[kind]
    return {"row": "one", "kind": kind, "record": {**whole.to_dict(), **edits}}


def recorded(folder: Path) -> Path:
    append_line(folder / ROWS_FILE, record("measurement"))
    return folder / ROWS_FILE


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
    with pytest.raises(UsageError, match="cannot be used|is a file, not a folder") as raised:
        accuracy(out=tmp_path / out, against=tmp_path / "measured", force=force)
    assert out in raised.value.message


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("measurement", "peak_reserved_bytes", "many"),
        ("measurement", "peak_reserved_bytes", float("nan")),
        ("measurement", "peak_reserved_bytes", 10**400),
        ("measurement", "gpu", ["h200"]),
        ("measurement", "outcome", "fine"),
        ("measurement", "times", [None]),
        ("measurement", "times", {"median_seconds": "long"}),
        ("prediction", "step", "launch"),
        ("prediction", "limits", 5),
        ("prediction", "seconds", float("nan")),
        ("peers", "memtracker", [1]),
    ],
)
def test_a_record_with_a_value_of_another_type_is_named_with_its_row_and_field(
    tmp_path: Path, kind: str, field: str, value: Any
) -> None:
    append_line(tmp_path / ROWS_FILE, record(kind, **{field: value}))
    with pytest.raises(UsageError) as raised:
        read_records(tmp_path)
    assert f"rows.jsonl: the {kind} of 'one': {field}" in raised.value.message
    assert "make it again" in raised.value.advice


def test_the_estimates_of_the_other_methods_are_a_record_with_its_kind_and_version() -> None:
    peers = Machine().ask_peers(ROWS[0])
    written = peers.to_dict()
    assert (written["kind"], written["version"]) == ("estimates of other methods", 1)
    assert PeerEstimates.from_dict(written) == peers
    # as older files have them
    del written["kind"], written["version"]
    assert PeerEstimates.from_dict(written) == peers


def test_a_row_that_was_never_measured_is_not_passed_over() -> None:
    """As in a file of records that was cut off."""
    row = row_from("one", RowRecords(prediction=RowPrediction(peak_reserved_bytes=5)), False)
    assert row.problem == "not measured: there is no record of it"
