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
from vramcast.records.tune import Reason, TuneResult
from vramcast.tuning.candidates import Candidate
from vramcast.tuning.optimisations import Losses, Optimisation, Refusal, knobs
from vramcast.tuning.runner import BudgetSpent
from vramcast.tuning.tune import tune_with
from vramcast.units import GiB
from vramcast.workload.configuration import Configuration
from vramcast.workload.switches import Switches

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


def switches(**values: bool) -> Configuration:
    return Configuration(switches=Switches(**values))


OPTIMISATIONS = (
    Optimisation(name="attention", what="a better attention", changes=(knobs(attention="auto"),)),
    Optimisation(
        name="amp",
        what="fewer bits",
        changes=(knobs(precision="amp"),),
        losses=Losses.ROUNDED,
        caution="mind the range",
    ),
    Optimisation(
        name="tf32",
        what="fewer bits in products",
        changes=(switches(tf32=True),),
        losses=Losses.ROUNDED,
    ),
    Optimisation(name="half", what="far fewer bits", changes=(knobs(precision="half"),)),
    Optimisation(name="diverges", what="faster and wrong", changes=(knobs(wrong=True),)),
    Optimisation(name="too-large", what="keeps everything", changes=(knobs(keep=True),)),
    Optimisation(
        name="unfit", what="keeps even more", changes=(knobs(keep="more"),), predicted=True
    ),
    Optimisation(name="hangs", what="waits", changes=(knobs(hang=True),)),
    Optimisation(name="crashes", what="breaks", changes=(knobs(crash=True),)),
    Optimisation(name="nothing", what="does nothing", changes=(knobs(idle=True),)),
    Optimisation(name="slower", what="does more", changes=(knobs(slow=True),)),
    Optimisation(name="missing", what="has no knob", changes=(knobs(absent=1),)),
    Optimisation(
        name="package", what="needs a package", changes=(knobs(idle=2),), needs=("bitsandbytes",)
    ),
    Optimisation(
        name="other-gpu", what="needs another GPU", changes=(knobs(idle=3),), capability=(10, 0)
    ),
    Optimisation(
        name="anomaly-off", what="is so already", changes=(switches(detect_anomaly=False),)
    ),
    Optimisation(
        name="shallow", what="another model", changes=(knobs(shallow=True),), changes_training=True
    ),
    Optimisation(name="graph", what="needs fewer bits", changes=(knobs(graph=True),)),
    Optimisation(
        name="compile",
        what="compiles",
        changes=(knobs(compile=True),),
        start_seconds=40.0,
        losses=Losses.ROUNDED,
    ),
)


def seconds_of(c: Configuration) -> float:
    """Attention is 50 ms of 100; the rest are products, which are faster in fewer bits."""
    k = c.knobs
    attention = 0.01 if k.get("attention") else 0.05
    products = 0.015 if k.get("precision") == "amp" else 0.02 if c.switches.tf32 else 0.05
    seconds = attention + products
    seconds *= 0.9 if k.get("wrong") or k.get("shallow") else 1.2 if k.get("slow") else 1.0
    return seconds * (0.8 if k.get("compile") else 1.0) * (0.7 if k.get("graph") else 1.0)


def step(c: Configuration) -> Measurement:
    k = c.knobs
    if k.get("keep"):
        error = (
            "OutOfMemoryError: Tried to allocate 3.00 GiB. "
            "GPU 0 has 141.00 GiB of which 1.00 GiB is free."
        )
        return run(outcome="out_of_memory", error=error, took=2.0)
    if k.get("hang"):
        return run(
            outcome="timeout", error="It did not end within 300 s (last phase: measure).", took=60.0
        )
    if k.get("crash"):
        return run(
            outcome="crashed",
            error="RuntimeError: CUDA error: operation not permitted when stream is capturing",
            took=2.0,
        )
    if k.get("graph") and k.get("precision") != "amp":
        return run(
            outcome="crashed", error="RuntimeError: No available kernel. Aborting execution."
        )
    losses = (
        (5.0, 4.9, 9.0, 12.0)
        if k.get("wrong")
        else (5.0, 4.9, 4.8, 4.71)
        if k.get("precision")
        else (5.0, 4.9, 4.8, 4.7)
    )
    return run(
        seconds_of(c),
        losses=losses,
        knobs={"batch_size": 4, "seq_len": 16, **k},
        took=3.0 + (20.0 if k.get("compile") else 0.0),
    )


def predicted(c: Configuration) -> Prediction | str:
    return prediction(
        200 * GiB if c.knobs.get("keep") else 10 * GiB, seconds=seconds_of(c), knobs=dict(c.knobs)
    )


def candidates(optimisations: tuple[Optimisation, ...]) -> list[Candidate]:
    no_knob = Refusal(Reason.NO_KNOB, "the workload has no knob absent")
    return [
        Candidate(one, refusal=no_knob)
        if one.name == "missing"
        else Candidate(one, *one.changes[:1])
        for one in optimisations
    ]


def whole(
    runner: InventedRunner,
    optimisations: tuple[Optimisation, ...] = OPTIMISATIONS,
    gpu: str | None = "h200",
) -> TuneResult:
    runner.gpu = gpu
    tried = candidates(optimisations)
    return tune_with(runner, tried, Configuration(), MACHINE, target_steps=86_400)  # type: ignore[arg-type]
