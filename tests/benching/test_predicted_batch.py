"""What `bench` asks a prediction before it trains; no GPU is needed for that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from vramcast.benching.bench import largest_batch, with_batch_size
from vramcast.benching.protocol import STANDARD_1, TIMEBOX_1
from vramcast.errors import EnvironmentProblem, UsageError, WorkloadError
from vramcast.records.bench import BenchTrial
from vramcast.records.measurement import Device

MakeTrial = Callable[..., BenchTrial]
GPU = "rtx-4090"


@pytest.fixture
def on_gpu(make_trial: MakeTrial) -> BenchTrial:
    return replace(make_trial(), device=Device.CUDA, protocol=STANDARD_1, batch_size=1)


@pytest.mark.long
def test_the_largest_batch_is_predicted_from_the_step_that_is_trained(
    make_trial: MakeTrial,
) -> None:
    trial = make_trial(protocol=replace(TIMEBOX_1, seq_len=64), width="64")
    assert 100 < largest_batch(trial, gpu="h200", memory="200MiB") < 10_000


def test_on_the_cpu_the_batch_is_the_protocols(make_trial: MakeTrial) -> None:
    assert with_batch_size(make_trial(), None).batch_size == 4
    with pytest.raises(UsageError, match="largest batch"):
        with_batch_size(make_trial(protocol=TIMEBOX_1), None)


def test_a_batch_that_does_not_fit_is_refused_with_the_one_that_does(
    on_gpu: BenchTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vramcast.benching.bench.largest_batch", lambda *_, **__: 96)
    with pytest.raises(
        EnvironmentProblem, match="rtx-4090 with the protocol's batch of 256"
    ) as caught:
        with_batch_size(on_gpu, GPU)
    assert "batch_size = 96" in caught.value.advice
    assert with_batch_size(replace(on_gpu, protocol=TIMEBOX_1), GPU).batch_size == 96


def test_a_model_that_cannot_be_simulated_may_still_be_trained(
    on_gpu: BenchTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> int:
        raise WorkloadError("it asks for the contents of a tensor")

    monkeypatch.setattr("vramcast.benching.bench.largest_batch", fail)
    assert with_batch_size(on_gpu, GPU).batch_size == 256
    with pytest.raises(WorkloadError):
        with_batch_size(replace(on_gpu, protocol=TIMEBOX_1), GPU)
