"""A trial: a candidate (B) against a configuration without it (A), run in the order A B B A."""

from __future__ import annotations

from collections import defaultdict

from vramcast.errors import EnvironmentProblem, VramcastError
from vramcast.records.measurement import Measurement, Outcome
from vramcast.records.tune import LOSS_REASONS, Reason, TrialResult, TuneVerdict
from vramcast.tuning.batch_sizes import missing_bytes
from vramcast.tuning.candidates import Candidate
from vramcast.tuning.judging import LEAST_GAIN, ended, judge
from vramcast.tuning.runner import BudgetSpent, Runner
from vramcast.units import format_bytes
from vramcast.workload.configuration import Configuration

# Two runs compile one and a half times: the second finds most in a cache.
NUM_COMPILATIONS = 1.5
# A prediction is slow if it takes more than this share of the time left.
SLOW_PREDICTION_SHARE = 0.05
# A configuration that takes less than this share of the memory leaves room for most changes.
ROOMY_SHARE = 0.5


class Stack:
    """The candidates that were applied, one on top of the other, and what they make together."""

    def __init__(self, baseline: Configuration) -> None:
        self.baseline = self.configuration = baseline
        self.candidates: list[Candidate] = []
        # By the key of the configuration that each was applied to.
        self._steps: dict[str, Candidate] = {}

    @property
    def steps(self) -> list[Candidate]:
        """Every step from the baseline to here, also those of candidates replaced later."""
        return list(self._steps.values())

    def apply(self, candidate: Candidate, before: Configuration) -> None:
        """A larger size replaces a smaller one: `before` is what had none of its sizes yet."""
        self._steps.pop(before.key, None)
        self._steps[before.key] = candidate
        candidate.replaced_by = ""
        self.configuration = self.configuration.with_change(candidate.change)
        # A candidate of which nothing is left in force is no longer part of the stack.
        for other in self.candidates:
            if not other.is_in_force(self.configuration):
                other.replaced_by = candidate.name
        self.candidates = [one for one in self.candidates if not one.replaced_by] + [candidate]


class Trials:
    def __init__(self, runner: Runner, stack: Stack) -> None:
        self._runner, self._stack = runner, stack
        self._runs: dict[str, list[Measurement]] = defaultdict(list)
        self.seconds_for_later = 0.0  # kept back from the trials of now

    def run(self, configuration: Configuration, candidate: Candidate | None = None) -> Measurement:
        """`candidate` is the one on trial: its runs must leave the time that is kept back."""
        involved = [*self._stack.candidates, *([candidate] if candidate else [])]
        optimisations = [
            one.optimisation
            for one in involved
            if configuration.with_change(one.change) == configuration
        ]
        measurement = self._runner.measure(
            configuration,
            start_seconds=max((one.start_seconds for one in optimisations), default=0.0),
            more_warmup=max((one.warmup_steps for one in optimisations), default=0),
            reserve_seconds=self.reserve() if candidate else 0.0,
        )
        self._runs[configuration.key].append(measurement)
        return measurement

    def good_runs(self, configuration: Configuration) -> list[Measurement]:
        return [run for run in self._runs[configuration.key] if run.outcome == Outcome.OK]

    def judge(
        self, without: Configuration, configuration: Configuration, candidate: Candidate
    ) -> TrialResult:
        runs = self._runs[configuration.key]
        return judge(self.good_runs(without), runs, candidate.optimisation)

    def try_on(self, without: Configuration, candidate: Candidate) -> TrialResult:
        configuration = without.with_change(candidate.change)
        try:
            if unfit := self._predicted_not_to_fit(without, candidate):
                return unfit
            if not self._is_affordable(without, candidate):
                return _not_tried("the time for the tune was spent before it was begun")
            self._run_both(without, configuration, candidate)
        except BudgetSpent:
            return _not_tried("the time for the tune was spent while it ran")
        except EnvironmentProblem:
            raise
        except VramcastError as problem:  # a knob that this workload does not take after all
            return ended(TuneVerdict.FAILED, Reason.KNOBS_REFUSED, problem.message)
        return self.judge(without, configuration, candidate)

    def _run_both(
        self, without: Configuration, configuration: Configuration, candidate: Candidate
    ) -> None:
        """B B A, after the A that is there; it ends early once the candidate has lost."""
        runs = self._runs[configuration.key]
        if len(runs) >= 2:
            return
        while len(runs) < 2:
            self.run(configuration, candidate)
            result = self.judge(without, configuration, candidate)
            has_lost = result.speedup is None or result.speedup.ratio < 1 + LEAST_GAIN
            if has_lost or result.reason_code in LOSS_REASONS:
                return
        if self._runner.seconds_left() - self.reserve() > self.seconds_of(without):
            self.run(without)

    def _predicted_not_to_fit(
        self, without: Configuration, candidate: Candidate
    ) -> TrialResult | None:
        configuration = without.with_change(candidate.change)
        if self._runs[configuration.key] or self.is_slow_to_predict():
            return None
        if not self._may_need_too_much(without, candidate):
            return None
        prediction = self._runner.predict([configuration])[0]
        if isinstance(prediction, str) or prediction.fits is not False:
            return None
        missing = missing_bytes(prediction)
        needs = format_bytes(prediction.peak_reserved_bytes)
        return ended(
            TuneVerdict.REJECTED,
            Reason.PREDICTED_OUT_OF_MEMORY,
            f"predicted not to fit: it needs {needs}, {format_bytes(missing)} more than there is "
            "(no GPU time was spent)",
            missing_bytes=missing,
        )

    def _may_need_too_much(self, without: Configuration, candidate: Candidate) -> bool:
        """What changes tensors may need more even if it often saves memory, as autocast does."""
        if candidate.optimisation.more_memory:
            return True
        runs = self.good_runs(without)
        return bool(candidate.change.knobs and runs) and _share_taken(runs[-1]) > ROOMY_SHARE

    # ---------------------------------------------------------------------------------------- time
    def is_slow_to_predict(self) -> bool:
        """A prediction takes more of the time left than an attempt that fails would."""
        limit = SLOW_PREDICTION_SHARE * self._runner.seconds_left()
        return self._runner.prediction_seconds > limit

    def is_begun(self, without: Configuration, candidate: Candidate) -> bool:
        """An earlier call of this tune has run it: its runs cost nothing now."""
        return self._runner.has_run(without.with_change(candidate.change))

    def _is_affordable(self, without: Configuration, candidate: Candidate) -> bool:
        is_time = self._is_time_for(2 * self.seconds_of(without), candidate)
        return is_time or self.is_begun(without, candidate)

    def is_tight(self, num_others: int, candidate: Candidate) -> bool:
        """Whether so many others would leave no time for a candidate that is slow to start."""
        seconds = (2 * num_others + 3) * self.seconds_of(self._stack.configuration)
        return not self._is_time_for(seconds, candidate)

    def _is_time_for(self, seconds: float, candidate: Candidate) -> bool:
        seconds += NUM_COMPILATIONS * candidate.optimisation.start_seconds
        return self._runner.seconds_left() - self.reserve() > seconds

    def reserve(self) -> float:
        """Seconds kept for later trials, and for start and end side by side."""
        ends = (self._stack.baseline, self._stack.configuration)
        return self.seconds_for_later + sum(map(self.seconds_of, ends))

    def seconds_of(self, configuration: Configuration) -> float:
        """Of the last run: the first one also imports torch or compiles."""
        runs = self._runs[configuration.key]
        return runs[-1].seconds if runs else 0.0


def _not_tried(why: str) -> TrialResult:
    return ended(TuneVerdict.NOT_TRIED, Reason.BUDGET_SPENT, why)


def _share_taken(run: Measurement) -> float:
    """Of the memory that the run may take."""
    limit = run.memory_cap_bytes if run.memory_cap_bytes is not None else run.capacity_bytes
    return (run.peak_reserved_bytes or 0) / limit if limit else 0.0
