"""Where a tune's numbers come from: runs in fresh processes and predictions, both recorded. Tests put a fake in its place."""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from vramcast.errors import VramcastError
from vramcast.predicting.predict import make_request
from vramcast.probing.manager import Prober
from vramcast.probing.trial import Trial
from vramcast.records.measurement import Measurement
from vramcast.records.prediction import Prediction
from vramcast.simulate import build
from vramcast.simulate.runner import simulate
from vramcast.tuning.folder import TuneFolder
from vramcast.workload.configuration import Configuration

WARMUP_STEPS = 2
FIRST_STEPS, FEWEST_STEPS, MOST_STEPS, MEASURED_SECONDS = 5, 3, 20, 1.0
SLOW_STEP_SECONDS = 1.0  # from here on every step counts
RUN_SECONDS, PREDICTION_SECONDS = 300.0, 300.0
LEAST_SECONDS = 5.0  # a run that is given less has no chance


Target = tuple[str | None, int | None]  # a GPU, and the memory that the allocator may take of it


class BudgetSpent(Exception):
    """The time there was for the tune is over, before or during a run."""


class Laboratory(Protocol):
    def measure(
        self,
        configuration: Configuration,
        *,
        start_seconds: float = 0.0,
        more_warmup: int = 0,
        reserve_seconds: float = 0.0,
    ) -> Measurement:
        """A fresh run. BudgetSpent where it did not end while there was more time left than the reserve."""
        ...

    def has_run(self, configuration: Configuration) -> bool:
        """Whether an earlier call has run it, so that measuring it costs no time."""
        ...

    def predict(
        self, configurations: Sequence[Configuration], gpus: Sequence[str] = ()
    ) -> list[Prediction | str]:
        """For the GPU here, or each for its own. A text says why there is no prediction."""
        ...

    def prediction_seconds(self) -> float:
        """How long the last ones took; 0 where there was none."""
        ...

    def seconds_left(self) -> float: ...


@dataclass(frozen=True, kw_only=True)
class Question:
    """What all runs of a tune have in common."""

    workload: str
    device: str
    gpu: str | None
    memory_bytes: int | None


class RealLaboratory:
    def __init__(
        self, question: Question, prober: Prober, folder: TuneFolder, budget_seconds: float | None
    ) -> None:
        self._question, self._prober, self._folder = question, prober, folder
        self._deadline = math.inf if budget_seconds is None else time.monotonic() + budget_seconds
        self._num_steps: dict[str, int] = {}  # by configuration, from its first run
        self._is_slow = False
        self._prediction_seconds = 0.0

    def prediction_seconds(self) -> float:
        return self._prediction_seconds

    def seconds_left(self) -> float:
        return self._deadline - time.monotonic()

    # ------------------------------------------------------------------------------------------------------------------------ runs
    def measure(
        self,
        configuration: Configuration,
        *,
        start_seconds: float = 0.0,
        more_warmup: int = 0,
        reserve_seconds: float = 0.0,
    ) -> Measurement:
        found = self._folder.recorded_run(configuration.key)
        if found is None:
            found = self._run(
                configuration, start_seconds, more_warmup, self.seconds_left() - reserve_seconds
            )
            self._folder.add_run(configuration.key, found)
        self._num_steps.setdefault(configuration.key, steps_for(found))
        self._is_slow = self._is_slow or (
            found.times is not None and found.times.median_seconds >= SLOW_STEP_SECONDS
        )
        return found

    def has_run(self, configuration: Configuration) -> bool:
        return self._folder.has_run(configuration.key)

    def _run(
        self, configuration: Configuration, start_seconds: float, more_warmup: int, left: float
    ) -> Measurement:
        if left < LEAST_SECONDS:
            raise BudgetSpent
        allowed = RUN_SECONDS + 3 * start_seconds
        measurement = self._prober.run(
            Trial(
                workload=self._question.workload,
                knobs=configuration.knobs,
                device=self._question.device,
                memory_cap_bytes=self._question.memory_bytes,
                allocator=configuration.allocator,
                switches=configuration.switches,
                warmup_steps=(1 if self._is_slow else WARMUP_STEPS) + more_warmup,
                measure_steps=self._num_steps.get(
                    configuration.key, FEWEST_STEPS if self._is_slow else FIRST_STEPS
                ),
                timeout_seconds=min(allowed, left),
            ),
            self._folder.log,
        )
        is_stalled = (
            "heartbeat_stall" in measurement.verdict.fail_reasons
        )  # its own fault: more time would not have helped
        if measurement.outcome == "timeout" and left < allowed and not is_stalled:
            raise BudgetSpent
        return measurement

    # ----------------------------------------------------------------------------------------------------------------- predictions
    def predict(
        self, configurations: Sequence[Configuration], gpus: Sequence[str] = ()
    ) -> list[Prediction | str]:
        here: Target = (self._question.gpu, self._question.memory_bytes)
        targets: list[Target] = (
            [(gpu, None) for gpu in gpus] if gpus else [here] * len(configurations)
        )
        if not gpus and here == (None, None):
            return ["no GPU was named to predict for"] * len(configurations)
        keys = [
            json.dumps([one.key, *target])
            for one, target in zip(configurations, targets, strict=True)
        ]
        wanted = dict(
            zip(keys, zip(configurations, targets, strict=True), strict=True)
        )  # the same is asked once, and answered each time
        missing = [key for key in wanted if self._folder.recorded_prediction(key) is None]
        for key, answer in zip(
            missing, self._simulate([wanted[key] for key in missing]), strict=True
        ):
            if (
                answer.get("error") == OUT_OF_TIME
            ):  # not a fact about the workload: asked again when the tune goes on
                return [OUT_OF_TIME] * len(configurations)
            self._folder.add_prediction(key, answer)
        return [_read(self._folder.recorded_prediction(key)) for key in keys]

    def _simulate(self, wanted: Sequence[tuple[Configuration, Target]]) -> list[dict[str, Any]]:
        if not wanted:
            return []
        build.build()
        stop, started = threading.Event(), time.monotonic()
        with ThreadPoolExecutor(max_workers=max(1, (os.cpu_count() or 1) // 2)) as pool:
            try:
                return list(pool.map(lambda one: self._simulate_one(one[0], one[1], stop), wanted))
            except BaseException:  # an interruption too: no simulation is left running
                stop.set()
                raise
            finally:
                self._prediction_seconds = time.monotonic() - started

    def _simulate_one(
        self, configuration: Configuration, target: Target, stop: threading.Event
    ) -> dict[str, Any]:
        left = min(PREDICTION_SECONDS, self.seconds_left())
        if left < LEAST_SECONDS:
            return {"error": OUT_OF_TIME}
        request = make_request(
            self._question.workload,
            gpu=target[0],
            memory=target[1],
            allocator=configuration.allocator,
            knobs=configuration.knobs,
            batch_sizes=None,
        )
        try:
            return {"prediction": simulate(request, left, stop=stop)}
        except VramcastError as problem:
            return {
                "error": OUT_OF_TIME if self.seconds_left() < LEAST_SECONDS else problem.message
            }


OUT_OF_TIME = "there was no time left to predict it"


def _read(answer: dict[str, Any]) -> Prediction | str:
    return str(answer["error"]) if "error" in answer else Prediction.from_dict(answer["prediction"])


def steps_for(first: Measurement) -> int:
    """So many that about a second is measured: one run is short, and its median still robust."""
    if first.times is None or first.times.median_seconds <= 0:
        return FEWEST_STEPS
    return min(
        MOST_STEPS, max(FEWEST_STEPS, math.ceil(MEASURED_SECONDS / first.times.median_seconds))
    )
