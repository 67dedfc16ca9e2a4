"""The rows of a tune, and in which order they are tried on top of each other. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vramcast.records.measurement import Measurement
from vramcast.records.tune import TrialResult
from vramcast.tuning.entry import Change, Entry
from vramcast.workload.configuration import Configuration

SLOW_START_SECONDS = 30.0  # compiled ones come last, and once
SECOND_CHANCE = 0.98  # what was not slower than this may help on top of others


@dataclass(eq=False)
class Row:
    """One change in a tune."""

    entry: Entry
    change: Change | None = None
    refusal: str = ""  # why it is not applicable
    found_no_size: bool = False  # when it was last looked for one
    alone: TrialResult | None = None
    on_top: TrialResult | None = None
    against: str = ""  # the configuration it was last tried on top of
    num_on_top: int = 0  # how often it was
    instead: str = ""  # what took its place

    @property
    def name(self) -> str:
        value = self.change.knobs.get(self.entry.size) if self.change and self.entry.size else None
        return self.entry.name if value is None else f"{self.entry.name} {value}"

    def on(self, configuration: Configuration) -> Configuration:
        assert self.change is not None
        return self.change.on(configuration)

    @property
    def is_slow_to_start(self) -> bool:
        return self.entry.start_seconds >= SLOW_START_SECONDS

    @property
    def last(self) -> TrialResult | None:
        return self.on_top or self.alone

    @property
    def last_ratio(self) -> float:
        return self.last.speedup.ratio if self.last and self.last.speedup else 0.0


def already(change: Change, first: Measurement) -> str:
    """Whether the baseline's process had these switches without being told."""
    given: dict[str, Any] = change.switches.given()
    if change.allocator is not None and change.allocator in first.allocator_settings:
        return f"the baseline has it already ({change.allocator})"
    if (
        given
        and not change.knobs
        and all(first.switches.get(name) == value for name, value in given.items())
    ):
        return f"the baseline has it already ({change})"
    return ""


def promising(rows: Sequence[Row], stack: Sequence[Row], *, is_larger: bool) -> list[Row]:
    """What won alone, most first; alternatives to it; what may help on top though it did not before.

    `is_larger`: a step does more work than when they were tried. What is slower where the GPU waits for the host, as fewer bits are, may
    be faster where it does not.
    """
    open_rows = [row for row in rows if row not in stack and not row.instead]
    untested = [
        row
        for row in open_rows
        if row.on_top is None and row.alone and row.alone.is_gain and not row.entry.size
    ]
    taken: set[str] = set()
    first: list[Row] = []
    alternatives: list[Row] = []
    for row in sorted(untested, key=lambda row: -row.last_ratio):
        assert row.change is not None
        (alternatives if row.change.moves & taken else first).append(row)
        taken |= row.change.moves
    return [*first, *alternatives, *_second_chances(open_rows, is_larger)]


def untried(rows: Sequence[Row]) -> list[Row]:
    """What had no time alone; what is hardly ever applied comes last."""
    found = [
        row
        for row in rows
        if not row.entry.size and (row.last is None or row.last.verdict == "not tried")
    ]
    return sorted(found, key=lambda row: row.entry.changes_training)


def sized_rows(rows: Sequence[Row], *, at_the_end: bool) -> list[Row]:
    """The rows of entries whose sizes are chosen anew, one for each entry. What is hardly ever applied has time at the end, if at all."""
    found = {row.entry.name: row for row in reversed(rows) if row.entry.size}

    def has_its_turn(row: Row) -> bool:
        return not row.entry.changes_training or (
            at_the_end if row.alone is None else row.alone.is_gain
        )

    return [row for row in found.values() if has_its_turn(row)]


def _second_chances(rows: Sequence[Row], is_larger: bool) -> list[Row]:
    lost = [row for row in rows if not row.entry.size and _may_help_yet(row, is_larger)]
    failed = [
        row
        for row in rows
        if not row.entry.size and not row.num_on_top and row.last and row.last.verdict == "failed"
    ]
    return [
        *sorted(lost, key=lambda row: -row.last_ratio),
        *(row for row in failed if row.last and "timeout" not in row.last.reason),
    ]


def _may_help_yet(row: Row, is_larger: bool) -> bool:
    judged = row.last
    if (
        judged is None
        or judged.verdict != "rejected"
        or row.entry.changes_training
        or "losses" in judged.reason
    ):
        return False
    if is_larger and row.entry.likely:
        return row.num_on_top < 2 and row.last_ratio > 0
    return row.num_on_top == 0 and row.last_ratio >= SECOND_CHANCE
