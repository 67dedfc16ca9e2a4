"""The records of an accuracy run, row by row, the table of errors made from them, and the goals."""

import math
import statistics
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self, cast

from vramcast.errors import UsageError
from vramcast.records.base import Bytes, Count, Knobs, Number, Part, Record, Seconds, require
from vramcast.records.measurement import Measurement, Outcome
from vramcast.records.prediction import BoundBy, Prediction, StepForecast
from vramcast.records.store import append_line, read_lines
from vramcast.text import printable

METHODS = {
    "vramcast": "vramcast",
    "memtracker": "torch MemTracker, fake tensors",
    "accelerate": "accelerate's estimate",
    "four_times_parameters": "4 x parameters",
}


class RowPrediction(Record, kind="prediction of a row", version_where_missing=1):
    """The fields of a prediction that are compared; `error` says why there is none."""

    workload: str = ""
    knobs: Knobs = field(default_factory=dict)
    gpu: str | None = None
    peak_allocated_bytes: Bytes | None = None
    peak_reserved_bytes: Bytes | None = None
    peak_reserved_bytes_low: Bytes | None = None
    peak_reserved_bytes_high: Bytes | None = None
    process_bytes: Bytes | None = None
    num_parameters: Count | None = None
    num_alloc_retries: Count | None = None
    step_seconds: Seconds | None = None
    step: StepForecast | None = None
    limits: list[str] = field(default_factory=list)
    allocator_settings: str = ""
    torch_version: str = ""
    seconds: Seconds | None = None
    error: str | None = None
    source: str = "predicted"

    @classmethod
    def from_prediction(cls, prediction: Prediction) -> Self:
        names = {field.name for field in fields(cls)} - {"error"}
        return cls(**{name: getattr(prediction, name) for name in names})


class Estimate(Part):
    """The answer of another method; `error` says why it has none."""

    bytes: Bytes | None = None
    error: str | None = None


class PeerEstimates(Record, kind="estimates of other methods", version_where_missing=1):
    memtracker: Estimate
    accelerate: Estimate
    four_times_parameters: Estimate

    @classmethod
    def all_failed(cls, error: str) -> Self:
        return cls(**{field.name: Estimate(error=error) for field in fields(cls)})

    def by_method(self) -> dict[str, int | None]:
        return {field.name: getattr(self, field.name).bytes for field in fields(self)}


class AccuracyRow(Part):
    name: str
    predicted_allocated_bytes: Bytes | None = None
    predicted_reserved_bytes: Bytes | None = None
    predicted_process_bytes: Bytes | None = None
    measured_allocated_bytes: Bytes | None = None
    measured_reserved_bytes: Bytes | None = None
    measured_process_bytes: Bytes | None = None
    # Reserved memory: the predicted range where timing decides, and the peaks of several runs.
    predicted_range_bytes: tuple[int, int] | None = None
    measured_runs_bytes: list[int] = field(default_factory=list)
    # of a run with the memory capped at the prediction
    capped_outcome: Outcome | None = None
    capped_retries: int | None = None
    prediction_seconds: Seconds | None = None
    median_step_seconds: Seconds | None = None
    predicted_step_seconds: Seconds | None = None
    bound_by: BoundBy = BoundBy.NOT_PREDICTED
    calibrated_on: bool = False  # its kernels are among those that predicted times are fitted to
    peers_bytes: dict[str, int | None] = field(default_factory=dict)
    limits: list[str] = field(default_factory=list)
    problem: str | None = None  # why there is no comparison

    @property
    def allocated_error(self) -> float | None:
        return percent_off(self.predicted_allocated_bytes, self.measured_allocated_bytes)

    @property
    def reserved_error(self) -> float | None:
        return percent_off(self.predicted_reserved_bytes, self.measured_reserved_bytes)

    @property
    def process_error(self) -> float | None:
        return percent_off(self.predicted_process_bytes, self.measured_process_bytes)

    @property
    def step_error(self) -> float | None:
        return percent_off(self.predicted_step_seconds, self.median_step_seconds)

    @property
    def exact(self) -> bool:
        return self.reserved_error == 0

    @property
    def num_within(self) -> int | None:
        """How many runs lie between the predicted bounds, where timing decides."""
        if self.predicted_range_bytes is None or not self.measured_runs_bytes:
            return None
        low, high = self.predicted_range_bytes
        return sum(low <= run <= high for run in self.measured_runs_bytes)

    def said_by(self, method: str) -> int | None:
        is_ours = method == "vramcast"
        return self.predicted_reserved_bytes if is_ours else self.peers_bytes.get(method)

    def error_of(self, method: str) -> float | None:
        """The error against reserved memory, whatever the method estimates: reserved memory must
        fit."""
        return percent_off(self.said_by(method), self.measured_reserved_bytes)


class Errors(Part):
    """Errors in percent of the measured value."""

    num_rows: Count
    num_failed: Count
    median: Number | None
    p95: Number | None
    worst: Number | None


class AccuracyResult(Record, kind="accuracy result"):
    """What `vramcast accuracy` found."""

    gpu: str | None
    torch_version: str
    measured_torch_version: str
    rows: list[AccuracyRow]
    num_exact: Count
    reserved: dict[str, Errors]  # by method
    worst_process_error: Number | None
    step_time: Errors  # only rows that the times were not calibrated on
    busy_step_time: Errors  # those of them where the GPU does not wait for the host
    launch_step_time: Errors  # those of them where it does
    num_capped: Count
    num_capped_failed: Count
    source: str = "compared"

    def to_dict(self) -> dict[str, Any]:
        errors = ("allocated_error", "reserved_error", "process_error", "step_error", "exact")
        rows = [
            {**asdict(row), "errors_percent": {key: getattr(row, key) for key in errors}}
            for row in self.rows
        ]
        return {**super().to_dict(), "rows": rows}

    def check(self) -> None:
        require("vramcast" in self.reserved, "reserved has no vramcast")
        require(set(self.reserved) <= set(METHODS), "reserved has a method that is not known")


def percent_off(predicted: float | None, measured: float | None) -> float | None:
    return None if predicted is None or not measured else 100 * (predicted / measured - 1)


def goals(result: AccuracyResult) -> list[tuple[str, bool | None]]:
    """The promises, and whether each was kept; None where that could not be judged."""
    ours, times = result.reserved["vramcast"], result.step_time
    num_unpredicted = sum(row.predicted_reserved_bytes is None for row in result.rows)
    num_rows = ours.num_rows + num_unpredicted
    num_capped, num_failed = result.num_capped, result.num_capped_failed
    # Old records have no step times. Where most rows lack them, step times are not judged.
    timed = times.num_rows > times.num_failed
    return [
        (
            f"every workload is predicted: {ours.num_rows} of {num_rows}",
            not num_unpredicted if num_rows else None,
        ),
        _judged("median |reserved error| at most", 0.05, ours.median),
        _judged("95 % of the workloads within", 0.5, ours.p95),
        _judged("worst at most", 1.0, ours.worst),
        _judged("process memory within", 2.0, result.worst_process_error),
        (
            f"at most 2 % fail capped at the prediction: {num_failed} of {num_capped}",
            100 * num_failed <= 2 * num_capped if num_capped else None,
        ),
        _judged("median |step time error| at most", 10, times.median if timed else None),
        _judged("worst step time within", 25, times.worst if timed else None),
    ]


def _judged(what: str, goal: float, error: float | None) -> tuple[str, bool | None]:
    if error is None:
        return f"{what} {goal} %: not known", None
    return f"{what} {goal} %: {error:.3f} %", error <= goal


ROWS_FILE = "rows.jsonl"
MAX_REASON_CHARACTERS = 160
KINDS: dict[str, type[Record]] = {
    "prediction": RowPrediction,
    "measurement": Measurement,
    "again": Measurement,
    "capped": Measurement,
    "peers": PeerEstimates,
}


@dataclass
class RowRecords:
    """The records of one row. `capped` is a run with the memory capped at the prediction; `again`
    are further runs like the first."""

    prediction: RowPrediction | None = None
    measurement: Measurement | None = None
    again: list[Measurement] = field(default_factory=list)
    capped: Measurement | None = None
    peers: PeerEstimates | None = None


Records = dict[str, RowRecords]  # by the row's name


def append_record(folder: Path, row: str, kind: str, record: Record) -> None:
    append_line(folder / ROWS_FILE, {"row": row, "kind": kind, "record": record.to_dict()})


def rows_file(path: Path) -> Path:
    return path / ROWS_FILE if path.is_dir() else path


def read_records(path: Path) -> Records:
    """The records of a run's folder or file. A later line replaces an earlier one."""
    file = rows_file(path)
    records: Records = {}
    for line in read_lines(file):
        match line:
            case {"row": str(row), "kind": str(kind)} if kind in KINDS:
                where = f"{file}: the {kind} of {printable(row)!r}"
                record = KINDS[kind].from_dict(line.get("record"), where)
                known = records.setdefault(row, RowRecords())
                if kind == "again":
                    known.again.append(cast(Measurement, record))
                else:
                    setattr(known, kind, record)
                if kind == "measurement":
                    known.again = []
    if not records:
        problem = "holds no records of an accuracy run" if file.exists() else "does not exist"
        raise UsageError(f"{file} {problem}.", "Give a folder that vramcast accuracy wrote.")
    return records


def result_from(
    records: Records,
    calibrated_on: Collection[str],
    *,
    gpu: str | None = None,
    torch_version: str | None = None,
) -> AccuracyResult:
    """The result. `calibrated_on` names the rows that the predicted times were fitted to."""
    predicted = [row.prediction for row in records.values() if row.prediction]
    measured = [row.measurement for row in records.values() if row.measurement]
    return summarise(
        [row_from(name, row, name in calibrated_on) for name, row in records.items()],
        gpu=gpu or _listed(run.gpu for run in measured) or None,
        torch_version=torch_version or _listed(run.torch_version for run in predicted),
        measured_torch_version=_listed(run.torch_version for run in measured),
    )


def _listed(values: Iterable[str | None]) -> str:
    return ", ".join(sorted({value for value in values if value}))


def row_from(name: str, records: RowRecords, calibrated_on: bool) -> AccuracyRow:
    prediction = records.prediction or RowPrediction()
    capped, measured = records.capped, records.measurement
    row = AccuracyRow(
        name=name,
        predicted_allocated_bytes=prediction.peak_allocated_bytes,
        predicted_reserved_bytes=prediction.peak_reserved_bytes,
        predicted_process_bytes=prediction.process_bytes,
        capped_outcome=capped.outcome if capped else None,
        capped_retries=capped.num_alloc_retries if capped else None,
        prediction_seconds=prediction.seconds,
        predicted_step_seconds=prediction.step_seconds,
        bound_by=prediction.step.bound_by if prediction.step else BoundBy.NOT_PREDICTED,
        calibrated_on=calibrated_on,
        peers_bytes=records.peers.by_method() if records.peers else {},
        limits=prediction.limits,
        problem=_problem(prediction, measured),
    )
    if measured is None or measured.outcome != Outcome.OK:
        return row
    runs = [measured, *(run for run in records.again if run.outcome == Outcome.OK)]
    runs.sort(key=lambda run: run.peak_reserved_bytes or 0)
    usual = runs[(len(runs) - 1) // 2]
    low, high = prediction.peak_reserved_bytes_low, prediction.peak_reserved_bytes_high
    shown = prediction.peak_reserved_bytes or 0
    bounds = (low or shown, high or shown)
    return replace(
        row,
        measured_allocated_bytes=usual.peak_allocated_bytes,
        measured_reserved_bytes=usual.peak_reserved_bytes,
        measured_process_bytes=usual.process_bytes,
        predicted_range_bytes=bounds if bounds[0] < bounds[1] else None,
        measured_runs_bytes=[run.peak_reserved_bytes or 0 for run in runs],
        median_step_seconds=measured.times.median_seconds if measured.times else None,
    )


def _problem(prediction: RowPrediction, measurement: Measurement | None) -> str | None:
    if prediction.error is not None:
        first_line = prediction.error.strip().partition("\n")[0]
        return f"not predicted: {first_line[:MAX_REASON_CHARACTERS]}"
    if measurement is None:
        return "not measured: there is no record of it"
    if measurement.outcome != Outcome.OK:
        last_line = (measurement.error or "").strip().rpartition("\n")[2]
        return f"not measured: {measurement.outcome}, {last_line[:MAX_REASON_CHARACTERS]}"
    return None


def summarise(rows: list[AccuracyRow], **about: Any) -> AccuracyResult:
    compared = [row for row in rows if row.measured_reserved_bytes is not None]
    methods = METHODS if any(row.peers_bytes for row in rows) else ["vramcast"]
    capped = [row for row in compared if row.capped_outcome is not None]
    unseen = [row for row in compared if not row.calibrated_on]
    busy = [row for row in unseen if row.bound_by in (BoundBy.COMPUTE, BoundBy.BANDWIDTH)]
    waiting = [row for row in unseen if row.bound_by == BoundBy.LAUNCH]
    return AccuracyResult(
        rows=rows,
        **about,
        num_exact=sum(row.exact for row in compared),
        reserved={
            method: errors_over(row.error_of(method) for row in compared) for method in methods
        },
        worst_process_error=errors_over(row.process_error for row in compared).worst,
        step_time=errors_over(row.step_error for row in unseen),
        busy_step_time=errors_over(row.step_error for row in busy),
        launch_step_time=errors_over(row.step_error for row in waiting),
        num_capped=len(capped),
        num_capped_failed=sum(row.capped_outcome != Outcome.OK for row in capped),
    )


def errors_over(values: Iterable[float | None]) -> Errors:
    seen = list(values)
    sizes = sorted(abs(value) for value in seen if value is not None)
    return Errors(
        num_rows=len(sizes),
        num_failed=len(seen) - len(sizes),
        median=statistics.median(sizes) if sizes else None,
        p95=sizes[math.ceil(0.95 * len(sizes)) - 1] if sizes else None,
        worst=max(sizes, default=None),
    )
