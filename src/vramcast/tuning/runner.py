"""Where a tune's numbers come from: recorded runs in fresh processes, and predictions."""

import json
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from vramcast.errors import VramcastError
from vramcast.predicting.predict import make_request
from vramcast.probing.manager import Prober
from vramcast.probing.trial import Trial
from vramcast.records.measurement import FailReason, Measurement, Outcome
from vramcast.records.prediction import Prediction
from vramcast.simulate import build
from vramcast.simulate.many import in_parallel
from vramcast.simulate.runner import simulate
from vramcast.tuning.folder import TuneFolder
from vramcast.tuning.optimisations import Optimisation
from vramcast.workload.configuration import Configuration

WARMUP_STEPS, FIRST_STEPS, MIN_STEPS, MAX_STEPS = 2, 5, 3, 20
MEASURED_SECONDS = 1.0
# Workloads with slower steps are run as little as possible.
SLOW_STEP_SECONDS = 1.0
RUN_SECONDS, PREDICTION_SECONDS = 300.0, 300.0
# With less time left, no run is started.
LEAST_SECONDS = 5.0


class BudgetSpent(Exception):
    """The time of the tune ran out, before or during a run."""


class Runner:
    """`trial` is what all runs have in common; `gpu` is the GPU that predictions are for."""

    def __init__(
        self,
        trial: Trial,
        gpu: str | None,
        prober: Prober,
        folder: TuneFolder,
        budget_seconds: float,
    ) -> None:
        self.trial, self.gpu, self._prober, self._folder = trial, gpu, prober, folder
        self._deadline = time.monotonic() + budget_seconds
        self._num_steps: dict[str, int] = {}  # by configuration, from its first run
        self._has_slow_steps = False
        self.prediction_seconds = 0.0  # how long the last predictions took

    def seconds_left(self) -> float:
        return self._deadline - time.monotonic()

    def has_run(self, configuration: Configuration) -> bool:
        """Whether an earlier call has run it: then measuring it takes no time."""
        return self._folder.has_run(configuration.key)

    def measure(
        self,
        configuration: Configuration,
        optimisations: Sequence[Optimisation] = (),
        reserve_seconds: float = 0.0,
    ) -> Measurement:
        """The measurement of a run. Raises BudgetSpent rather than use the time reserved for
        later."""
        key = configuration.key
        found = self._folder.recorded_run(key)
        if found is None:
            seconds = self.seconds_left() - reserve_seconds
            if seconds < LEAST_SECONDS:
                raise BudgetSpent
            steps, warmup = (MIN_STEPS, 1) if self._has_slow_steps else (FIRST_STEPS, WARMUP_STEPS)
            start_seconds = max((one.start_seconds for one in optimisations), default=0.0)
            warmup += max((one.warmup_steps for one in optimisations), default=0)
            steps = self._num_steps.get(key, steps)
            trial = replace(
                self.trial,
                knobs=configuration.knobs,
                allocator=configuration.allocator,
                switches=configuration.switches,
                warmup_steps=warmup,
                measure_steps=steps,
                num_steps=warmup + steps if self.trial.line else None,
                timeout_seconds=min(RUN_SECONDS + 3 * start_seconds, seconds),
            )
            found = self._prober.run(trial, self._folder.log)
            # More time would not have helped a run that stalled.
            is_stalled = FailReason.STALL in found.verdict.fail_reasons
            is_cut_short = found.outcome == Outcome.TIMEOUT and trial.timeout_seconds == seconds
            if is_cut_short and not is_stalled:
                raise BudgetSpent
            self._folder.add_run(key, found)
        self._num_steps.setdefault(key, steps_for(found))
        if found.times is not None and found.times.median_seconds >= SLOW_STEP_SECONDS:
            self._has_slow_steps = True
        return found

    def predict(
        self, configurations: Sequence[Configuration], gpus: Sequence[str] = ()
    ) -> list[Prediction | str]:
        """Predictions for the GPU here, or each for a GPU of its own. A text says why there is
        none."""
        memory = None if gpus else self.trial.memory_cap_bytes
        targets: Sequence[str | None] = gpus or [self.gpu] * len(configurations)
        if targets[0] is None and memory is None:
            return ["no GPU was named to predict for"] * len(configurations)
        asked = [(one, gpu, memory) for one, gpu in zip(configurations, targets, strict=True)]
        keys = [json.dumps([one.key, *target]) for one, *target in asked]
        known = self._folder.predictions
        missing = {key: one for key, one in zip(keys, asked, strict=True) if key not in known}
        if missing:
            build.build()
            started = time.monotonic()
            try:
                answers = in_parallel(self._simulate, list(missing.values()))
            except BudgetSpent:  # not recorded: asked again when the tune goes on
                return ["there was no time left to predict it"] * len(configurations)
            finally:
                self.prediction_seconds = time.monotonic() - started
            for key, answer in zip(missing, answers, strict=True):
                self._folder.add_prediction(key, answer)
        return [known[key] for key in keys]

    def _simulate(
        self, question: tuple[Configuration, str | None, int | None], stop: threading.Event
    ) -> Prediction | str:
        configuration, gpu, memory = question
        seconds = min(PREDICTION_SECONDS, self.seconds_left())
        if seconds < LEAST_SECONDS:
            raise BudgetSpent
        workload = list(self.trial.line) or self.trial.workload
        request = make_request(workload, configuration.knobs, gpu, memory, configuration.allocator)
        request |= {"switches": configuration.switches.given()}
        try:
            return Prediction.from_dict(simulate(request, seconds, stop=stop))
        except VramcastError as problem:
            if self.seconds_left() < LEAST_SECONDS:
                raise BudgetSpent from None
            return problem.message


def steps_for(first: Measurement) -> int:
    """How many steps to measure: for about a second, which is short and still gives a robust
    median."""
    if first.times is None:
        return MIN_STEPS
    steps = math.ceil(MEASURED_SECONDS / first.times.median_seconds)
    return min(MAX_STEPS, max(MIN_STEPS, steps))
