"""Predictions of whole training steps against what was measured on an H200."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import vramcast

ACCURACY = Path(__file__).parents[1] / "benchmarks" / "accuracy"
RECORDS = ACCURACY / "records"

# (row, workload, knobs): a cross-section that takes seconds; `make accuracy` does all rows
EXACT = [
    ("gpt124m-fp32-B8", "models.py:gpt", {}),
    ("gpt124m-fp16scaler-B8", "models.py:gpt", {"autocast": "fp16", "scale_loss": True}),
    ("gpt124m-amp-ckpt-B32", "models.py:gpt", {"autocast": "bf16", "batch_size": 32, "checkpointing": "non-reentrant"}),
    ("gpt50m-byte-T512-B256", "models.py:gpt", {"autocast": "bf16", "vocabulary": 256, "width": 640, "depth": 10, "heads": 10, "seq_len": 512, "batch_size": 256}),
    ("elman27m-bf16-B64", "models.py:elman", {"precision": "bf16"}),
    ("bertmlm-amp-B16-T512", "huggingface.py:huggingface", {"size": "bert", "autocast": "bf16", "batch_size": 16, "seq_len": 512}),
]


def measured() -> dict[str, tuple[int, int]]:
    records = map(json.loads, (RECORDS / "h200-torch-2.11-development.jsonl").read_text().splitlines())
    return {r["name"]: (r["peak_alloc"], r["peak_reserved"]) for r in records if "error" not in r}


@pytest.mark.parametrize(("row", "workload", "knobs"), EXACT)
def test_peak_allocated_and_reserved_are_what_the_gpu_measured(row: str, workload: str, knobs: dict[str, object]) -> None:
    prediction = vramcast.predict(str(ACCURACY / workload), gpu="h200", **knobs)
    assert (prediction.peak_allocated_bytes, prediction.peak_reserved_bytes) == measured()[row]


# GPT-124M, bf16 autocast, T 1024, the allocator capped at 24 GiB with set_per_process_memory_fraction on the H200
CAPPED = {
    r["batch_size"]: (r["fits"], r["retries"], r["peak_reserved"] if r["fits"] else None)
    for r in map(json.loads, (RECORDS / "h200-torch-2.11-capped.jsonl").read_text().splitlines())
}


@pytest.mark.parametrize("batch_size", CAPPED)
def test_under_a_cap_it_fits_with_the_retries_and_the_reserved_bytes_of_the_gpu(batch_size: int) -> None:
    fits, retries, reserved = CAPPED[batch_size]
    prediction = vramcast.predict(f"{ACCURACY}/models.py:gpt", gpu="h200", memory="24GiB", autocast="bf16", batch_size=batch_size)
    assert (prediction.fits, prediction.num_alloc_retries) == (fits, retries)
    if reserved is not None:
        assert prediction.peak_reserved_bytes == reserved


# the same model at batch 8 under other allocator settings, measured on the H200: (allocated, reserved)
SETTINGS = {
    r["settings"]: (r["peak_allocated"], r["peak_reserved"])
    for r in map(json.loads, (RECORDS / "h200-torch-2.11-settings.jsonl").read_text().splitlines())
    if r["name"] == "gpt124m-amp-B8"
}


@pytest.mark.parametrize("settings", SETTINGS)
def test_allocator_settings_change_memory_as_they_do_on_the_gpu(settings: str) -> None:
    prediction = vramcast.predict(f"{ACCURACY}/models.py:gpt", gpu="h200", autocast="bf16", allocator=settings)
    assert (prediction.peak_allocated_bytes, prediction.peak_reserved_bytes) == SETTINGS[settings]


def test_the_generated_table_lists_every_row_that_was_measured() -> None:
    rows = [json.loads(line)["name"] for line in (RECORDS / "predicted.jsonl").read_text().splitlines()]
    report = (ACCURACY.parents[1] / "docs" / "accuracy.md").read_text()
    assert len(rows) >= 57
    assert all(f"| {row} |" in report for row in rows)
