"""Tables as wide as the terminal: columns without room go below, a line or more for each row."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from vramcast.reporting.sections import Column, Table, Tone
from vramcast.text import printable

GAPS = (2, 1)  # between columns: narrow ones before anything goes below
LEAST_TEXT = 30  # a column of sentences that is narrower cannot be read
LEAST_BAR, MOST_BAR = 8, 40
STYLES = {
    Tone.GOOD: "bold green",
    Tone.BAD: "bold red",
    Tone.UNSURE: "bold yellow",
    Tone.PLAIN: "",
}
COLOURS = {
    "parameters": "blue",
    "buffers": "bright_blue",
    "gradients": "magenta",
    "optimizer_state": "yellow",
    "activations": "green",
    "workspaces": "cyan",
    "temporaries": "red",
    "cached_unused": "bright_black",
    "bad": "red",
    "unsure": "yellow",
    "s3": "yellow",
}
Rows = Sequence[Sequence[str]]


def colour_of(name: str) -> str:
    return COLOURS.get(name, "green")


def fitted(table: Table, width: int, most_rows: int | None = None) -> RenderableType:
    """Cells are shown without markup and without escape codes."""
    rows = [[printable(cell) for cell in row] for row in table.rows[:most_rows]]
    for gap in GAPS:
        needed = _least_width(table.columns, rows, gap)
        if not rows or needed <= width:
            return Group(*_title(table), _side_by_side(table, rows, gap, width - needed - gap))
    return Group(*_title(table), *_stacked(table, rows, width))


def _title(table: Table) -> list[Text]:
    return [Text(printable(table.title), style="italic")] if table.title else []


def _side_by_side(table: Table, rows: Rows, gap: int, room: int) -> RichTable:
    drawn = RichTable(
        box=None,
        pad_edge=False,
        padding=(0, gap, 0, 0),
        show_header=any(column.heading for column in table.columns),
    )
    for column in table.columns:
        drawn.add_column(
            Text(printable(column.heading)),
            justify="left" if column.left else "right",
            overflow="fold",
        )
    has_bars = bool(table.bars) and room >= LEAST_BAR
    if has_bars:
        drawn.add_column()
    for index, row in enumerate(rows):
        bar = [_bar(*table.bars[index], min(room, MOST_BAR))] if has_bars else []
        drawn.add_row(*map(Text, row), *bar, style=_style(table, index))
    return drawn


def _style(table: Table, index: int) -> str:
    return "red" if table.tones and table.tones[index] == Tone.BAD else ""


def _bar(share: float, colour: str, room: int) -> Text:
    length = min(room, max(1, round(room * share)))
    return Text("█" * length, style=colour_of(colour))


def _least_width(columns: Sequence[Column], rows: Rows, gap: int) -> int:
    """Numbers and names are not broken, headings between words; a last column of sentences may
    wrap."""
    longest = [max((len(row[i]) for row in rows), default=0) for i in range(len(columns))]
    longest[-1] = min(longest[-1], LEAST_TEXT)
    words = [max(map(len, column.heading.split()), default=0) for column in columns]
    return sum(map(max, longest, words)) + gap * (len(columns) - 1)


def _stacked(table: Table, rows: Rows, width: int) -> list[RenderableType]:
    gap, columns = GAPS[0], table.columns
    widths = [
        max(len(column.heading), *(len(row[i]) for row in rows)) for i, column in enumerate(columns)
    ]
    fits = [i for i in range(1, len(widths)) if sum(widths[:i]) + gap * (i - 1) <= width]
    beside = max(fits, default=1)
    is_text = max(len(row[-1]) for row in rows) > LEAST_TEXT
    headings = [printable(column.heading) for column in columns]
    parts: list[RenderableType] = [_line(headings[:beside], columns, widths, "bold")]
    for index, row in enumerate(rows):
        parts.append(_line(row[:beside], columns, widths, _style(table, index)))
        below = _below(headings[beside:], row[beside:], is_text)
        if below:
            parts.append(Padding(Text(below, style="bright_black"), (0, 0, 0, gap), expand=False))
    return parts


def _line(
    cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int], style: str
) -> Text:
    aligned = [
        cell.ljust(size) if column.left else cell.rjust(size)
        for cell, column, size in zip(cells, columns, widths, strict=False)
    ]
    return Text((" " * GAPS[0]).join(aligned).rstrip(), style=style)


def _below(headings: Sequence[str], cells: Sequence[str], is_text: bool) -> str:
    """Each with its heading; the last without where that column holds sentences."""
    names = [*headings[:-1], ""] if is_text else headings
    return "; ".join(
        f"{name} {cell}".strip() for name, cell in zip(names, cells, strict=True) if cell
    )
