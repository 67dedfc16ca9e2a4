"""How a tune goes: every change alone against the baseline, then those that helped on top of each other, then all of it against the start.

Nothing here knows where numbers come from, so that a test can run a whole tune on invented ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from vramcast.errors import UsageError, VramcastError
from vramcast.records.machine import Machine
from vramcast.records.measurement import Measurement
from vramcast.records.tune import Speedup, TrialResult
from vramcast.tuning import sizes
from vramcast.tuning.contests import Contests, Stack
from vramcast.tuning.entry import Change, Entry, unmet
from vramcast.tuning.inspection import Offer
from vramcast.tuning.judging import Limits, compare, has_finite_losses
from vramcast.tuning.laboratory import BudgetSpent, Laboratory
from vramcast.tuning.rows import Row, already, promising, sized_rows, untried
from vramcast.workload.configuration import Configuration
from vramcast.workload.switches import Switches

ALONE_SHARE = 0.4  # of the budget: then what has won so far is put together
MOST_ROUNDS = 3
NEARLY_FOR_NOTHING = 3.0  # times the throughput, of FURTHER times the batch
STEP_SHARE = 0.02  # of the time left, for one step of a larger batch: a candidate has some fourteen


class BaselineProblem(VramcastError):
    def __init__(self, run: Measurement) -> None:
        last = " ".join((run.error or "").strip().splitlines()[-1:])
        what = f"The baseline did not run: {run.outcome}. {last}".rstrip()
        if run.outcome == "ok":
            what = "The losses of the baseline are not finite: there is nothing that others could be compared with."
        super().__init__(what, "Begin with knobs that run: try them with vramcast probe.")
        self.exit_code = 3 if run.outcome == "out_of_memory" else 1


@dataclass(frozen=True)
class Tuned:
    rows: list[Row]
    stack: list[Row]
    steps: list[Row]  # with what was replaced later
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


class Tuner:
    def __init__(
        self,
        laboratory: Laboratory,
        entries: Sequence[Entry],
        offer: Offer,
        baseline: Configuration,
        machine: Machine,
        device: str,
        limits: Limits,
        show: Callable[[Progress], None],
    ) -> None:
        self._laboratory, self._entries, self._offer, self._show = laboratory, entries, offer, show
        self._machine, self._device, self._limits = machine, device, limits
        self._stack = Stack(baseline)
        self._contests = Contests(laboratory, self._stack, limits)
        self._progress = Progress()
        self._has_chosen_sizes = False  # on top of the others
        self._notes: list[str] = []

    def tune(self) -> Tuned:
        first = self._start()
        rows = [self._row(entry, first) for entry in self._entries]
        batch_first = self._waits_for_host(rows)
        self._alone(rows, batch_first)
        rows = self._on_top(rows, batch_first)
        total = self._total()
        start, end = self._stack.baseline, self._stack.configuration
        runs = self._contests.good_runs
        return Tuned(
            rows,
            self._stack.rows,
            self._stack.steps,
            start,
            end,
            runs(start),
            runs(end),
            total,
            self._notes,
        )

    def _start(self) -> Measurement:
        try:
            first = self._contests.run(self._stack.baseline)
            if first.outcome != "ok" or not has_finite_losses(first):
                raise BaselineProblem(first)
            self._contests.run(self._stack.baseline)
        except BudgetSpent:
            what = "The budget is spent before the start has run twice."
            raise UsageError(what, "Give more time with --budget, for example 20min.") from None
        return first

    # ------------------------------------------------------------------------------------------------------------------ what there is
    def _row(self, entry: Entry, first: Measurement) -> Row:
        refusal = unmet(entry, self._machine, self._device) or self._offer.refusals.get(entry.name)
        if refusal:
            return Row(entry, refusal=refusal)
        change = self._offer.changes[entry.name]
        return Row(entry, change, refusal=already(change, first))

    def _sized(self, row: Row, without: Configuration) -> list[Row]:
        """A row for every size worth trying on top of a configuration."""
        knob = row.entry.size
        assert knob is not None
        now = without.knobs.get(knob, self._offer.baseline[knob])
        found = sizes.lengths(now) if knob == "seq_len" else self._batch_sizes(without, now)
        row.found_no_size = not found
        return [Row(row.entry, Change(knobs={knob: size})) for size in found]

    def _batch_sizes(self, without: Configuration, now: int) -> list[int]:
        """By prediction; where that is slow and was done before, twice and four times as large."""
        if self._has_chosen_sizes and self._contests.is_slow_to_predict():
            return [factor * now for factor in (2, 4)]
        larger = without.with_({"batch_size": sizes.FURTHER * now}, Switches(), None)
        here, further = self._laboratory.predict([without, larger])
        most_seconds = STEP_SHARE * (self._laboratory.seconds_left() - self._contests.reserve())
        return sizes.batch_sizes(now, here, further, most_seconds)

    def _waits_for_host(self, rows: Sequence[Row]) -> bool:
        """Whether a larger batch is nearly for nothing, by prediction: then it comes first, because it shows what all others are worth."""
        if not any(row.entry.size == "batch_size" and not row.refusal for row in rows):
            return False
        start = self._stack.baseline
        now = start.knobs.get("batch_size", self._offer.baseline["batch_size"])
        larger = start.with_({"batch_size": sizes.FURTHER * now}, Switches(), None)
        return (
            sizes.gain_of_larger(*self._laboratory.predict([start, larger])) >= NEARLY_FOR_NOTHING
        )

    # ------------------------------------------------------------------------------------------------------------------------- alone
    def _alone(self, rows: Sequence[Row], batch_first: bool) -> None:
        budget = self._laboratory.seconds_left()
        self._contests.seconds_for_later = (1 - ALONE_SHARE) * budget if budget != math.inf else 0.0
        usable = [row for row in rows if not row.refusal]
        waiting = sorted(
            usable,
            key=lambda row: (
                -1 if batch_first and row.entry.size == "batch_size" else row.is_slow_to_start
            ),
        )
        for index, row in enumerate(waiting):
            if (
                self._laboratory.seconds_left() < self._contests.reserve()
                and not self._contests.is_begun(self._stack.baseline, row)
            ):
                continue
            if row.entry.size and self._contests.is_slow_to_predict() and not batch_first:
                continue  # a size is chosen by prediction, and on top of the others it must be anyway
            if row.entry.size:
                row.change = next(
                    (sized.change for sized in self._sized(row, self._stack.baseline)), row.change
                )
            if not row.found_no_size:
                self._say("alone", row, len(waiting) - index - 1)
                row.alone = self._contests.contest(self._stack.baseline, row)
                self._said(row, row.alone)
        self._contests.seconds_for_later = 0.0

    # ------------------------------------------------------------------------------------------------------------------------ on top
    def _on_top(self, rows: list[Row], batch_first: bool) -> list[Row]:
        """What won alone; what often helps; a larger batch, after which runs take longer; then the rest. What is compiled comes last, and
        once, unless there would be no time for it. What was added may make useful what was not: others are tried again, in rounds."""
        usable = [row for row in rows if not row.refusal]
        quick, slow = [
            [row for row in usable if row.is_slow_to_start is slow] for slow in (False, True)
        ]
        if batch_first:
            self._round(sized_rows(usable, at_the_end=False), usable)
        self._rounds(quick, usable, is_larger=batch_first)
        self._round([row for row in untried(quick) if row.entry.likely], usable)
        before = self._stack.configuration
        self._has_chosen_sizes = batch_first
        self._round(sized_rows(usable, at_the_end=False), usable)
        self._has_chosen_sizes = True
        self._rounds(quick, usable, is_larger=self._stack.configuration != before)
        rest = untried(quick)
        if slow and self._contests.is_tight(len(rest), slow[0]):
            self._round(slow[:1], usable)
        self._round(rest, usable)
        self._rounds(quick, usable)
        self._round(
            sized_rows(usable, at_the_end=True), usable
        )  # what the others have saved of time and memory
        self._round(slow, usable)
        return [*rows, *(row for row in usable if row not in rows)]

    def _rounds(self, quick: Sequence[Row], usable: list[Row], *, is_larger: bool = False) -> None:
        for index in range(MOST_ROUNDS):
            before = self._stack.configuration
            self._round(
                promising(quick, self._stack.rows, is_larger=is_larger and index == 0), usable
            )
            if self._stack.configuration == before:
                return

    def _round(self, queue: Sequence[Row], usable: list[Row]) -> None:
        for index, row in enumerate(queue):
            self._say("on top", row, len(queue) - index - 1)
            before = self._stack.configuration
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
        for sized in self._sized(row, self._stack.configuration):
            if row.last is None:  # it was not tried alone
                row.change = sized.change
            same = next((one for one in usable if one.name == sized.name), sized)
            if self._changes_anything(same):
                yield same

    def _changes_anything(self, row: Row) -> bool:
        now = self._stack.configuration
        return row.on(now) != now and row.against != now.key

    def _try_on_top(self, row: Row, before: Configuration) -> bool:
        """`before` is without any of its sizes: what they bring is told against that."""
        now = self._stack.configuration
        if (
            not self._stack.rows and row.alone is not None and row.alone.verdict != "not tried"
        ):  # on top of nothing: that was measured
            judged = row.alone
        else:
            judged = self._contests.contest(now, row)
            row.num_on_top += 1
            self._said(row, judged)
            if judged.verdict != "not tried" or row.on_top is None:
                row.on_top = judged
        row.against = now.key
        if not judged.is_gain:
            return False
        self._stack.accept(row, before)
        row.on_top = self._contests.judge(before, self._stack.configuration, row)
        self._progress.best = self._compared().ratio
        return True

    # -------------------------------------------------------------------------------------------------------------------------- total
    def _compared(self) -> Speedup:
        return compare(
            self._contests.good_runs(self._stack.baseline),
            self._contests.good_runs(self._stack.configuration),
        )

    def _total(self) -> Speedup:
        """Measured against the start, not multiplied: over all runs of both, once more side by side among them."""
        if not self._stack.rows:
            return Speedup(ratio=1.0)
        self._progress.stage, self._progress.trying = "the whole", "start and end side by side"
        self._show(self._progress)
        try:
            self._contests.run(self._stack.baseline)
            self._contests.run(self._stack.configuration)
        except BudgetSpent:
            self._notes.append(
                "there was no time to run start and end once more side by side: the total compares runs minutes apart"
            )
        total = self._compared()
        if total.p_value is None or total.p_value > self._limits.level:
            self._notes.append(
                "the total is not distinguishable from noise: something else may have used the machine meanwhile"
            )
        return total

    def _say(self, stage: str, row: Row, left: int) -> None:
        self._progress = Progress(stage=stage, trying=row.name, left=left, best=self._progress.best)
        self._show(self._progress)

    def _said(self, row: Row, judged: TrialResult) -> None:
        self._progress.trying, self._progress.said = row.name, f"{judged.verdict}: {judged.reason}"
        self._show(self._progress)
        self._progress.said = ""
