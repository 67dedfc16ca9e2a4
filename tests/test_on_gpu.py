"""On a real GPU: a step predicted and measured, under a cap, traced, and the cost of a probe."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import vramcast
from vramcast.hardware import nvml
from vramcast.probing.manager import Prober
from vramcast.probing.trial import Trial
from vramcast.tracing.diff import diff_traces
from vramcast.tracing.files import read_trace

GPT = "vramcast_zoo.suites.models:gpt"
TINY = {"vocabulary": 1000, "width": 128, "heads": 4, "depth": 3, "batch_size": 2, "seq_len": 128}
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not any("H200" in gpu.name for gpu in nvml.gpu_states()),
        reason="needs an NVIDIA H200; recorded results are in test_accuracy.py",
    ),
]


@pytest.mark.parametrize("knobs", [TINY, {"autocast": "bf16"}])
def test_what_is_predicted_is_what_the_gpu_measures(knobs: dict[str, Any]) -> None:
    measured = vramcast.probe(GPT, steps=4, **knobs)
    prediction = vramcast.predict(GPT, gpu="h200", **knobs)
    assert measured.outcome == "ok"
    assert prediction.peak_reserved_bytes == measured.peak_reserved_bytes
    assert prediction.peak_allocated_bytes == measured.peak_allocated_bytes
    assert prediction.process_bytes == pytest.approx(measured.process_bytes, rel=0.02)


def test_under_a_cap_the_largest_batch_that_fits_is_the_predicted_one() -> None:
    outcomes = {
        size: vramcast.probe(GPT, memory="24GiB", steps=2, autocast="bf16", batch_size=size).outcome
        for size in (23, 24)
    }
    assert outcomes == {23: "ok", 24: "out_of_memory"}
    assert vramcast.predict(GPT, gpu="h200", memory="24GiB", autocast="bf16", batch_size=23).fits
    assert not vramcast.predict(
        GPT, gpu="h200", memory="24GiB", autocast="bf16", batch_size=24
    ).fits


def test_every_allocation_of_the_real_run_is_in_the_simulated_one(tmp_path: Path) -> None:
    real, simulated = tmp_path / "real", tmp_path / "simulated"
    with Prober() as prober:
        prober.run(Trial(workload=GPT, knobs=TINY, measure_steps=2, trace_folder=str(real)))
    vramcast.predict(GPT, gpu="h200", trace=str(simulated), **TINY)
    assert diff_traces(read_trace(simulated), read_trace(real)).same


def test_a_probe_costs_at_most_three_seconds_beyond_its_build_and_steps() -> None:
    with Prober() as prober:
        prober.run(
            Trial(workload=GPT, knobs=TINY, measure_steps=2)
        )  # imports torch, once for all that follow
        started = time.monotonic()
        measured = prober.run(Trial(workload=GPT, knobs=TINY, measure_steps=2))
        waited = time.monotonic() - started
    assert measured.times is not None and measured.build_seconds is not None
    assert waited - measured.build_seconds - measured.times.wall_seconds <= 3.0


def test_a_step_that_keeps_the_gpu_busy_takes_what_is_predicted() -> None:
    knobs = {"autocast": "bf16", "batch_size": 32}
    measured = vramcast.probe(GPT, steps=10, **knobs)
    prediction = vramcast.predict(GPT, gpu="h200", **knobs)
    assert prediction.step is not None and prediction.step.bound_by != "launch"
    assert measured.times is not None
    assert prediction.step_seconds == pytest.approx(measured.times.median_seconds, rel=0.1)
