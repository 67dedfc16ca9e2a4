"""A row that was run several times, because timing decides what it takes."""

from __future__ import annotations

from pathlib import Path

from vramcast.probing.facts import Facts
from vramcast.probing.measurement import measurement_from
from vramcast.probing.trial import Trial
from vramcast.records.accuracy import (
    RowPrediction,
    append_record,
    read_records,
    result_from,
)
from vramcast.records.measurement import Measurement, Memory, Outcome
from vramcast.reporting.showing import markdown_of

GIB = 2**30


def took(gib: int) -> Measurement:
    peak = Memory(allocated_bytes=GIB, reserved_bytes=gib * GIB)
    facts = Facts(outcome=Outcome.OK, step_seconds=[0.1], losses=[1.0], warm=peak)
    return measurement_from(Trial(workload="train.py:build"), facts)


def test_the_usual_run_is_compared_and_the_page_says_how_many_lie_within_the_bounds(
    tmp_path: Path,
) -> None:
    said = RowPrediction(
        peak_reserved_bytes=6 * GIB,
        peak_reserved_bytes_low=5 * GIB,
        peak_reserved_bytes_high=7 * GIB,
    )
    append_record(tmp_path, "one", "prediction", said)
    append_record(tmp_path, "one", "measurement", took(2))
    append_record(tmp_path, "one", "again", took(3))  # of the run before: forgotten with it
    for kind, gib in (("measurement", 8), ("again", 6), ("again", 5), ("again", 7)):
        append_record(tmp_path, "one", kind, took(gib))
    result = result_from(read_records(tmp_path), ())
    (row,) = result.rows
    assert row.exact and row.num_within == 3
    page = markdown_of(result, "title")
    assert "5.00 GiB to 8.00 GiB in 4 runs, 3 within 5.00 GiB to 7.00 GiB" in page


def test_one_run_without_bounds_needs_no_word(tmp_path: Path) -> None:
    append_record(tmp_path, "one", "prediction", RowPrediction(peak_reserved_bytes=6 * GIB))
    append_record(tmp_path, "one", "measurement", took(6))
    assert " in 1 run" not in markdown_of(result_from(read_records(tmp_path), ()), "title")
