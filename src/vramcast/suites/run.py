"""Predicts every row of a suite, measures it, measures it again capped, and asks other methods."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from vramcast.errors import VramcastError
from vramcast.probing.facts import Facts
from vramcast.probing.measurement import measurement_from
from vramcast.probing.trial import Trial
from vramcast.processes.ask import TaskFailed, ask
from vramcast.records.accuracy import PeerEstimates, RowPrediction
from vramcast.records.accuracy_rows import Records, RowRecords, append_record
from vramcast.records.base import Record
from vramcast.records.measurement import Measurement, Outcome
from vramcast.records.prediction import Prediction
from vramcast.suites.catalogue import SuiteRow

PEER_SECONDS = 120.0
R = TypeVar("R")
Predict = Callable[[SuiteRow], Prediction]
# the number is the bytes at which the allocator is capped
Measure = Callable[[SuiteRow, int | None], Measurement]


def run(
    rows: Sequence[SuiteRow],
    folder: Path,
    known: Records,
    *,
    predict: Predict,
    measure: Measure | None = None,
    ask_peers: Callable[[SuiteRow], PeerEstimates] | None = None,
    progress: Callable[[str, str], None] = lambda *_: None,
) -> Records:
    """Do what is not in `known` yet. Records are written at once: a run can be interrupted."""
    records = {row.name: replace(known.get(row.name, RowRecords())) for row in rows}

    def keep(row: SuiteRow, kind: str, record: Record) -> None:
        append_record(folder, row.name, kind, record)
        setattr(records[row.name], kind, record)
        progress(kind, row.name)

    unpredicted = [row for row in rows if records[row.name].prediction is None]
    for row, prediction in _on_all_cores(unpredicted, partial(_predict, predict)):
        keep(row, "prediction", prediction)
    if ask_peers is not None:
        unasked = [row for row in rows if records[row.name].peers is None]
        for row, peers in _on_all_cores(unasked, ask_peers):
            keep(row, "peers", peers)
    if measure is not None:
        for row in rows:
            have = records[row.name]
            if have.measurement is None:
                keep(row, "measurement", _measure(measure, row, None))
            if have.capped is None and (cap := _cap_bytes(have)) is not None:
                keep(row, "capped", _measure(measure, row, cap))
    return records


def _cap_bytes(records: RowRecords) -> int | None:
    """Where a run was predicted and measured, it is run again with no more than was predicted."""
    prediction, measurement = records.prediction, records.measurement
    if prediction is None or measurement is None or measurement.outcome != Outcome.OK:
        return None
    return prediction.peak_reserved_bytes


def _predict(predict: Predict, row: SuiteRow) -> RowPrediction:
    try:
        return RowPrediction.from_prediction(predict(row))
    except VramcastError as error:
        return RowPrediction(workload=row.workload, error=str(error))


def _measure(measure: Measure, row: SuiteRow, cap: int | None) -> Measurement:
    try:
        return measure(row, cap)
    except VramcastError as error:  # a row that cannot run must not end the others
        trial = Trial(workload=row.workload, knobs=row.knobs, memory_cap_bytes=cap)
        return measurement_from(trial, Facts(outcome=Outcome.UNSUPPORTED, error=error.message))


def _on_all_cores(
    rows: Sequence[SuiteRow], work: Callable[[SuiteRow], R]
) -> Iterator[tuple[SuiteRow, R]]:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        futures = {pool.submit(work, row): row for row in rows}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


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
