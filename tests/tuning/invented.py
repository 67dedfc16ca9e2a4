"""Runs and a runner with invented numbers: a whole tune without a GPU and without waiting."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from vramcast.probing.facts import Facts
from vramcast.probing.measurement import measurement_from
from vramcast.probing.trial import Trial
from vramcast.records.machine import GpuState, Machine
from vramcast.records.measurement import Measurement, Memory, Outcome
from vramcast.records.prediction import Prediction
from vramcast.tuning.optimisations import Optimisation
from vramcast.tuning.runner import BudgetSpent
from vramcast.units import GiB
from vramcast.workload.configuration import Configuration

H200 = GpuState("NVIDIA H200", "GPU-1", 141 * GiB, 0, "580.1", "13.0", "Linux", True)
MACHINE = Machine(
    gpus=[H200],
    capability=(9, 0),
    torch_version="2.11.0",
    torch_cuda="13.0",
    cuda_available=True,
    triton="3.6",
    compiler="/usr/bin/cc",
    cxx_compiler="/usr/bin/c++",
)


def run(
    seconds: float = 0.1,
    *,
    losses: Sequence[float | None] = (5.0, 4.9, 4.8, 4.7),
    outcome: str = "ok",
    error: str | None = None,
    knobs: dict[str, Any] | None = None,
    reserved: int = 10 * GiB,
    cap: int | None = None,
    took: float = 3.0,
    **facts: Any,
) -> Measurement:
    """A measurement as a worker's facts would make it."""
    trial = Trial(
        workload="w", knobs=knobs or {}, memory_cap_bytes=cap, warmup_steps=1, measure_steps=3
    )
    steps = [seconds] * 3 if outcome == "ok" else []
    known: dict[str, Any] = {
        "outcome": Outcome(outcome),
        "error": error,
        "knobs": knobs or {},
        "step_seconds": steps,
        "warmup_seconds": steps[:1],
        "losses": list(losses) if steps else [],
        "gpu": "NVIDIA H200",
        "capacity_bytes": 141 * GiB,
        "torch_version": "2.11.0",
        "warm": Memory(allocated_bytes=reserved, reserved_bytes=reserved),
        "num_parameters": 124_439_808,
        "switches": {
            "tf32": False,
            "cudnn_benchmark": False,
            "detect_anomaly": False,
            "sdpa": None,
        },
        **facts,
    }
    return replace(measurement_from(trial, Facts(**known)), seconds=took)


def prediction(
    reserved: int,
    *,
    capacity: int = 140 * GiB,
    seconds: float | None = 0.1,
    knobs: dict[str, Any] | None = None,
) -> Prediction:
    shown = knobs or {}
    tokens = shown.get("batch_size", 1) * shown.get("seq_len", 1)
    return Prediction(
        workload="w",
        knobs=shown,
        gpu="h200",
        capacity_bytes=capacity,
        peak_allocated_bytes=reserved,
        peak_reserved_bytes=reserved,
        process_bytes=None,
        first_step_allocated_bytes=reserved,
        first_step_reserved_bytes=reserved,
        fits=reserved <= capacity,
        headroom_bytes=capacity - reserved,
        num_alloc_retries=0,
        failed_allocation_bytes=None,
        num_parameters=1,
        breakdown_bytes={},
        largest_tensors=[],
        timeline=[],
        peak_phase="step 1",
        step_seconds=seconds,
        tokens_per_second=tokens / seconds if seconds else None,
        step_seconds_reason="",
        limits=[],
        allocator_settings="",
        torch_version="2.11.0",
        seconds=1.0,
    )


class InventedRunner:
    """Runs take as long as `step` says, with a little noise, and use up the budget."""

    def __init__(
        self,
        step: Callable[[Configuration], Measurement],
        predicted: Callable[[Configuration], Prediction | str] = lambda _: "not asked",
        budget: float = float("inf"),
        noise: float = 0.002,
    ) -> None:
        self._step, self._predicted, self._left, self._noise = step, predicted, budget, noise
        self._random = random.Random(7)
        self.measured: list[Configuration] = []
        self.predicted: list[Configuration] = []
        self.seconds_to_predict = 0.0
        self.trial, self.gpu = Trial(workload="gpt2-124m"), "h200"
        self.run_earlier: set[str] = set()  # keys of configurations whose runs cost nothing

    @property
    def prediction_seconds(self) -> float:
        return self.seconds_to_predict if self.predicted else 0.0

    def seconds_left(self) -> float:
        return self._left

    def measure(
        self,
        configuration: Configuration,
        optimisations: Sequence[Optimisation] = (),
        reserve_seconds: float = 0.0,
    ) -> Measurement:
        found = self._step(configuration)
        if configuration.key not in self.run_earlier:
            if found.seconds > self._left - reserve_seconds:
                raise BudgetSpent
            self._left -= found.seconds
        self.measured.append(configuration)
        if found.times is None:
            return found
        factor = self._random.gauss(1.0, self._noise)
        return replace(
            found, times=replace(found.times, median_seconds=found.times.median_seconds * factor)
        )

    def has_run(self, configuration: Configuration) -> bool:
        return configuration.key in self.run_earlier

    def predict(
        self, configurations: Sequence[Configuration], gpus: Sequence[str] = ()
    ) -> list[Prediction | str]:
        self.predicted += configurations
        self._left -= self.seconds_to_predict
        return [self._predicted(configuration) for configuration in configurations]
