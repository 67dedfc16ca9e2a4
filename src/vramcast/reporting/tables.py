"""Tables as wide as the terminal: columns without room go below, a line or more for each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from vramcast.reporting.sections import Table, Tone
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
    title = [Text(printable(table.title), style="italic")] if table.title else []
    for gap in GAPS:
        room = width - _least_width(table, rows, gap)
        if not rows or room >= 0:
            return Group(*title, _side_by_side(table, rows, gap, room - gap))
    return Group(*title, *_stacked(table, rows, width))


def _side_by_side(table: Table, rows: Rows, gap: int, room: int) -> RichTable:
    header = any(table.columns)
    drawn = RichTable(box=None, pad_edge=False, padding=(0, gap, 0, 0), show_header=header)
    for column in table.columns:
        justify: Literal["left", "right"] = "left" if column in table.left else "right"
        drawn.add_column(Text(printable(column)), justify=justify, overflow="fold")
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


def _least_width(table: Table, rows: Rows, gap: int) -> int:
    """Numbers and names are not broken, headings between words; a last column of sentences may
    wrap."""
    headings = [max(map(len, column.split()), default=0) for column in table.columns]
    longest = [max(map(len, cells)) for cells in zip(*rows, strict=True)] or [0] * len(headings)
    longest[-1] = min(longest[-1], LEAST_TEXT)
    return sum(map(max, longest, headings)) + gap * (len(headings) - 1)


def _stacked(table: Table, rows: Rows, width: int) -> list[RenderableType]:
    gap, headings = GAPS[0], [printable(column) for column in table.columns]
    widths = [max(map(len, cells)) for cells in zip(headings, *rows, strict=True)]
    fits = [i for i in range(1, len(widths)) if sum(widths[:i]) + gap * (i - 1) <= width]
    beside = max(fits, default=1)
    if max(len(row[-1]) for row in rows) > LEAST_TEXT:
        # A sentence below needs no heading.
        below_headings = [*headings[beside:-1], ""]
    else:
        below_headings = headings[beside:]

    def line(cells: Sequence[str], style: str) -> Text:
        aligned = [
            cell.ljust(size) if column in table.left else cell.rjust(size)
            for cell, column, size in zip(cells[:beside], table.columns, widths, strict=False)
        ]
        return Text((" " * gap).join(aligned).rstrip(), style=style)

    parts: list[RenderableType] = [line(headings, "bold")]
    for index, row in enumerate(rows):
        parts.append(line(row, _style(table, index)))
        pairs = zip(below_headings, row[beside:], strict=True)
        below = "; ".join(f"{name} {cell}".strip() for name, cell in pairs if cell)
        if below:
            parts.append(Padding(Text(below, style="bright_black"), (0, 0, 0, gap), expand=False))
    return parts
