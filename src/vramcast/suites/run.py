"""Predicts every row of a suite, measures it, measures it again capped, and asks other methods."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

from vramcast.errors import VramcastError
from vramcast.probing.facts import Facts
from vramcast.probing.measurement import measurement_from
from vramcast.probing.trial import Trial
from vramcast.processes.ask import TaskFailed, ask
from vramcast.records.accuracy import (
    PeerEstimates,
    Records,
    RowPrediction,
    RowRecords,
    append_record,
)
from vramcast.records.base import Record
from vramcast.records.measurement import Measurement, Outcome
from vramcast.records.prediction import Prediction
from vramcast.suites.catalogue import SuiteRow

PEER_SECONDS = 120.0
# the number is the bytes at which the allocator is capped
Measure = Callable[[SuiteRow, int | None], Measurement]


def run(
    rows: Sequence[SuiteRow],
    folder: Path,
    known: Records,
    *,
    predict: Callable[[SuiteRow], Prediction],
    measure: Measure | None = None,
    ask_peers: Callable[[SuiteRow], PeerEstimates] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Records:
    """Do what is not in `known` yet. Records are written at once: a run can be interrupted."""
    records = {row.name: replace(known.get(row.name, RowRecords())) for row in rows}

    def keep(row: SuiteRow, kind: str, record: Record) -> None:
        append_record(folder, row.name, kind, record)
        setattr(records[row.name], kind, record)
        progress(f"{kind} {row.name}")

    def on_all_cores(kind: str, make: Callable[[SuiteRow], Record]) -> None:
        missing = [row for row in rows if getattr(records[row.name], kind) is None]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            futures = {pool.submit(make, row): row for row in missing}
            try:
                for future in as_completed(futures):
                    keep(futures[future], kind, future.result())
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def predicted(row: SuiteRow) -> RowPrediction:
        try:
            return RowPrediction.from_prediction(predict(row))
        except VramcastError as error:
            return RowPrediction(workload=row.workload, error=str(error))

    on_all_cores("prediction", predicted)
    if ask_peers is not None:
        on_all_cores("peers", ask_peers)
    if measure is not None:
        for row in rows:
            have = records[row.name]
            if have.measurement is None:
                keep(row, "measurement", _measured(measure, row))
            if have.capped is None and (cap := _cap_bytes(have)) is not None:
                keep(row, "capped", _measured(measure, row, cap))
    return records


def _cap_bytes(records: RowRecords) -> int | None:
    """Where a run was predicted and measured, it is run again with no more than was predicted."""
    prediction, measurement = records.prediction, records.measurement
    if prediction is None or measurement is None or measurement.outcome != Outcome.OK:
        return None
    return prediction.peak_reserved_bytes


def _measured(measure: Measure, row: SuiteRow, cap: int | None = None) -> Measurement:
    try:
        return measure(row, cap)
    except VramcastError as error:  # a row that cannot run must not end the others
        trial = Trial(workload=row.workload, knobs=row.knobs, memory_cap_bytes=cap)
        return measurement_from(trial, Facts(outcome=Outcome.UNSUPPORTED, error=error.message))


def estimates_of_peers(row: SuiteRow) -> PeerEstimates:
    """In a process of its own: the other methods start CUDA, and a workload may do anything."""
    try:
        answer = ask(
            "vramcast.suites.peers:estimates",
            {"workload": row.workload, "knobs": row.knobs},
            timeout_seconds=PEER_SECONDS,
            environment={"OMP_NUM_THREADS": "1"},
        )
        return PeerEstimates.from_dict(answer)
    except VramcastError as problem:
        kind = problem.kind if isinstance(problem, TaskFailed) else type(problem).__name__
        return PeerEstimates.all_failed(kind)
