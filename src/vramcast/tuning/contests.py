"""One change against a configuration without it: A B B A, within the time there is."""

from __future__ import annotations

from collections import defaultdict

from vramcast.configuration import Configuration
from vramcast.errors import EnvironmentProblem, VramcastError
from vramcast.records import Measurement
from vramcast.tuning import sizes
from vramcast.tuning.judging import Judgement, Limits, verdict
from vramcast.tuning.laboratory import BudgetSpent, Laboratory
from vramcast.tuning.rows import Row
from vramcast.units import format_bytes

START_FACTOR = 1.5  # what is compiled twice is found in a cache the second time
SLOW_TO_PREDICT = 0.05  # of the time left
NOT_TRIED = "the time for the tune was spent before it was begun"


class Stack:
    """What was accepted, on top of the baseline."""

    def __init__(self, baseline: Configuration) -> None:
        self.baseline = self.configuration = baseline
        self.rows: list[Row] = []

    def accept(self, row: Row) -> None:
        """A row of which nothing is left in force is no longer part of it."""
        self.configuration = row.on(self.configuration)
        self.rows.append(row)
        for other in self.rows:
            if other.change is not None and not other.change.is_in_force(self.configuration):
                other.instead = row.name
        self.rows = [other for other in self.rows if not other.instead]


class Contests:
    def __init__(self, laboratory: Laboratory, stack: Stack, limits: Limits) -> None:
        self._laboratory, self._stack, self._limits = laboratory, stack, limits
        self._runs: dict[str, list[Measurement]] = defaultdict(list)
        self.seconds_for_later = 0.0  # not for the contests of now

    def run(self, configuration: Configuration, row: Row | None = None) -> Measurement:
        """`row` is the one that is tried: its runs must leave the time that is kept for later."""
        involved = [*self._stack.rows, *([row] if row is not None else [])]
        needed = [one.entry for one in involved if one.on(configuration) == configuration]
        measurement = self._laboratory.measure(
            configuration,
            start_seconds=max((entry.start_seconds for entry in needed), default=0.0),
            more_warmup=max((entry.warmup_steps for entry in needed), default=0),
            reserve_seconds=self.reserve() if row is not None else 0.0,
        )
        self._runs[configuration.key].append(measurement)
        return measurement

    def good_runs(self, configuration: Configuration) -> list[Measurement]:
        return [run for run in self._runs[configuration.key] if run.outcome == "ok"]

    def judge(self, without: Configuration, candidate: Configuration, row: Row) -> Judgement:
        return verdict(self.good_runs(without), self._runs[candidate.key], row.entry, self._limits)

    def contest(self, without: Configuration, row: Row) -> Judgement:
        candidate = row.on(without)
        try:
            unfit = self._predicted_unfit(row, candidate)
            if unfit is not None:
                return unfit
            if not self._is_affordable(without, row):
                return Judgement(verdict="not tried", reason=NOT_TRIED)
            self._runs_of_both(without, candidate, row)
        except BudgetSpent:
            return Judgement(verdict="not tried", reason="the time for the tune was spent while it ran")
        except EnvironmentProblem:
            raise
        except VramcastError as problem:  # a knob that this workload does not take after all
            return Judgement(verdict="failed", reason=problem.message)
        return self.judge(without, candidate, row)

    def _runs_of_both(self, without: Configuration, candidate: Configuration, row: Row) -> None:
        """B B A, after the A that is there; without the rest where it is lost already."""
        runs = self._runs[candidate.key]
        if len(runs) >= 2:
            return
        while len(runs) < 2:
            self.run(candidate, row)
            judged = self.judge(without, candidate, row)
            if judged.speedup is None or judged.speedup.ratio < 1 + self._limits.floor or "losses" in judged.reason:
                return
        if self._laboratory.seconds_left() - self.reserve() > self.seconds_of(without):
            self.run(without)

    def _predicted_unfit(self, row: Row, candidate: Configuration) -> Judgement | None:
        if not row.entry.more_memory or self._runs[candidate.key] or self.is_slow_to_predict():
            return None
        prediction = self._laboratory.predict([candidate])[0]
        if isinstance(prediction, str) or prediction.fits is not False:
            return None
        missing = sizes.missing_bytes(prediction)
        needs = f"it needs {format_bytes(prediction.peak_reserved_bytes)}, {format_bytes(missing)} more than there is"
        return Judgement(verdict="rejected", reason=f"predicted not to fit: {needs} (no GPU time was spent)", missing_bytes=missing)

    # --------------------------------------------------------------------------------------------------------------------------- time
    def is_slow_to_predict(self) -> bool:
        """Where time is short, and a prediction takes more of it than an attempt that fails would."""
        return self._laboratory.prediction_seconds() > SLOW_TO_PREDICT * self._laboratory.seconds_left()

    def _is_affordable(self, without: Configuration, row: Row) -> bool:
        """Whether two runs, and the closing ones of the whole tune, fit into the time left."""
        needed = 2 * self.seconds_of(without) + START_FACTOR * row.entry.start_seconds
        return self._laboratory.seconds_left() - self.reserve() > needed

    def is_tight(self, num_others: int, row: Row) -> bool:
        """Whether so many others would leave no time for what takes long to start, and often helps most."""
        needed = (2 * num_others + 3) * self.seconds_of(self._stack.configuration) + START_FACTOR * row.entry.start_seconds
        return self._laboratory.seconds_left() - self.reserve() < needed

    def reserve(self) -> float:
        """Seconds that belong to what comes later, start and end side by side among it."""
        return self.seconds_for_later + self.seconds_of(self._stack.baseline) + self.seconds_of(self._stack.configuration)

    def seconds_of(self, configuration: Configuration) -> float:
        """Of the last run: the first one also waits for torch, or compiles what is in a cache afterwards."""
        runs = self._runs[configuration.key]
        return runs[-1].seconds if runs else 0.0
