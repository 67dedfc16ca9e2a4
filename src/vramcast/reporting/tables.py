"""A table as wide as the terminal: where its columns cannot stand side by side, the last ones go below, a line or more for each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

GAP = 2
LEAST_TEXT = 30  # a column of sentences that is narrower cannot be read


@dataclass(frozen=True)
class Heading:
    text: str
    left: bool = True


def fitted(
    headings: Sequence[Heading], rows: Sequence[Sequence[str]], width: int, title: str = ""
) -> RenderableType:
    """Cells are shown as they are: without markup, and without escape codes if the caller has taken them out."""
    if not rows or _least_width(headings, rows) <= width:
        return _side_by_side(headings, rows, title)
    return _stacked(headings, rows, width, title)


def _side_by_side(headings: Sequence[Heading], rows: Sequence[Sequence[str]], title: str) -> Table:
    table = Table(
        title=Text(title) if title else None, title_justify="left", box=None, pad_edge=False
    )
    for heading in headings:
        table.add_column(
            Text(heading.text), justify="left" if heading.left else "right", overflow="fold"
        )
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _least_width(headings: Sequence[Heading], rows: Sequence[Sequence[str]]) -> int:
    """Numbers and names are not broken, headings between words; a last column of sentences may wrap."""
    longest = [max(len(row[i]) for row in rows) for i in range(len(headings))]
    longest[-1] = min(longest[-1], LEAST_TEXT)
    words = [max(map(len, heading.text.split()), default=0) for heading in headings]
    return sum(map(max, longest, words)) + GAP * (len(headings) - 1)


def _stacked(
    headings: Sequence[Heading], rows: Sequence[Sequence[str]], width: int, title: str
) -> Group:
    widths = [
        max(len(heading.text), *(len(row[i]) for row in rows)) for i, heading in enumerate(headings)
    ]
    beside = next(
        (i for i in range(len(widths), 0, -1) if sum(widths[:i]) + GAP * (i - 1) <= width), 1
    )
    beside = min(beside, len(headings) - 1) or 1
    is_text = max(len(row[-1]) for row in rows) > LEAST_TEXT
    parts: list[RenderableType] = [Text(title, style="italic")] if title else []
    parts.append(_line([heading.text for heading in headings[:beside]], headings, widths, "bold"))
    for row in rows:
        parts.append(_line(row[:beside], headings, widths))
        below = _below(headings[beside:], row[beside:], is_text)
        if below:
            parts.append(Padding(Text(below, style="bright_black"), (0, 0, 0, GAP), expand=False))
    return Group(*parts)


def _line(
    cells: Sequence[str], headings: Sequence[Heading], widths: Sequence[int], style: str = ""
) -> Text:
    aligned = [
        cell.ljust(size) if heading.left else cell.rjust(size)
        for cell, heading, size in zip(cells, headings, widths, strict=False)
    ]
    return Text((" " * GAP).join(aligned).rstrip(), style=style)


def _below(headings: Sequence[Heading], cells: Sequence[str], is_text: bool) -> str:
    """What has no room beside, each with its heading; the last without where that column holds sentences."""
    names = [heading.text for heading in headings]
    if is_text:
        names[-1] = ""
    return "; ".join(
        f"{name} {cell}".strip() for name, cell in zip(names, cells, strict=True) if cell
    )
