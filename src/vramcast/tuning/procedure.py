"""How a tune goes: every change alone against the baseline, then those that helped on top of each other, then all of it against the start.

Runs are interleaved: A B B A. The closing A is left out where B has lost already, and serves as the opening A of the next one. Nothing here
knows where numbers come from, so that a test can run a whole tune on invented ones.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from vramcast.configuration import Configuration
from vramcast.errors import EnvironmentProblem, UsageError, VramcastError
from vramcast.machine import Machine
from vramcast.probing.trial import Switches
from vramcast.records import Measurement
from vramcast.tuning import sizes
from vramcast.tuning.entry import Change, Entry, unmet
from vramcast.tuning.inspection import Offer
from vramcast.tuning.judging import Judgement, Limits, Speedup, compare, verdict
from vramcast.tuning.laboratory import BudgetSpent, Laboratory
from vramcast.tuning.rows import Row, already, promising, sized_rows, untried
from vramcast.units import format_bytes

ALONE_SHARE = 0.4  # of the budget: then what has won so far is put together
START_FACTOR = 1.5  # what is compiled twice is found in a cache the second time
MOST_ROUNDS = 3
SLOW_TO_PREDICT = 0.05  # of the time left
STEP_SHARE = 0.02  # of the time left, for one step of a larger batch: a candidate has some fourteen
NOT_TRIED = "the time for the tune was spent before it was begun"


class BaselineProblem(VramcastError):
    def __init__(self, run: Measurement) -> None:
        last = " ".join((run.error or "").strip().splitlines()[-1:])
        super().__init__(
            f"The baseline did not run: {run.outcome}. {last}".rstrip(), "Begin with knobs that run: try them with vramcast probe."
        )
        self.exit_code = 3 if run.outcome == "out_of_memory" else 1


@dataclass(frozen=True)
class Tuned:
    rows: list[Row]
    stack: list[Row]
    baseline: Configuration
    final: Configuration
    baseline_runs: list[Measurement]
    final_runs: list[Measurement]
    total: Speedup
    notes: list[str]


@dataclass
class Progress:
    """Where a tune is."""

    stage: str = ""
    trying: str = ""
    left: int = 0
    best: float = 1.0
    said: str = ""  # of the one that has just ended


@dataclass
class Tuner:
    laboratory: Laboratory
    entries: Sequence[Entry]
    offer: Offer
    baseline: Configuration
    machine: Machine
    device: str
    limits: Limits = field(default_factory=Limits)
    show: Callable[[Progress], None] = lambda _: None

    def __post_init__(self) -> None:
        self._runs: dict[str, list[Measurement]] = defaultdict(list)
        self._stack: list[Row] = []
        self._progress = Progress()
        self._budget = self.laboratory.seconds_left()
        self._is_alone = True
        self._has_chosen_sizes = False  # on top of the others
        self._notes: list[str] = []

    def tune(self) -> Tuned:
        first = self._start()
        rows = [self._row(entry, first) for entry in self.entries]
        self._alone(rows)
        rows = self._on_top(rows)
        total = self._total()
        final = self._stacked()
        return Tuned(rows, self._stack, self.baseline, final, self._good(self.baseline), self._good(final), total, self._notes)

    def _start(self) -> Measurement:
        try:
            first = self._run(self.baseline)
            if first.outcome != "ok":
                raise BaselineProblem(first)
            self._run(self.baseline)
        except BudgetSpent:
            raise UsageError(
                "The budget is spent before the start has run twice.", "Give more time with --budget, for example 20min."
            ) from None
        return first

    # ------------------------------------------------------------------------------------------------------------------ what there is
    def _row(self, entry: Entry, first: Measurement) -> Row:
        refusal = unmet(entry, self.machine, self.device) or self.offer.refusals.get(entry.name)
        if refusal:
            return Row(entry, refusal=refusal)
        change = self.offer.changes[entry.name]
        return Row(entry, change, refusal=already(change, first))

    def _sized(self, row: Row, without: Configuration) -> list[Row]:
        """A row for every size worth trying on top of a configuration."""
        knob = row.entry.size
        assert knob is not None
        now = without.knobs.get(knob, self.offer.baseline[knob])
        found = sizes.lengths(now) if knob == "seq_len" else self._batch_sizes(without, now)
        row.found_no_size = not found
        return [Row(row.entry, Change(knobs={knob: size})) for size in found]

    def _batch_sizes(self, without: Configuration, now: int) -> list[int]:
        """By prediction; where that is slow and was done before, twice and four times as large."""
        if self._has_chosen_sizes and self._is_slow_to_predict():
            return [factor * now for factor in (2, 4)]
        self._has_chosen_sizes = self._has_chosen_sizes or not self._is_alone
        larger = without.with_({"batch_size": sizes.FURTHER * now}, Switches(), None)
        most_seconds = STEP_SHARE * (self.laboratory.seconds_left() - self._reserve())
        here, further = self.laboratory.predict([without, larger])
        return sizes.batch_sizes(now, here, further, most_seconds)

    # ------------------------------------------------------------------------------------------------------------------------- alone
    def _alone(self, rows: Sequence[Row]) -> None:
        waiting = sorted((row for row in rows if not row.refusal), key=lambda row: row.is_slow_to_start)
        for index, row in enumerate(waiting):
            if self.laboratory.seconds_left() < self._reserve():
                return
            if row.entry.size and self._is_slow_to_predict():
                continue  # a size is chosen by prediction, and on top of the others it must be anyway
            if row.entry.size:
                row.change = next((sized.change for sized in self._sized(row, self.baseline)), row.change)
            if not row.found_no_size:
                self._say("alone", row, len(waiting) - index - 1)
                row.alone = self._contest(self.baseline, row)
                self._said(row, row.alone)

    # ------------------------------------------------------------------------------------------------------------------------ on top
    def _on_top(self, rows: list[Row]) -> list[Row]:
        """In rounds: what was added may make useful what was not. Compiled ones come after all of that, once."""
        self._is_alone = False
        usable = [row for row in rows if not row.refusal]
        quick, slow = [[row for row in usable if row.is_slow_to_start is slow] for slow in (False, True)]
        self._rounds(quick, usable)
        self._round([row for row in untried(quick) if row.entry.likely], usable)
        before = self._stacked()
        self._round(sized_rows(usable, at_the_end=False), usable)  # from here on runs take longer
        self._rounds(quick, usable, is_larger=self._stacked() != before)
        rest = untried(quick)
        if slow and self._is_tight(len(rest), slow[0]):
            self._round(slow[:1], usable)
        self._round(rest, usable)
        self._rounds(quick, usable)
        self._round(sized_rows(usable, at_the_end=True), usable)  # what the others have saved of time and memory
        self._round(slow, usable)
        return [*rows, *(row for row in usable if row not in rows)]

    def _rounds(self, quick: Sequence[Row], usable: list[Row], *, is_larger: bool = False) -> None:
        for index in range(MOST_ROUNDS):
            before = self._stacked()
            self._round(promising(quick, self._stack, is_larger=is_larger and index == 0), usable)
            if self._stacked() == before:
                return

    def _is_tight(self, num_others: int, row: Row) -> bool:
        """Whether the others would leave no time for what takes long to start, and often helps most."""
        one = self._seconds_of(self._stacked())
        return self.laboratory.seconds_left() - self._reserve() < (2 * num_others + 3) * one + START_FACTOR * row.entry.start_seconds

    def _round(self, queue: Sequence[Row], usable: list[Row]) -> None:
        for index, row in enumerate(queue):
            self._say("on top", row, len(queue) - index - 1)
            before = self._stacked()
            for one in self._with_sizes(row, usable):
                if one not in usable:
                    usable.append(one)
                if not self._try_on_top(one, before):
                    break

    def _with_sizes(self, row: Row, usable: Sequence[Row]) -> Iterator[Row]:
        """A size depends on what the others have left of the memory: it is chosen anew. Larger ones are tried as long as they help."""
        if row.entry.size is None:
            if self._changes_anything(row):
                yield row
            return
        for sized in self._sized(row, self._stacked()):
            if row.last is None:  # it was not tried alone
                row.change = sized.change
            same = next((one for one in usable if one.name == sized.name), sized)
            if self._changes_anything(same):
                yield same

    def _try_on_top(self, row: Row, before: Configuration) -> bool:
        """`before` is without any of its sizes: what they bring is told against that."""
        now = self._stacked()
        if not self._stack and row.alone is not None and row.alone.verdict != "not tried":  # on top of nothing: that was measured
            judged = row.alone
        else:
            judged = self._contest(now, row)
            self._said(row, judged)
            if judged.verdict != "not tried" or row.on_top is None:
                row.on_top = judged
        row.against = now.key
        if not judged.is_gain:
            return False
        self._accept(row)
        row.on_top = verdict(self._good(before), self._good(self._stacked()), row.entry, self.limits)
        return True

    def _changes_anything(self, row: Row) -> bool:
        assert row.change is not None
        now = self._stacked()
        return row.change.on(now).key != now.key and row.against != now.key

    def _accept(self, row: Row) -> None:
        assert row.change is not None
        self._stack.append(row)
        final = self._stacked()
        for other in self._stack:
            if other.change is not None and other.change.on(final).key != final.key:
                other.instead = row.name
        self._stack = [other for other in self._stack if not other.instead]
        self._progress.best = compare(self._good(self.baseline), self._good(self._stacked())).ratio

    def _stacked(self) -> Configuration:
        configuration = self.baseline
        for row in self._stack:
            assert row.change is not None
            configuration = row.change.on(configuration)
        return configuration

    # ----------------------------------------------------------------------------------------------------------------------- contests
    def _contest(self, without: Configuration, row: Row) -> Judgement:
        assert row.change is not None
        candidate = row.change.on(without)
        try:
            unfit = self._predicted_unfit(row, candidate)
            if unfit is not None:
                return unfit
            if not self._affordable(without, row):
                return Judgement(verdict="not tried", reason=NOT_TRIED)
            self._runs_of_both(without, candidate, row)
        except BudgetSpent:
            return Judgement(verdict="not tried", reason="the time for the tune was spent while it ran")
        except EnvironmentProblem:
            raise
        except VramcastError as problem:  # a knob that this workload does not take after all
            return Judgement(verdict="failed", reason=problem.message)
        return verdict(self._good(without), self._runs[candidate.key], row.entry, self.limits)

    def _runs_of_both(self, without: Configuration, candidate: Configuration, row: Row) -> None:
        """B B A, after the A that is there; without the rest where it is lost already."""
        runs = self._runs[candidate.key]
        if len(runs) >= 2:
            return
        while len(runs) < 2:
            self._run(candidate, row)
            judged = verdict(self._good(without), runs, row.entry, self.limits)
            if (
                judged.verdict == "failed"
                or not judged.speedup
                or judged.speedup.ratio < 1 + self.limits.floor
                or "losses" in judged.reason
            ):
                return
        if self.laboratory.seconds_left() - self._reserve() > self._seconds_of(without):
            self._run(without)

    def _predicted_unfit(self, row: Row, candidate: Configuration) -> Judgement | None:
        if not row.entry.more_memory or self._runs[candidate.key] or self._is_slow_to_predict():
            return None
        prediction = self.laboratory.predict([candidate])[0]
        if isinstance(prediction, str) or sizes.fits(prediction):
            return None
        missing = sizes.missing([prediction])
        needs = f"it needs {format_bytes(prediction.peak_reserved_bytes)}, {format_bytes(missing)} more than there is"
        return Judgement(verdict="rejected", reason=f"predicted not to fit: {needs} (no GPU time was spent)", missing_bytes=missing)

    def _is_slow_to_predict(self) -> bool:
        """Where time is short, and a prediction takes more of it than an attempt that fails would."""
        return self.laboratory.prediction_seconds() > SLOW_TO_PREDICT * self.laboratory.seconds_left()

    def _affordable(self, without: Configuration, row: Row) -> bool:
        """Whether two runs, and the closing ones of the whole tune, fit into the time left."""
        one = self._seconds_of(without)
        return self.laboratory.seconds_left() - self._reserve() > 2 * one + START_FACTOR * row.entry.start_seconds

    def _reserve(self) -> float:
        """Seconds that belong to what comes later: the second half of the tune, and start and end side by side."""
        closing = self._seconds_of(self.baseline) + self._seconds_of(self._stacked())
        later = (1 - ALONE_SHARE) * self._budget if self._is_alone and self._budget != math.inf else 0.0
        return closing + later

    def _seconds_of(self, configuration: Configuration) -> float:
        """Of the last run: the first one also waits for torch, or compiles what is in a cache afterwards."""
        runs = self._runs[configuration.key]
        return runs[-1].seconds if runs else 0.0

    def _run(self, configuration: Configuration, row: Row | None = None) -> Measurement:
        involved = [*self._stack, *([row] if row is not None else [])]
        needed = [one.entry for one in involved if one.change is not None and one.change.on(configuration).key == configuration.key]
        measurement = self.laboratory.measure(
            configuration,
            start_seconds=max((entry.start_seconds for entry in needed), default=0.0),
            more_warmup=max((entry.warmup_steps for entry in needed), default=0),
            reserve_seconds=self._reserve() if row is not None else 0.0,
        )
        self._runs[configuration.key].append(measurement)
        return measurement

    def _good(self, configuration: Configuration) -> list[Measurement]:
        return [run for run in self._runs[configuration.key] if run.outcome == "ok"]

    # -------------------------------------------------------------------------------------------------------------------------- total
    def _total(self) -> Speedup:
        """Measured against the start, not multiplied: both once more, side by side."""
        final = self._stacked()
        if not self._stack:
            return Speedup(ratio=1.0)
        self._progress.stage, self._progress.trying = "the whole", "start and end side by side"
        self.show(self._progress)
        try:
            self._run(self.baseline)
            self._run(final)
        except BudgetSpent:
            self._notes.append("there was no time to run start and end once more side by side: the total compares runs minutes apart")
        total = compare(self._good(self.baseline), self._good(final))
        if total.p_value is None or total.p_value > self.limits.level:
            self._notes.append("the total is not distinguishable from noise: something else may have used the machine meanwhile")
        return total

    def _say(self, stage: str, row: Row, left: int) -> None:
        self._progress = Progress(stage=stage, trying=row.name, left=left, best=self._progress.best)
        self.show(self._progress)

    def _said(self, row: Row, judged: Judgement) -> None:
        self._progress.trying, self._progress.said = row.name, f"{judged.verdict}: {judged.reason}"
        self.show(self._progress)
        self._progress.said = ""
