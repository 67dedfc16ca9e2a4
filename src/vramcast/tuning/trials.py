"""A trial: a candidate (B) against a configuration without it (A), run in the order A B B A."""

from collections import defaultdict
from dataclasses import replace

from vramcast.errors import EnvironmentProblem, VramcastError
from vramcast.records.measurement import Measurement, Outcome
from vramcast.records.prediction import Prediction
from vramcast.records.tune import LOSS_REASONS, Reason, TrialResult, TuneVerdict
from vramcast.tuning.candidates import Candidate
from vramcast.tuning.judging import LEAST_GAIN, ended, judge, no_time
from vramcast.tuning.predictions import missing_bytes
from vramcast.tuning.runner import BudgetSpent, Runner
from vramcast.units import format_bytes
from vramcast.workload.configuration import Configuration

# Two runs take the time of one and a half compilations: the second finds most in a cache.
NUM_COMPILATIONS = 1.5
# A prediction that takes more than this share of the time left is slow.
SLOW_PREDICTION_SHARE = 0.05
# Where less than this share of memory is taken, there is room for most changes.
ROOMY_SHARE = 0.5


class Trials:
    """The runs so far, and the candidates that were applied on top of each other."""

    def __init__(self, runner: Runner, baseline: Configuration) -> None:
        self._runner = runner
        self._runs: dict[str, list[Measurement]] = defaultdict(list)
        self._predictions: dict[str, Prediction] = {}
        self.seconds_for_later = 0.0  # not available to the present trials
        self.baseline = self.configuration = baseline
        self.applied: list[Candidate] = []
        # Applied candidates, also those replaced later, by the key of the configuration that each
        # was applied to.
        self.steps: dict[str, Candidate] = {}

    def apply(self, candidate: Candidate, before: Configuration) -> None:
        """Applies a candidate. `before` is the configuration without any of its sizes: a larger one
        replaces a smaller."""
        self.steps.pop(before.key, None)
        self.steps[before.key] = candidate
        candidate.replaced_by = ""
        self.configuration = self.configuration.with_change(candidate.change)
        for other in self.applied:
            if not other.is_in_force(self.configuration):
                other.replaced_by = candidate.name
        self.applied = [one for one in self.applied if not one.replaced_by] + [candidate]

    def run(self, configuration: Configuration, candidate: Candidate | None = None) -> Measurement:
        """Runs a configuration. The runs of a candidate must leave the time that is kept for
        later."""
        optimisations = [
            one.optimisation
            for one in (*self.applied, candidate)
            if one and configuration.with_change(one.change) == configuration
        ]
        reserve_seconds = self._reserve() if candidate else 0.0
        measurement = self._runner.measure(configuration, optimisations, reserve_seconds)
        self._runs[configuration.key].append(measurement)
        return measurement

    def good_runs(self, configuration: Configuration) -> list[Measurement]:
        return [run for run in self._runs[configuration.key] if run.outcome == Outcome.OK]

    def judge(self, without: Configuration, candidate: Candidate) -> TrialResult:
        configuration = without.with_change(candidate.change)
        runs = self._runs[configuration.key]
        found = judge(self.good_runs(without), runs, candidate.optimisation)
        if known := self._predictions.get(configuration.key):
            found = replace(found, predicted_memory_bytes=known.peak_reserved_bytes)
        return found

    def try_on(self, without: Configuration, candidate: Candidate) -> TrialResult | None:
        """The result of trying a candidate. None if there was no time; then `candidate.not_tried`
        is set."""
        try:
            if unfit := self._predicted_not_to_fit(without, candidate):
                return unfit
            is_time = self._is_time_for(2 * self._seconds_of(without), candidate)
            if not is_time and not self._runner.has_run(without.with_change(candidate.change)):
                candidate.not_tried = no_time()
                return None
            self._run_both(without, candidate)
        except BudgetSpent:
            candidate.not_tried = no_time("while it ran")
            return None
        except EnvironmentProblem:
            raise
        except VramcastError as problem:  # this workload does not take the knob after all
            return ended(TuneVerdict.FAILED, Reason.KNOBS_REFUSED, problem.message)
        return self.judge(without, candidate)

    def _run_both(self, without: Configuration, candidate: Candidate) -> None:
        """Runs B B A, after the A that is there; fewer once the candidate has lost."""
        configuration = without.with_change(candidate.change)
        runs = self._runs[configuration.key]
        if len(runs) >= 2:
            return
        while len(runs) < 2:
            self.run(configuration, candidate)
            result = self.judge(without, candidate)
            has_lost = result.speedup is None or result.speedup.ratio < 1 + LEAST_GAIN
            if has_lost or result.reason_code in LOSS_REASONS:
                return
        if self.seconds_to_spend() > self._seconds_of(without):
            self.run(without)

    def _predicted_not_to_fit(
        self, without: Configuration, candidate: Candidate
    ) -> TrialResult | None:
        configuration = without.with_change(candidate.change)
        if self._runs[configuration.key] or self.is_slow_to_predict(candidate):
            return None
        # A change of tensors, such as autocast, may need more memory even if it often saves some.
        may_need_more = candidate.change.knobs and self._share_taken(without) > ROOMY_SHARE
        if not candidate.optimisation.predicted and not may_need_more:
            return None
        [prediction] = self._runner.predict([configuration])
        if isinstance(prediction, str):
            return None
        self._predictions[configuration.key] = prediction
        if prediction.fits:
            return None
        missing = missing_bytes(prediction)
        needs = format_bytes(prediction.peak_reserved_bytes)
        return ended(
            TuneVerdict.REJECTED,
            Reason.PREDICTED_OUT_OF_MEMORY,
            f"predicted not to fit: it needs {needs}, {format_bytes(missing)} more than there is "
            "(no GPU time was spent)",
            missing_bytes=missing,
            predicted_memory_bytes=prediction.peak_reserved_bytes,
        )

    def _share_taken(self, configuration: Configuration) -> float:
        """The share of the available memory that it takes; 0 if unknown."""
        for run in self.good_runs(configuration)[-1:]:
            if limit := run.memory_cap_bytes or run.capacity_bytes:
                return (run.peak_reserved_bytes or 0) / limit
        return 0.0

    def is_slow_to_predict(self, candidate: Candidate | None = None) -> bool:
        """Whether a prediction takes longer than a run that fails."""
        limit = SLOW_PREDICTION_SHARE * self._runner.seconds_left()
        first_step = candidate.optimisation.start_seconds if candidate else 0.0
        return self._runner.prediction_seconds > max(limit, first_step)

    def is_tight(self, num_others: int, candidate: Candidate) -> bool:
        """Whether the others would leave no time for this candidate."""
        seconds = (2 * num_others + 3) * self._seconds_of(self.configuration)
        return not self._is_time_for(seconds, candidate)

    def seconds_to_spend(self) -> float:
        return self._runner.seconds_left() - self._reserve()

    def _is_time_for(self, seconds: float, candidate: Candidate) -> bool:
        seconds += NUM_COMPILATIONS * candidate.optimisation.start_seconds
        return self.seconds_to_spend() > seconds

    def _reserve(self) -> float:
        """The time kept for later trials, and for start and end side by side."""
        ends = (self.baseline, self.configuration)
        return self.seconds_for_later + sum(map(self._seconds_of, ends))

    def _seconds_of(self, configuration: Configuration) -> float:
        """The seconds of the last run; the first one also imports torch or compiles."""
        runs = self._runs[configuration.key]
        return runs[-1].seconds if runs else 0.0
