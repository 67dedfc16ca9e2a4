"""A report in the terminal: the same tables; of a figure a bar or a line of blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table as RichTable
from rich.text import Text

from vramcast.reporting.blocks import COLOURS, block
from vramcast.reporting.page.sections import (
    Calculator,
    Chart,
    Figure,
    Meter,
    Report,
    Section,
    Table,
    View,
)
from vramcast.reporting.tables import Heading, fitted
from vramcast.reporting.verdicts import STYLES
from vramcast.text import printable
from vramcast.units import format_bytes

MOST_LINES = 8  # layers of a chart that get a line of blocks each
NARROWEST = 12


def show_report(report: Report, console: Console) -> None:
    for section in report.sections:
        head = list(_head(section))
        title = _plain(" ".join(section.title.split()))
        console.print(
            Panel(Group(*head), title=title, title_align="left")
            if head
            else Text(title.plain, style="bold")
        )
        for code in filter(_is_code, section.text):  # without a frame, so that it can be copied
            console.print(_plain(code), soft_wrap=True)
            console.print()
        for figure in section.figures:
            console.print(_figure(figure, console.width))
        for table in section.tables:
            console.print(_table(table, console.width))
            for line in _under(table):
                console.print(line)
            console.print()


def _plain(text: str, style: str = "") -> Text:
    """What a record says, which may come from others: neither markup nor escape codes."""
    return Text(printable(text), style=style)


def _head(section: Section) -> Iterator[Text]:
    if section.verdict:
        yield _plain(section.verdict, STYLES[section.tone])
    if section.subtitle:
        yield _plain(section.subtitle, "bright_black")
    yield from (_plain(text) for text in section.text if not _is_code(text))


def _is_code(text: str) -> bool:
    return "\n" in text.strip()


def _figure(figure: Figure, width: int) -> RenderableType:
    if isinstance(figure, Meter):
        return _meter(figure, width)
    if isinstance(figure, Calculator):
        return _plain(f"{figure.title}: sliders in the HTML page.\n", "bright_black")
    return _chart(figure, width)


def _meter(meter: Meter, width: int) -> RenderableType:
    total = sum(size for _, size, _ in meter.parts)
    whole = max(total, meter.capacity_bytes or 0, 1)
    of = (
        ""
        if meter.capacity_bytes is None
        else f" of {format_bytes(meter.capacity_bytes)} ({meter.capacity_name})"
    )
    bar = Text()
    room = max(NARROWEST, width - 2)
    for _, size, colour in meter.parts:
        bar.append("█" * round(room * size / whole), style=COLOURS.get(colour, "green"))
    bar.append("░" * max(0, room - len(bar)), style="bright_black")
    return Group(_plain(f"{meter.title}: {format_bytes(total)}{of}"), bar, Text())


def _chart(chart: Chart, width: int) -> RenderableType:
    """Of the first view: what changes along x as lines of blocks, bars as bars."""
    view = chart.views[0]
    lines = [
        layer for layer in view.layers if layer.kind in ("line", "step") and len(layer.points) > 2
    ][:MOST_LINES]
    table = RichTable(box=None, pad_edge=False, show_header=False)
    table.add_column(overflow="fold", max_width=max(NARROWEST, width // 3))
    table.add_column(no_wrap=True, overflow="crop")
    room = max(NARROWEST, width - width // 3 - 2)
    # amounts of memory are compared with each other, and with nothing
    ends = (
        (0, max(point[1] for layer in lines for point in layer.points))
        if lines and view.y.unit == "bytes"
        else None
    )
    for layer in lines:
        table.add_row(
            _plain(layer.name),
            Text(blocks([point[1] for point in layer.points], room, ends), style="green"),
        )
    for label, bar in _bars(view, room):
        table.add_row(_plain(label), Text(bar, style="green"))
    return Group(
        _plain(chart.title, "bold"),
        *([table] if table.rows else []),
        _plain(chart.caption + "\n", "bright_black"),
    )


def blocks(values: Sequence[float], width: int, ends: tuple[float, float] | None = None) -> str:
    """The largest of every stretch, so that no peak is lost; between these ends, or its own."""
    columns = min(width, len(values))
    highs = [
        max(values[i * len(values) // columns : (i + 1) * len(values) // columns])
        for i in range(columns)
    ]
    low, high = ends or (min(highs), max(highs))
    return "".join(block((value - low) / (high - low) if high > low else 0.0) for value in highs)


def _bars(view: View, room: int) -> list[tuple[str, str]]:
    """On one scale with zero on it: what begins there is full, what lies between two other values is not; however small, that is seen."""
    points = sorted(
        (point for layer in view.layers if layer.kind == "bar" for point in layer.points),
        key=lambda point: point[3],
    )
    ends = [0.0, *(float(value) for _, begin, end, _ in points for value in (begin, end))]
    low, high = min(ends), max(ends)

    def at(value: float) -> int:
        return round(room * (value - low) / (high - low)) if high > low else 0

    def bar(begin: float, end: float) -> str:
        first, last = sorted((at(begin), at(end)))
        if begin == 0:
            return " " * first + ("█" if end >= 0 else "░") * (last - first)
        drawn = " " * first + "▒" * max(1, last - first)
        zero = at(0)
        return f"{drawn[:zero]}│{drawn[zero + 1 :]}" if begin < 0 < end else drawn

    return [(str(label), bar(begin, end)) for label, begin, end, _ in points]


def _table(table: Table, width: int) -> RenderableType:
    headings = [Heading(printable(column.heading), column.left) for column in table.columns]
    return fitted(
        headings,
        [[printable(cell) for cell in row] for row in table.rows],
        width,
        printable(table.title),
    )


def _under(table: Table) -> Iterator[Text]:
    yield _plain(table.footer, "bright_black")
    yield from (_plain(note, "bright_black") for note in table.notes)
    yield from (_plain(f"not modelled: {limit}", "yellow") for limit in table.not_modelled)
