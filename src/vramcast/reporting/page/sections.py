"""What a report says, before it has a format: sections with tables and figures as data. Every format shows the same ones.

A record becomes sections in a file of its own (prediction.py, measurement.py, ...). Nothing is computed here but text from numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vramcast.reporting.verdicts import PLAIN
from vramcast.units import format_bytes, format_seconds

PREDICTED, MEASURED, FITTED = "predicted", "measured", "fitted"
SERIES_COLOURS = (
    "s0",
    "s1",
    "s2",
    "s3",
    "s4",
    "s5",
    "s6",
    "s7",
)  # of assets/page.css: for things of one kind, one after the other


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
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    origin: str  # predicted, measured, fitted, or which column is which
    samples: str  # how many of what
    not_modelled: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def footer(self) -> str:
        return f"{self.origin}; {self.samples}"


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One thing in a chart.

    kind     area (stacked in order), line, step (a line that jumps), dot, bar (points are [label, from, to]),
             across (a line at y), down (a line at x)
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


@dataclass(frozen=True, kw_only=True)
class View:
    """One chart; a figure with several has a tab for each."""

    name: str
    x: Axis
    y: Axis
    layers: Sequence[Layer]
    pointer: str = (
        "x"  # what is shown when pointed at: everything at the nearest "x", or the nearest "point"
    )


@dataclass(frozen=True, kw_only=True)
class Chart:
    title: str
    caption: str  # what is to be seen, for those who cannot see it too; says predicted or measured
    views: Sequence[View]


@dataclass(frozen=True, kw_only=True)
class Meter:
    """A memory bar: parts against a capacity."""

    title: str
    parts: Sequence[tuple[str, int, str]]  # name, bytes, colour
    capacity_bytes: int | None
    capacity_name: str


@dataclass(frozen=True, kw_only=True)
class Slider:
    name: str
    smallest: int
    largest: int
    value: int
    step: int = 1


@dataclass(frozen=True, kw_only=True)
class Calculator:
    """A law with sliders: what it gives for a choice of knobs, against each GPU's memory; computed where it is shown."""

    title: str
    caption: str
    terms: Sequence[
        tuple[float, Any]
    ]  # coefficient and expression: a number, a knob's name, or [operator, left, right]
    fixed: dict[str, float]  # knobs without a slider
    floor_bytes: int
    overhead_bytes: int
    known_bytes: tuple[
        int, int
    ]  # the smallest and the largest size that the law was made from: outside it is extrapolated
    sliders: Sequence[Slider]
    gpus: Sequence[tuple[str, int]]  # name and memory


Figure = Chart | Meter | Calculator


@dataclass(frozen=True, kw_only=True)
class Section:
    title: str
    subtitle: str = ""  # the knobs
    verdict: str = ""
    tone: str = PLAIN  # of the verdict: good, bad, unsure or nothing
    text: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()


@dataclass(frozen=True, kw_only=True)
class Report:
    title: str
    sections: Sequence[Section] = field(default_factory=list)
    sources: Sequence[str] = ()  # the files it was made from


def size(num_bytes: int | None) -> str:
    return "" if num_bytes is None else format_bytes(num_bytes)


def duration(seconds: float | None) -> str:
    return "" if seconds is None else format_seconds(seconds)


def number(value: float | None, form: str = ",") -> str:
    return "" if value is None else format(value, form)


def percent(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:+.{digits}f} %"


def count(how_many: int, noun: str) -> str:
    return f"{how_many:,} {noun}" if how_many == 1 else f"{how_many:,} {noun}s"


def knobs_of(knobs: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in knobs.items())


def table_of(
    items: Sequence[Any], columns: Sequence[tuple[Column, Callable[[Any], str]]]
) -> tuple[list[Column], list[list[str]]]:
    """Columns and rows; a column that is empty in every row is left out."""
    rows = [[cell(item) for _, cell in columns] for item in items]
    shown = [index for index in range(len(columns)) if any(row[index] for row in rows)]
    return [columns[index][0] for index in shown], [[row[index] for index in shown] for row in rows]
