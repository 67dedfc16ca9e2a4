"""The records of an accuracy run, row by row, and the table of errors made from them."""

import math
import statistics
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vramcast.errors import UsageError
from vramcast.records.accuracy import (
    METHODS,
    AccuracyResult,
    AccuracyRow,
    Errors,
    PeerEstimates,
    RowPrediction,
)
from vramcast.records.base import Record
from vramcast.records.measurement import Measurement, Outcome
from vramcast.records.prediction import BoundBy
from vramcast.records.store import append_line, read_lines
from vramcast.text import printable

ROWS_FILE = "rows.jsonl"
MAX_REASON_CHARACTERS = 160
KINDS: dict[str, type[Record]] = {
    "prediction": RowPrediction,
    "measurement": Measurement,
    "capped": Measurement,
    "peers": PeerEstimates,
}


@dataclass
class RowRecords:
    """Of one row; `capped` is a run with the memory capped at the prediction."""

    prediction: RowPrediction | None = None
    measurement: Measurement | None = None
    capped: Measurement | None = None
    peers: PeerEstimates | None = None


Records = dict[str, RowRecords]  # by the row's name


def append_record(folder: Path, row: str, kind: str, record: Record) -> None:
    append_line(folder / ROWS_FILE, {"row": row, "kind": kind, "record": record.to_dict()})


def rows_file(path: Path) -> Path:
    return path / ROWS_FILE if path.is_dir() else path


def read_records(path: Path) -> Records:
    """Of a run's folder or its file; later lines win."""
    file = rows_file(path)
    records: Records = {}
    for line in read_lines(file):
        match line:
            case {"row": str(row), "kind": str(kind)} if kind in KINDS:
                where = f"{file}: the {kind} of {printable(row)!r}"
                record = KINDS[kind].from_dict(line.get("record"), where)
                setattr(records.setdefault(row, RowRecords()), kind, record)
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
    """The table of these rows. `calibrated_on` names those that the predicted times come from."""
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
    return replace(
        row,
        measured_allocated_bytes=measured.peak_allocated_bytes,
        measured_reserved_bytes=measured.peak_reserved_bytes,
        measured_process_bytes=measured.process_bytes,
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
