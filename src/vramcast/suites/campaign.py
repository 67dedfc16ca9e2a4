"""Predict, measure, measure again capped at the prediction, ask the peers: for every row of a suite, resumable, one record a line.

What costs time is given from outside (`Seams`), so that everything else is tested without a GPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vramcast.errors import UsageError, VramcastError
from vramcast.processes.lifetime import child_environment
from vramcast.records.accuracy import AccuracyRow
from vramcast.records.base import convert
from vramcast.records.measurement import Measurement
from vramcast.records.prediction import Prediction
from vramcast.records.store import append_line, read_lines
from vramcast.suites.catalogue import Row
from vramcast.suites.results import METHODS, row_from
from vramcast.text import printable

RECORDS_NAME = "rows.jsonl"
PEER_SECONDS = 120.0
# of a prediction's record what the comparison needs; timeline and tensors are for people
PREDICTION_FIELDS = (
    *(
        "workload",
        "knobs",
        "gpu",
        "peak_allocated_bytes",
        "peak_reserved_bytes",
        "process_bytes",
        "num_parameters",
        "num_alloc_retries",
    ),
    *(
        "step_seconds",
        "step",
        "limits",
        "allocator_settings",
        "torch_version",
        "seconds",
        "source",
        "version",
    ),
)
NUMBER_FIELDS = (
    "peak_allocated_bytes",
    "peak_reserved_bytes",
    "process_bytes",
    "num_alloc_retries",
)
MEASURE_AGAIN = "It was edited or made by another program: measure it again."
TEXT_FIELDS = ("gpu", "torch_version", "outcome", "error")
Records = dict[str, dict[str, dict[str, Any]]]  # row -> kind -> record


@dataclass(frozen=True)
class Seams:
    predict: Callable[[Row], Prediction]
    measure: (
        Callable[[Row, int | None], Measurement] | None
    )  # with the allocator capped at so many bytes; None without a GPU
    ask_peers: Callable[[Row], dict[str, Any]] | None


def run(
    rows: Sequence[Row],
    folder: Path,
    seams: Seams,
    known: Records,
    progress: Callable[[str, str], None] = lambda *_: None,
) -> Records:
    """Do what is not in `known` yet; every record is on disk before the next is made."""
    records: Records = {row.name: dict(known.get(row.name, {})) for row in rows}

    def keep(row: Row, kind: str, record: dict[str, Any]) -> None:
        append_line(folder / RECORDS_NAME, {"row": row.name, "kind": kind, "record": record})
        records[row.name][kind] = record
        progress(kind, row.name)

    missing = [row for row in rows if "prediction" not in records[row.name]]
    for row, record in _on_all_cores(missing, lambda row: _prediction(seams, row)):
        keep(row, "prediction", record)
    if seams.ask_peers is not None:
        for row, record in _on_all_cores(
            [row for row in rows if "peers" not in records[row.name]], seams.ask_peers
        ):
            keep(row, "peers", record)
    if seams.measure is not None:
        for row in rows:
            have = records[row.name]
            if "measurement" not in have:
                keep(row, "measurement", _measurement(seams, row, None))
            predicted = have["prediction"].get("peak_reserved_bytes")
            if (
                "capped" not in have
                and predicted is not None
                and have["measurement"]["outcome"] == "ok"
            ):
                keep(row, "capped", _measurement(seams, row, predicted))
    return records


def _prediction(seams: Seams, row: Row) -> dict[str, Any]:
    try:
        record = seams.predict(row).to_dict()
        return {name: record[name] for name in PREDICTION_FIELDS}
    except VramcastError as error:
        return {"error": str(error)}


def _measurement(seams: Seams, row: Row, cap: int | None) -> dict[str, Any]:
    assert seams.measure is not None
    try:
        return seams.measure(row, cap).to_dict()
    except VramcastError as error:  # one row that cannot run costs one row
        return {"outcome": "unsupported", "error": str(error)}


def _on_all_cores(
    rows: Sequence[Row], work: Callable[[Row], dict[str, Any]]
) -> Iterable[tuple[Row, dict[str, Any]]]:
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        futures = {pool.submit(work, row): row for row in rows}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def read_records(path: Path) -> Records:
    """The records of a run's folder or of its file; later lines win."""
    file = path / RECORDS_NAME if path.is_dir() else path
    if not file.exists():
        raise UsageError(f"{file} does not exist.", "Give a folder that vramcast accuracy wrote.")
    records: Records = {}
    for line in read_lines(file):
        if (
            isinstance(line.get("row"), str)
            and isinstance(line.get("kind"), str)
            and isinstance(line.get("record"), dict)
        ):
            _check_record(file, line["row"], line["record"])
            records.setdefault(line["row"], {})[line["kind"]] = line["record"]
    if not records:
        raise UsageError(
            f"{file} holds no records of an accuracy run.",
            "Give a folder that vramcast accuracy wrote.",
        )
    for row, kinds in records.items():
        _check_row(file, row, kinds)
    return records


def _check_record(file: Path, row: str, record: dict[str, Any]) -> None:
    """What is computed with must be of its kind: a file can be edited by hand."""
    wrong = [name for name in NUMBER_FIELDS if type(record.get(name, 0)) not in (int, type(None))]
    wrong += [name for name in TEXT_FIELDS if not isinstance(record.get(name), str | None)]
    if wrong:
        what = f"{file} has {printable(repr(record[wrong[0]]), 80)} as {wrong[0]} of {printable(row)!r}."
        raise UsageError(what, MEASURE_AGAIN)


def _check_row(file: Path, row: str, kinds: dict[str, dict[str, Any]]) -> None:
    """Whatever else a row takes from its records is of its type as well."""
    try:
        convert(asdict(row_from(row, kinds)), AccuracyRow, "This row")
    except (AttributeError, TypeError, UsageError) as problem:
        what = f"{file}: the records of {printable(row)!r} do not fit together ({printable(str(problem).splitlines()[0], 120)})."
        raise UsageError(what, MEASURE_AGAIN) from None


def compared(rows: Sequence[Row], records: Records) -> list[AccuracyRow]:
    return [row_from(row.name, records.get(row.name, {})) for row in rows]


def ask_peers(row: Row) -> dict[str, Any]:
    """In a process of its own: fake tensors on the GPU start CUDA, and a workload may do anything."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "vramcast.suites.peers"],
            input=json.dumps({"workload": row.workload, "knobs": row.knobs}),
            capture_output=True,
            text=True,
            timeout=PEER_SECONDS,
            env=child_environment(OMP_NUM_THREADS="1"),
        )
        answer = json.loads(done.stdout)
        assert isinstance(answer, dict)
        return answer
    except (subprocess.TimeoutExpired, ValueError, AssertionError) as problem:
        return {
            method: {"bytes": None, "error": type(problem).__name__}
            for method in METHODS
            if method != "vramcast"
        }
