"""What a report says before it has a format: sections with text, tables and figures as data.

A record becomes sections in a file of its own (prediction.py, measurement.py, ...); every format
shows the same ones. What is marked `detail` is in reports, and not in what a command shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from vramcast.units import format_bytes, format_seconds

PREDICTED, MEASURED, FITTED = "predicted", "measured", "fitted"
# For things of one kind, one after the other; assets/page.css has them.
SERIES_COLOURS = tuple(f"s{number}" for number in range(8))


class Tone(StrEnum):
    """Whether an answer is a good one."""

    GOOD = "good"
    BAD = "bad"
    UNSURE = "unsure"
    PLAIN = ""


@dataclass(frozen=True)
class Column:
    """`unit` is for bare numbers; a cell with its own unit, such as 4.61 GiB, needs none."""

    name: str
    unit: str = ""
    left: bool = False

    @property
    def heading(self) -> str:
        return f"{self.name} [{self.unit}]" if self.unit else self.name


@dataclass(frozen=True, kw_only=True)
class Table:
    """Cells are text. `bars` and `tones` have an entry for each row, or none."""

    title: str = ""
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    origin: str = ""  # predicted, measured, fitted, or which column is which
    samples: str = ""  # how many of what
    notes: Sequence[str] = ()
    # Share of the longest possible bar, and colour; only the terminal draws them.
    bars: Sequence[tuple[float, str]] = ()
    tones: Sequence[Tone] = ()
    # How many rows a command shows in the terminal; a report has all.
    most_rows: int | None = None
    detail: bool = False

    @property
    def footer(self) -> str:
        return "; ".join(part for part in (self.origin, self.samples) if part)


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One thing in a chart.

    kind     area (stacked in order), line, step (a line that jumps), dot, across (a line at y),
             down (a line at x), bar (points are [label, from, to, rank])
    points   [x, y], or as above
    details  for each point, lines to show when it is pointed at
    """

    kind: str
    name: str
    points: Sequence[Sequence[Any]]
    colour: str = "blue"
    details: Sequence[Sequence[str]] = ()
    dashed: bool = False


@dataclass(frozen=True, kw_only=True)
class Axis:
    label: str
    unit: str = ""  # bytes, seconds, percent, number: how values are written
    log: bool = False


BATCH_AXIS = Axis(label="batch size", unit="number")
MEMORY_AXIS = Axis(label="memory", unit="bytes")
NO_AXIS = Axis(label="")


@dataclass(frozen=True, kw_only=True)
class View:
    """One chart; several are tabs. The terminal draws the first, or all with `in_terminal`."""

    name: str = ""
    x: Axis
    y: Axis
    layers: Sequence[Layer]
    pointer: str = "x"  # shows everything at the nearest "x", or the nearest "point"
    in_terminal: bool = False


@dataclass(frozen=True, kw_only=True)
class Chart:
    title: str
    caption: str  # what is to be seen, also for those who cannot see it; predicted or measured
    views: Sequence[View]
    detail: bool = False


@dataclass(frozen=True, kw_only=True)
class Meter:
    """A memory bar: parts against a capacity."""

    title: str
    parts: Sequence[tuple[str, int, str]]  # name, bytes, colour
    capacity_bytes: int | None
    capacity_name: str
    detail: bool = True

    @property
    def total_bytes(self) -> int:
        return sum(num_bytes for _, num_bytes, _ in self.parts)

    @property
    def label(self) -> str:
        text = f"{self.title}: {format_bytes(self.total_bytes)}"
        if self.capacity_bytes is None:
            return text
        return f"{text} of {format_bytes(self.capacity_bytes)} ({self.capacity_name})"


@dataclass(frozen=True, kw_only=True)
class Slider:
    name: str
    smallest: int
    largest: int
    value: int
    step: int = 1


@dataclass(frozen=True, kw_only=True)
class Calculator:
    """A law with sliders: the page computes the memory for a choice of knobs."""

    title: str
    caption: str
    # Coefficient and expression: a number, a knob's name, or [operator, left, right].
    terms: Sequence[tuple[float, Any]]
    fixed: dict[str, float]  # knobs without a slider
    floor_bytes: int
    overhead_bytes: int
    # The smallest and the largest size that the law was made from; outside it extrapolates.
    known_bytes: tuple[int, int]
    sliders: Sequence[Slider]
    gpus: Sequence[tuple[str, int]]  # name and memory
    detail: bool = True


Figure = Chart | Meter | Calculator


@dataclass(frozen=True, kw_only=True)
class Remark:
    """A line of its own in the colour of its tone, with lines that explain it below."""

    text: str
    tone: Tone = Tone.PLAIN
    below: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Section:
    """One part of a report. Only the first section of a record says how the record was `made`."""

    title: str
    kind: str = ""  # what was done, such as Predicted; shown before the title of a page
    subtitle: str = ""  # the knobs
    verdict: str = ""
    tone: Tone = Tone.PLAIN
    text: Sequence[str] = ()  # paragraphs; one of several lines is code, or an error
    remarks: Sequence[Remark] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    limits: Sequence[str] = ()  # what was not modelled
    made: str = ""
    detail: bool = False

    @property
    def heading(self) -> str:
        return f"{self.kind}: {self.title}" if self.kind else self.title


@dataclass(frozen=True, kw_only=True)
class Report:
    title: str
    sections: Sequence[Section]
    sources: Sequence[str] = ()  # the files it was made from


def is_code(text: str) -> bool:
    return "\n" in text.strip()


def limits_of(section: Section) -> list[str]:
    """Notes and what was not modelled, as every format says it."""
    return [
        *(f"note: {note}" for note in section.notes),
        *(f"not modelled: {limit}" for limit in section.limits),
    ]


def chart(
    title: str, caption: str, x: Axis, y: Axis, layers: Sequence[Layer], *, detail: bool = True
) -> Chart:
    """A chart with one view; layers without points are left out."""
    drawn = [layer for layer in layers if layer.points]
    return Chart(title=title, caption=caption, views=[View(x=x, y=y, layers=drawn)], detail=detail)


def size(num_bytes: int | None) -> str:
    return "" if num_bytes is None else format_bytes(num_bytes)


def duration(seconds: float | None) -> str:
    return "" if seconds is None else format_seconds(seconds)


def number(value: float | None, form: str = ",") -> str:
    return "" if value is None else format(value, form)


def percent(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:+.{digits}f} %"


def predicted_with(torch_version: str, seconds: float) -> str:
    return f"(torch {torch_version}, no GPU used, {seconds:.1f} s)."


def count(how_many: int, noun: str) -> str:
    return f"{how_many:,} {noun}" if how_many == 1 else f"{how_many:,} {noun}s"


def knobs_of(knobs: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in knobs.items())


Cells = Sequence[tuple[Column, Callable[[Any], str]]]


def table_of(items: Sequence[Any], cells: Cells, **others: Any) -> Table:
    """A row for each item; a column that is empty in every row is left out."""
    rows = [[cell(item) for _, cell in cells] for item in items]
    shown = [i for i in range(len(cells)) if not rows or any(row[i] for row in rows)]
    return Table(
        columns=[cells[i][0] for i in shown],
        rows=[[row[i] for i in shown] for row in rows],
        **others,
    )
