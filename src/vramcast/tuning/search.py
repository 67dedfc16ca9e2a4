"""The search for the fastest configuration.

Every candidate is tried alone. Those that helped are tried on top of each other. Then the last
configuration is compared with the first.
"""

import math
from collections.abc import Iterator, Sequence

from vramcast.errors import UsageError, VramcastError
from vramcast.processes.progress import Progress, Report
from vramcast.records.measurement import Measurement, Outcome
from vramcast.records.prediction import Prediction
from vramcast.records.tune import Reason, Speedup, TrialResult, TuneVerdict
from vramcast.tuning.candidates import Candidate, already_set, promising, untried, with_sizes
from vramcast.tuning.judging import SIGNIFICANCE_LEVEL, compare, ended, has_finite_losses, last_line
from vramcast.tuning.optimisations import knobs
from vramcast.tuning.predictions import FACTOR, batch_sizes, gain_of_larger
from vramcast.tuning.runner import BudgetSpent, Runner
from vramcast.tuning.trials import Trials
from vramcast.workload.configuration import Configuration

# The share of the budget for putting candidates together.
TOGETHER_SHARE = 0.6
MAX_ROUNDS = 3
# A batch FACTOR times as large is tried first if it gives so many times the throughput.
LARGE_GAIN = 3.0
# A step of a larger batch may take this share of the time left: a trial has about fourteen steps.
STEP_SHARE = 0.02


class Search:
    def __init__(
        self,
        runner: Runner,
        candidates: Sequence[Candidate],
        baseline: Configuration,
        progress: Report,
    ) -> None:
        self.runner, self._progress = runner, progress
        self.candidates = list(candidates)  # candidates for sizes chosen later are added
        self.trials = Trials(runner, baseline)
        self.notes: list[str] = []
        self._stage, self._best_ratio = "alone", 1.0
        self._has_chosen_batch = False  # while trying on top of the others

    def run(self) -> Speedup:
        self._first = self._run_baseline()
        for one in self.candidates:
            one.refusal = one.refusal or already_set(one.change, self._first)
        # If by prediction the GPU waits for the host, a larger batch is tried first.
        self._batch_first = (
            any(one.optimisation.size == "batch_size" for one in self._usable)
            and gain_of_larger(*self._predict_larger(self.trials.baseline)) >= LARGE_GAIN
        )
        self._try_alone()
        self._stage = "on top"
        self._try_together()
        return self._total()

    def size_of(self, configuration: Configuration, knob: str) -> int:
        size = configuration.knobs.get(knob, self._first.knobs.get(knob))
        return size if type(size) is int else 1

    def _run_baseline(self) -> Measurement:
        try:
            first = self.trials.run(self.trials.baseline)
            _check_baseline(first)
            self.trials.run(self.trials.baseline)
        except BudgetSpent:
            raise UsageError(
                "The budget is spent before the start has run twice.",
                "Give more time with --budget, for example 20min.",
            ) from None
        return first

    @property
    def _usable(self) -> list[Candidate]:
        return [one for one in self.candidates if not one.refusal]

    def _sized(self, candidate: Candidate, without: Configuration) -> list[Configuration]:
        """A change for every size worth trying."""
        knob = candidate.optimisation.size or ""
        now = self.size_of(without, knob)
        if knob != "batch_size":
            sizes = [now // 2] if now >= 2 else []
        elif self._has_chosen_batch and self.trials.is_slow_to_predict():
            sizes = [2 * now, 4 * now]
        else:
            here, larger = self._predict_larger(without)
            sizes = batch_sizes(now, here, larger, STEP_SHARE * self.trials.seconds_to_spend())
            self._has_chosen_batch = self._stage == "on top"
        if not sizes:
            sentence = f"no other {knob} is worth trying, by prediction"
            candidate.not_tried = ended(TuneVerdict.NOT_APPLICABLE, Reason.NO_SIZE, sentence)
        return [knobs(**{knob: size}) for size in sizes]

    def _predict_larger(self, configuration: Configuration) -> list[Prediction | str]:
        """The predictions for this configuration, and for FACTOR times its batch."""
        batch = FACTOR * self.size_of(configuration, "batch_size")
        larger = configuration.with_change(knobs(batch_size=batch))
        return self.runner.predict([configuration, larger])

    def _try_alone(self) -> None:
        budget, start = self.runner.seconds_left(), self.trials.baseline
        self.trials.seconds_for_later = 0.0 if budget == math.inf else TOGETHER_SHARE * budget
        waiting = sorted(self._usable, key=lambda one: one.is_slow_to_start)
        if self._batch_first:
            waiting.sort(key=lambda one: one.optimisation.size != "batch_size")
        while waiting:
            one = waiting.pop(0)
            has_run = self.runner.has_run(start.with_change(one.change))
            if self.trials.seconds_to_spend() < 0 and not has_run:
                continue
            if one.optimisation.size:
                is_slow = self.trials.is_slow_to_predict() and not self._batch_first
                changes = [] if is_slow else self._sized(one, start)
                if not changes:
                    continue
                one.change = changes[0]
            self._tell(one, len(waiting))
            one.alone = self.trials.try_on(start, one)
            self._tell(one, len(waiting), one.alone or one.not_tried)
        self.trials.seconds_for_later = 0.0

    def _try_together(self) -> None:
        """Tries what won alone; what often helps; a larger batch, which makes runs longer; then the
        rest.

        Candidates that are slow to start come last and once, unless there would be no time for
        them. What did not help is tried again in rounds: it may help on top of another.
        """
        quick = [one for one in self._usable if not one.is_slow_to_start]
        slow = [one for one in self._usable if one.is_slow_to_start]
        if self._batch_first:
            self._round(with_sizes(self._usable, at_the_end=False))
        self._rounds(quick, has_larger_step=self._batch_first)
        self._round([one for one in untried(quick) if one.optimisation.likely])
        before = self.trials.configuration
        self._round(with_sizes(self._usable, at_the_end=False))
        self._rounds(quick, has_larger_step=self.trials.configuration != before)
        rest = untried(quick)
        if slow and self.trials.is_tight(len(rest), slow[0]):
            self._round(slow[:1])
        self._round(rest)
        self._rounds(quick, has_larger_step=False)
        # Sizes once more: the others may have saved time and memory.
        self._round(with_sizes(self._usable, at_the_end=True))
        self._round(slow)

    def _rounds(self, quick: Sequence[Candidate], *, has_larger_step: bool) -> None:
        for _ in range(MAX_ROUNDS):
            before = self.trials.configuration
            self._round(promising(quick, self.trials.applied, has_larger_step=has_larger_step))
            if self.trials.configuration == before:
                return
            has_larger_step = False

    def _round(self, queue: Sequence[Candidate]) -> None:
        for num_before, one in enumerate(queue):
            self._tell(one, len(queue) - num_before - 1)
            before = self.trials.configuration
            for variant in self._variants(one):
                if not self._try_on_top(variant, before):
                    break

    def _variants(self, candidate: Candidate) -> Iterator[Candidate]:
        """The candidate itself, or one for each size: sizes depend on the memory that the others
        leave."""
        changes = [candidate.change]
        if candidate.optimisation.size is not None:
            changes = self._sized(candidate, self.trials.configuration)
        for change in changes:
            if candidate.last is None:  # it has not been tried alone
                candidate.change = change
            new = Candidate(candidate.optimisation, change)
            variant = next((known for known in self._usable if known.name == new.name), new)
            now = self.trials.configuration
            if now.with_change(change) != now and variant.tried_on != now.key:
                if variant not in self.candidates:
                    self.candidates.append(variant)
                yield variant

    def _try_on_top(self, candidate: Candidate, before: Configuration) -> bool:
        """Tries a candidate on top of the others. Returns whether it was applied. `before` is the
        configuration without any of its sizes."""
        now = self.trials.configuration
        if not self.trials.applied and candidate.alone:
            # nothing is applied yet, so this was already measured
            result: TrialResult | None = candidate.alone
        else:
            result = self.trials.try_on(now, candidate)
            candidate.num_on_top += 1
            candidate.on_top = result or candidate.on_top
            self._tell(candidate, result=result or candidate.not_tried)
        candidate.tried_on = now.key
        if result is None or not result.is_gain:
            return False
        self.trials.apply(candidate, before)
        candidate.on_top = self.trials.judge(before, candidate)
        self._best_ratio = self._speedup().ratio
        return True

    def _speedup(self) -> Speedup:
        start, end = self.trials.baseline, self.trials.configuration
        return compare(self.trials.good_runs(start), self.trials.good_runs(end))

    def _total(self) -> Speedup:
        """The speed-up over all runs of start and end, after running both once more side by
        side."""
        if not self.trials.applied:
            return Speedup(ratio=1.0)
        self._progress(Progress("start and end side by side"))
        try:
            self.trials.run(self.trials.baseline)
            self.trials.run(self.trials.configuration)
        except BudgetSpent:
            self.notes.append(
                "there was no time to run start and end once more side by side: "
                "the total compares runs minutes apart"
            )
        total = self._speedup()
        if total.p_value is None or total.p_value > SIGNIFICANCE_LEVEL:
            self.notes.append(
                "the total is not distinguishable from noise: "
                "something else may have used the machine meanwhile"
            )
        return total

    def _tell(self, one: Candidate, num_left: int = 0, result: TrialResult | None = None) -> None:
        left = f"{num_left} left, " if num_left else ""
        line = f"{self._stage:9} {one.name:28} {result.verdict}: {result.reason}" if result else ""
        detail = f"{left}best so far {self._best_ratio:.2f}x"
        self._progress(Progress(f"{self._stage}: {one.name}", detail=detail, line=line))


def _check_baseline(run: Measurement) -> None:
    what = f"The baseline did not run: {run.outcome}. {last_line(run.error)}"
    if run.outcome == Outcome.OK:
        if has_finite_losses(run):
            return
        what = "The losses of the baseline are not finite: nothing can be compared with them."
    problem = VramcastError(what, "Begin with knobs that run: try them with vramcast probe.")
    problem.exit_code = 3 if run.outcome == Outcome.OUT_OF_MEMORY else 1
    raise problem
