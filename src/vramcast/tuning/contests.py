"""One change against a configuration without it: A B B A, within the time there is."""

from __future__ import annotations

from collections import defaultdict

from vramcast.errors import EnvironmentProblem, VramcastError
from vramcast.records.measurement import Measurement
from vramcast.records.tune import TrialResult
from vramcast.tuning import sizes
from vramcast.tuning.judging import Limits, verdict
from vramcast.tuning.laboratory import BudgetSpent, Laboratory
from vramcast.tuning.rows import Row
from vramcast.units import format_bytes
from vramcast.workload.configuration import Configuration

START_FACTOR = 1.5  # what is compiled twice is found in a cache the second time
SLOW_TO_PREDICT = 0.05  # of the time left
ROOMY = 0.5  # of the memory: a configuration that takes less leaves room for most changes
NOT_TRIED = "the time for the tune was spent before it was begun"


class Stack:
    """What was accepted, on top of the baseline."""

    def __init__(self, baseline: Configuration) -> None:
        self.baseline = self.configuration = baseline
        self.rows: list[Row] = []
        self._accepted: list[tuple[str, Row]] = []

    @property
    def steps(self) -> list[Row]:
        """Every change from the baseline to here, also what something else took the place of later."""
        return [row for _, row in self._accepted]

    def accept(self, row: Row, before: Configuration) -> None:
        """`before` is what it is told against. A row of which nothing is left in force is no longer part of the stack."""
        self._accepted = [(key, one) for key, one in self._accepted if key != before.key] + [
            (before.key, row)
        ]
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

    def judge(self, without: Configuration, candidate: Configuration, row: Row) -> TrialResult:
        return verdict(self.good_runs(without), self._runs[candidate.key], row.entry, self._limits)

    def contest(self, without: Configuration, row: Row) -> TrialResult:
        candidate = row.on(without)
        try:
            unfit = self._predicted_unfit(without, row)
            if unfit is not None:
                return unfit
            if not self._is_affordable(without, row):
                return TrialResult(verdict="not tried", reason=NOT_TRIED)
            self._runs_of_both(without, candidate, row)
        except BudgetSpent:
            return TrialResult(
                verdict="not tried", reason="the time for the tune was spent while it ran"
            )
        except EnvironmentProblem:
            raise
        except VramcastError as problem:  # a knob that this workload does not take after all
            return TrialResult(verdict="failed", reason=problem.message)
        return self.judge(without, candidate, row)

    def _runs_of_both(self, without: Configuration, candidate: Configuration, row: Row) -> None:
        """B B A, after the A that is there; without the rest where it is lost already."""
        runs = self._runs[candidate.key]
        if len(runs) >= 2:
            return
        while len(runs) < 2:
            self.run(candidate, row)
            judged = self.judge(without, candidate, row)
            if (
                judged.speedup is None
                or judged.speedup.ratio < 1 + self._limits.floor
                or "losses" in judged.reason
            ):
                return
        if self._laboratory.seconds_left() - self.reserve() > self.seconds_of(without):
            self.run(without)

    def _predicted_unfit(self, without: Configuration, row: Row) -> TrialResult | None:
        candidate = row.on(without)
        if (
            not self._may_need_too_much(without, row)
            or self._runs[candidate.key]
            or self.is_slow_to_predict()
        ):
            return None
        prediction = self._laboratory.predict([candidate])[0]
        if isinstance(prediction, str) or prediction.fits is not False:
            return None
        missing = sizes.missing_bytes(prediction)
        needs = f"it needs {format_bytes(prediction.peak_reserved_bytes)}, {format_bytes(missing)} more than there is"
        return TrialResult(
            verdict="rejected",
            reason=f"predicted not to fit: {needs} (no GPU time was spent)",
            missing_bytes=missing,
        )

    def _may_need_too_much(self, without: Configuration, row: Row) -> bool:
        """By what it is, or because little memory is left: what saves memory in one place (autocast, after float32) takes more in another
        (after bfloat16)."""
        if row.entry.more_memory:
            return True
        changes_tensors = row.change is not None and bool(row.change.knobs)
        return changes_tensors and any(
            _share_taken(run) > ROOMY for run in self.good_runs(without)[-1:]
        )

    # --------------------------------------------------------------------------------------------------------------------------- time
    def is_slow_to_predict(self) -> bool:
        """Where time is short, and a prediction takes more of it than an attempt that fails would."""
        return (
            self._laboratory.prediction_seconds()
            > SLOW_TO_PREDICT * self._laboratory.seconds_left()
        )

    def is_begun(self, without: Configuration, row: Row) -> bool:
        """By an earlier call of this tune: its runs cost nothing now."""
        return row.change is not None and self._laboratory.has_run(row.on(without))

    def _is_affordable(self, without: Configuration, row: Row) -> bool:
        """Whether two runs, and the closing ones of the whole tune, fit into the time left."""
        if self.is_begun(without, row):
            return True
        needed = 2 * self.seconds_of(without) + START_FACTOR * row.entry.start_seconds
        return self._laboratory.seconds_left() - self.reserve() > needed

    def is_tight(self, num_others: int, row: Row) -> bool:
        """Whether so many others would leave no time for what takes long to start, and often helps most."""
        needed = (2 * num_others + 3) * self.seconds_of(
            self._stack.configuration
        ) + START_FACTOR * row.entry.start_seconds
        return self._laboratory.seconds_left() - self.reserve() < needed

    def reserve(self) -> float:
        """Seconds that belong to what comes later, start and end side by side among it."""
        return (
            self.seconds_for_later
            + self.seconds_of(self._stack.baseline)
            + self.seconds_of(self._stack.configuration)
        )

    def seconds_of(self, configuration: Configuration) -> float:
        """Of the last run: the first one also waits for torch, or compiles what is in a cache afterwards."""
        runs = self._runs[configuration.key]
        return runs[-1].seconds if runs else 0.0


def _share_taken(run: Measurement) -> float:
    there_is = run.memory_cap_bytes if run.memory_cap_bytes is not None else run.capacity_bytes
    return (run.peak_reserved_bytes or 0) / there_is if there_is else 0.0
