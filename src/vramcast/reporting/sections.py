"""The contents of a report before it has a format: sections with text, tables and figures as data.

Every format shows the same sections. Commands do not show what is marked `detail`.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from vramcast.units import format_bytes, format_count, format_seconds

T = TypeVar("T")
PREDICTED, MEASURED, FITTED = "predicted", "measured", "fitted"
# Colours for things of one kind, used in turn; defined in assets/page.css.
SERIES_COLOURS = tuple(f"s{number}" for number in range(8))


# A function of a row's item, or the path to a value. The value is written in the unit with which
# the path ends, or in the format after a colon.
Cell = str | Callable[[Any], str]


class Tone(StrEnum):
    GOOD = "good"
    BAD = "bad"
    UNSURE = "unsure"
    PLAIN = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Cells are text. `bars` and `tones` have an entry for each row, or none."""

    title: str = ""
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Collection[str] = ()  # columns of text; numbers are aligned on the right
    origin: str = ""  # predicted, measured, fitted, or which column is which
    samples: str = ""  # what the numbers are based on, such as "3 runs"
    notes: Sequence[str] = ()
    # Length as a share of the longest possible bar, and colour; only the terminal draws them.
    bars: Sequence[tuple[float, str]] = ()
    tones: Sequence[Tone] = ()
    most_rows: int | None = None  # as many as a command shows; a report has all
    detail: bool = False

    @property
    def footer(self) -> str:
        return "; ".join(part for part in (self.origin, self.samples) if part)


@dataclass(frozen=True)
class Layer:
    """A series in a chart. Points are [x, y]; for a bar [label, from, to, rank], for a band [from,
    to], for a piece [from, to, height, rank, label]."""

    # area (stacked), line, step (a line that jumps), dot, across (at y), down (at x), bar, band;
    # piece (stacked by rank while it is there), rest (on top of all pieces), limit (in a bar's row)
    kind: str
    name: str
    points: Sequence[Sequence[Any]]
    colour: str = "s0"
    details: Sequence[Sequence[str]] = ()  # lines for the pointer's tooltip
    dashed: bool = False
    more: Sequence[Mapping[str, str]] = ()  # facts to show when a piece is selected


@dataclass(frozen=True)
class Axis:
    label: str
    unit: str = "number"  # or bytes, seconds, percent
    log: bool = False


BATCH_AXIS = Axis("batch size")
MEMORY_AXIS = Axis("memory", "bytes")
NO_AXIS = Axis("", "")


@dataclass(frozen=True)
class View:
    """One chart; several views are tabs. The terminal draws the first, or all with
    `in_terminal`."""

    x: Axis
    y: Axis
    layers: Sequence[Layer]
    name: str = ""
    pointer: str = "x"  # shows everything at the nearest "x", the nearest "point", or a "piece"
    in_terminal: bool = False


@dataclass(frozen=True)
class Chart:
    title: str
    caption: str  # also for people who cannot see the chart
    views: Sequence[View]
    detail: bool


@dataclass(frozen=True, kw_only=True)
class Meter:
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


@dataclass(frozen=True)
class Slider:
    name: str
    smallest: int
    largest: int
    value: int
    step: int = 1


@dataclass(frozen=True, kw_only=True)
class Calculator:
    """A law with sliders: the page computes the memory for the knobs."""

    title: str
    caption: str
    # Coefficient and expression: a number, a knob's name, or [operator, left, right].
    terms: Sequence[tuple[float, Any]]
    known_bytes: tuple[int, int]  # the smallest and the largest memory that the law was fitted to
    sliders: Sequence[Slider]
    gpus: Sequence[tuple[str, int]]  # name and memory
    fixed: Mapping[str, float] = field(default_factory=dict)  # knobs without a slider
    floor_bytes: int = 0
    overhead_bytes: int = 0
    detail: bool = True


@dataclass(frozen=True)
class Node:
    """A part of a tree, as wide as its size; its parts are below it."""

    name: str
    num_bytes: int
    details: Sequence[str] = ()
    colour: str = ""  # only for a node without parts
    note: str = ""  # shown after its size
    parts: Sequence["Node"] = ()


@dataclass(frozen=True, kw_only=True)
class Tree:
    """Parts inside parts, by size; several trees are tabs. Only the HTML page draws it."""

    title: str
    caption: str
    trees: Sequence[tuple[str, Node]]  # with the name of the tab
    detail: bool = True


@dataclass(frozen=True)
class Remark:
    """A line in the colour of its tone, with lines that explain it below."""

    text: str
    tone: Tone = Tone.PLAIN
    below: Sequence[str] = ()


def good(text: str) -> Remark:
    return Remark(f"✓ {text}", Tone.GOOD)


def bad(text: str, below: Sequence[str] = ()) -> Remark:
    return Remark(f"✗ {text}", Tone.BAD, below)


def unsure(text: str) -> Remark:
    return Remark(text, Tone.UNSURE)


def limit(option: str, what: str, most: int | None, over: int | None) -> Remark | None:
    """A remark whether `what` is larger than an option allows."""
    if most is None or over is None:
        return None
    allowed = f"the limit of {format_bytes(most)} ({option})"
    if over:
        return bad(f"{what} is {format_bytes(over)} above {allowed}")
    return good(f"{what} is within {allowed}")


Figure = Chart | Meter | Calculator | Tree


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of a report. Only a record's first section says how it was `made`. Empty parts are
    not shown: a table without rows, a chart without views, None, ""."""

    title: str
    kind: str = ""  # what was done, such as Predicted
    knobs: Mapping[str, Any] | None = None
    verdict: Remark = Remark("")
    text: Sequence[str] = ()  # paragraphs; one of several lines is code, or an error
    parts: Sequence[Remark | Table | Figure | None] = ()
    notes: Sequence[str] = ()
    limits: Sequence[str] = ()  # what was not modelled
    made: str = ""
    detail: bool = False

    @property
    def heading(self) -> str:
        return f"{self.kind}: {self.title}" if self.kind else self.title

    @property
    def subtitle(self) -> str:
        return knobs_of(self.knobs or {})

    @property
    def remarks(self) -> list[Remark]:
        return [part for part in self.parts if isinstance(part, Remark)]

    @property
    def tables(self) -> list[Table]:
        return [part for part in self.parts if isinstance(part, Table) and part.rows]

    @property
    def figures(self) -> list[Figure]:
        figures = [part for part in self.parts if isinstance(part, Figure)]
        return [each for each in figures if getattr(each, "views", getattr(each, "trees", True))]

    @property
    def warnings(self) -> list[str]:
        notes = [f"note: {note}" for note in self.notes if note]
        return notes + [f"not modelled: {limit}" for limit in self.limits]


@dataclass(frozen=True, kw_only=True)
class Report:
    title: str
    sections: Sequence[Section]
    sources: Sequence[str] = ()  # the files it was made from


def by_record(sections: Sequence[Section]) -> list[list[Section]]:
    """The sections of each record together: notes and limits are shown once, after all of them."""
    records: list[list[Section]] = []
    for section in sections:
        if section.made or not records:
            records.append([])
        records[-1].append(section)
    return records


def is_code(text: str) -> bool:
    return "\n" in text.strip()


def chart(title: str, caption: str, *views: View, detail: bool = True) -> Chart:
    """A chart without layers that have no points, and without views that have no layers."""
    drawn = [replace(view, layers=[one for one in view.layers if one.points]) for view in views]
    return Chart(title, caption, [view for view in drawn if view.layers], detail)


def layer_of(
    kind: str, name: str, colour: str, items: Iterable[Any], fields: tuple[str, str], *details: Cell
) -> Layer:
    """A point for each item that has both fields."""
    known = [item for item in items if None not in attrgetter(*fields)(item)]
    points = [list(attrgetter(*fields)(item)) for item in known]
    lines = [[written(detail, item) for detail in details] for item in known]
    texts = [[*filter(None, each)] for each in lines]
    return Layer(kind, name, points, colour, texts if details else ())


class Bar(NamedTuple):
    layer: str
    label: str
    begin: float
    end: float
    details: list[str]


def bar_view(
    x: Axis,
    bars: Sequence[Bar],
    colours: Mapping[str, str],
    name: str = "",
    y: Axis = NO_AXIS,
    limits: Mapping[str, float | None] | None = None,
) -> View:
    """Bars from top to bottom. `colours`: of every layer, in the order of the legend; `limits`:
    the capacity in the row of a label."""
    layers = []
    for layer, colour in colours.items():
        ranked = [(rank, bar) for rank, bar in enumerate(bars) if bar.layer == layer]
        points = [[bar.label, bar.begin, bar.end, rank] for rank, bar in ranked]
        layers.append(Layer("bar", layer, points, colour, [bar.details for _, bar in ranked]))
    ranks = {bar.label: rank for rank, bar in enumerate(bars)}
    known = {label: at for label, at in (limits or {}).items() if at is not None}
    marks = [[label, at, at, ranks[label]] for label, at in known.items() if label in ranks]
    layers.append(Layer("limit", "capacity", marks, "capacity"))
    return View(x, y, layers, name, "point")


def _or_empty(written: Callable[[T], str]) -> Callable[[T | None], str]:
    return lambda value: "" if value is None else written(value)


size = _or_empty(format_bytes)
duration = _or_empty(format_seconds)
amount = _or_empty(format_count)


def between(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return ""
    return f"{format_seconds(low)} to {format_seconds(high)}"


def number(value: float | None, form: str = ",") -> str:
    return given(f"{{:{form}}}", value)


def percent(value: float | None, digits: int = 2) -> str:
    # otherwise it would be written "-0.00"
    is_zero = value is not None and round(value, digits) == 0
    return given(f"{{:+.{digits}f}} %", 0.0 if is_zero else value)


def share(fraction: float | None, digits: int = 1) -> str:
    return "" if fraction is None else f"{100 * fraction:.{digits}f} %"


def given(text: str, value: object) -> str:
    """The text with the value, or nothing where there is no value."""
    return "" if value in (None, "") else text.format(value)


def predicted_with(record: Any, what: str = "All numbers are predicted") -> str:
    return f"{what} (torch {record.torch_version}, no GPU used, {record.seconds:.1f} s)."


def count(how_many: int, noun: str) -> str:
    ending = "es" if noun.endswith("s") else "s"
    return f"{how_many:,} {noun}{ending * (how_many != 1)}"


def knobs_of(knobs: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in knobs.items())


def table_of(items: Sequence[Any], cells: Mapping[str, Cell], **others: Any) -> Table:
    """A row for each item; a column that is empty in every row is left out."""
    columns = {name: [written(cell, item) for item in items] for name, cell in cells.items()}
    shown = {name: column for name, column in columns.items() if any(column)}
    return Table(columns=list(shown), rows=list(zip(*shown.values(), strict=True)), **others)


def written(cell: Cell, item: Any) -> str:
    if callable(cell):
        return cell(item)
    path, _, form = cell.partition(":")
    value = attrgetter(path)(item)
    if form:
        return number(value, form)
    unit = re.split("[._]", path)[-1]
    return "" if value is None else WRITERS.get(unit, str)(value)


WRITERS: dict[str, Callable[[Any], str]] = {
    "bytes": size,
    "seconds": duration,
    "percent": percent,
    "parameters": amount,
    "tokens": amount,
    "fraction": share,
}


def facts(title: str, rows: Mapping[str, str], **others: Any) -> Table:
    return Table(title=title, columns=("", ""), left=("",), rows=list(rows.items()), **others)
