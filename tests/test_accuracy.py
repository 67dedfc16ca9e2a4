"""Predictions of whole training steps against what was measured on an H200."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from long_tests import long_unless

import vramcast
from vramcast.records.accuracy import ROWS_FILE, read_records, result_from
from vramcast.records.measurement import Measurement, Outcome
from vramcast.suites.catalogue import SUITES, SuiteRow, rows_of

pytestmark = pytest.mark.usefixtures("warm_simulations")
ACCURACY = Path(__file__).parents[1] / "benchmarks" / "accuracy"
RECORDED = read_records(ACCURACY / "h200-torch-2.11")
ROWS = {row.name: row for row in rows_of([])}

# a cross-section that takes seconds; `make accuracy` does all rows
EXACT = [
    "gpt124m-fp32-B8",
    "gpt124m-fp16scaler-B8",
    "gpt124m-amp-ckpt-B32",
    "gpt50m-byte-T512-B256",
    "elman27m-bf16-B64",
    "lstm-fp32-B32-T256",
    "resnet18-amp-channels_last-B128",
    "set-bf16-math-non-reentrant-adamw-loop-default",
    "set-fp16-math-keep-adamw-fused-max_split_size_mb",
    "bertmlm-amp-B16-T512",
    "zoo-gpt2-124m-B8",
    "zoo-od1-small-dense-B4",
]
SOON = ("gpt124m-fp32-B8", "elman27m-bf16-B64", "lstm-fp32-B32-T256", "zoo-gpt2-124m-B8")


def predict(row: SuiteRow, memory: int | None = None) -> vramcast.Prediction:
    return vramcast.predict(
        row.workload, gpu="h200", allocator=row.allocator or "", memory=memory, **row.knobs
    )


@pytest.mark.parametrize("name", long_unless(SOON.__contains__, EXACT))
def test_peak_reserved_is_what_the_gpu_measured_to_the_byte(name: str) -> None:
    prediction, measured = predict(ROWS[name]), RECORDED[name].measurement
    assert measured is not None
    assert prediction.peak_reserved_bytes == measured.peak_reserved_bytes
    assert prediction.peak_allocated_bytes == pytest.approx(measured.peak_allocated_bytes, rel=5e-4)
    assert prediction.process_bytes == pytest.approx(measured.process_bytes, rel=0.02)


@pytest.mark.parametrize(
    "name", ["gpt124m-amp-B8", "set-bf16-efficient-keep-sgd-expandable_segments"]
)
def test_capped_at_the_peak_a_run_ends_as_it_did_on_the_gpu(name: str) -> None:
    """Growing an expandable segment needs more room than it takes: capped at its peak, it fails."""
    capped = RECORDED[name].capped
    assert capped is not None
    prediction = predict(ROWS[name], capped.memory_cap_bytes)
    assert prediction.fits == (capped.outcome == Outcome.OK)
    assert prediction.num_alloc_retries == capped.num_alloc_retries


# GPT-124M, bf16 autocast, T 1024, on the H200 with the allocator capped at 24 GiB
CAPPED = {
    r["batch_size"]: (r["fits"], r["retries"], r["peak_reserved"] if r["fits"] else None)
    for r in map(
        json.loads, (ACCURACY / "history" / "h200-torch-2.11-capped.jsonl").read_text().splitlines()
    )
}


@pytest.mark.parametrize("batch_size", CAPPED)
def test_under_a_cap_it_fits_with_the_retries_and_the_reserved_bytes_of_the_gpu(
    batch_size: int,
) -> None:
    fits, retries, reserved = CAPPED[batch_size]
    prediction = vramcast.predict(
        SUITES["open"][0].workload,
        gpu="h200",
        memory="24GiB",
        autocast="bf16",
        batch_size=batch_size,
    )
    assert (prediction.fits, prediction.num_alloc_retries) == (fits, retries)
    if reserved is not None:
        assert prediction.peak_reserved_bytes == reserved


# the same model at batch 8 under other allocator settings, measured: (allocated, reserved)
SETTINGS = {
    r["settings"]: (r["peak_allocated"], r["peak_reserved"])
    for r in map(
        json.loads,
        (ACCURACY / "history" / "h200-torch-2.11-settings.jsonl").read_text().splitlines(),
    )
    if r["name"] == "gpt124m-amp-B8"
}


@pytest.mark.parametrize("settings", SETTINGS)
def test_allocator_settings_change_memory_as_they_do_on_the_gpu(settings: str) -> None:
    prediction = vramcast.predict(
        SUITES["open"][0].workload, gpu="h200", autocast="bf16", allocator=settings
    )
    assert (prediction.peak_allocated_bytes, prediction.peak_reserved_bytes) == SETTINGS[settings]


def test_the_recorded_run_reaches_what_is_promised_of_reserved_memory() -> None:
    assert set(RECORDED) == set(ROWS)
    result = result_from(RECORDED, ())
    ours = result.reserved["vramcast"]
    assert ours.num_rows >= 60
    assert ours.median is not None and ours.median <= 0.05
    assert ours.p95 is not None and ours.p95 <= 0.5
    assert result.num_capped_failed / result.num_capped <= 0.02
    assert ours.worst is not None and ours.worst <= 1.0
    assert result.worst_process_error is not None and result.worst_process_error <= 2.0


def test_the_readme_says_what_the_generated_page_says() -> None:
    root = ACCURACY.parents[1]
    exact, rows = re.findall(
        r"exact to the byte in (\d+) of (\d+) rows", (root / "docs" / "accuracy.md").read_text()
    )[0]
    assert (
        f"Peak reserved memory is exact to the byte in {exact} of {rows} rows."
        in (root / "README.md").read_text()
    )


def test_what_was_predicted_before_it_was_measured_is_shown_as_it_came_out() -> None:
    """The predictions were committed first; the code has changed since, the file has not.

    Models that changed since were measured again: the first measurement is the one predicted.
    """
    lines = (
        (ACCURACY / "history" / "blind-2-predicted-before-measuring.jsonl").read_text().splitlines()
    )
    blind = {record["row"]: record for record in map(json.loads, lines)}
    first: dict[str, Measurement] = {}
    for line in map(
        json.loads, (ACCURACY / "h200-torch-2.11" / ROWS_FILE).read_text().splitlines()
    ):
        if line["kind"] == "measurement":
            first.setdefault(line["row"], Measurement.from_dict(line["record"]))
    compared = [name for name in blind if name in first and first[name].outcome == Outcome.OK]
    exact = [
        name
        for name in compared
        if blind[name]["peak_reserved_bytes"] == first[name].peak_reserved_bytes
    ]
    assert len(compared) >= 40
    assert len(exact) >= 0.9 * len(compared)


def test_the_generated_page_lists_every_row_that_was_measured() -> None:
    page = (ACCURACY.parents[1] / "docs" / "accuracy.md").read_text()
    measured = [
        name
        for name, row in RECORDED.items()
        if row.measurement is not None and row.measurement.outcome == Outcome.OK
    ]
    assert len(measured) >= 90
    assert [name for name in measured if f"| {name} |" not in page] == []
