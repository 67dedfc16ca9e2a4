"""A report as one HTML file that needs no network and no script but its own.

Text from records is escaped, and no tag can begin in the data of figures. The page's policy allows
only scripts whose hashes it names.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from string import Template

import msgspec

from vramcast import __version__
from vramcast.reporting import sections as page
from vramcast.reporting.sections import Figure, Meter, Report, Section, Table, is_code
from vramcast.text import printable
from vramcast.units import format_bytes

SCRIPTS = (
    *("d3.min.js", "plot.min.js"),
    *(
        "text.js",
        "pieces.js",
        "bars.js",
        "drawing.js",
        "charts.js",
        "tree.js",
        "calculator.js",
        "sort.js",
        "start.js",
    ),
)
SENTENCE = 30  # characters: longer cells are sentences
LONG_WORD = 18
PHONE_PIXELS = 352  # the width of a table, with the space after the last column
MOST_FOLDED = 12


def as_html(report: Report) -> str:
    figures: list[Figure] = []  # those that the scripts draw
    lines = [
        line
        for number, section in enumerate(report.sections)
        for line in _section(section, report.title, number, figures)
    ]
    scripts = [asset(name) for name in SCRIPTS]
    return Template(asset("page.html")).substitute(
        hashes=" ".join(map(_hash, scripts)),
        title=_text(report.title),
        style=asset("page.css"),
        contents=_contents(report),
        sections="\n".join(lines),
        version=__version__,
        sources=_text(page.given(" from {}", ", ".join(report.sources))),
        figures=msgspec.json.encode(figures).decode().replace("<", "\\u003c"),
        scripts="\n".join(f"<script>{script}</script>" for script in scripts),
    )


@cache
def asset(name: str) -> str:
    return files("vramcast.reporting").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _text(value: object) -> str:
    return escape(printable(str(value)))


def _prose(value: object) -> str:
    """Text in which `backquotes` stand around code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", _text(value))


def _contents(report: Report) -> str:
    if len(report.sections) < 3:
        return ""
    links = [
        f'<li><a href="#section-{number}">{_text(section.heading)}</a></li>\n'
        for number, section in enumerate(report.sections)
    ]
    return f'<nav aria-label="Contents"><ul>\n{"".join(links)}</ul></nav>\n'


def _section(section: Section, title: str, number: int, figures: list[Figure]) -> Iterator[str]:
    same = ' class="same"' if section.heading == title else ""  # the page's title says it already
    yield f'<section id="section-{number}"><h2{same}>{_text(section.heading)}</h2>'
    if section.subtitle:
        yield f'<p class="knobs">{_text(section.subtitle)}</p>'
    if section.verdict.text:
        yield f'<p class="verdict {section.verdict.tone}">{_text(section.verdict.text)}</p>'
    for text in (*section.text, section.made):
        if is_code(text):
            yield f'<pre class="text" tabindex="0">{_text(text)}</pre>'
        elif text:
            yield f'<p class="text">{_prose(text)}</p>'
    for remark in section.remarks:
        below = "".join(f"<br>{_prose(line)}" for line in remark.below)
        yield f'<p class="remark {remark.tone}">{_prose(remark.text)}{below}</p>'
    shown = {id(part) for part in (*section.figures, *section.tables)}
    for part in (part for part in section.parts if id(part) in shown):
        if isinstance(part, Table):
            yield from _table(part)
        elif isinstance(part, Meter):
            yield from _meter(part)
        elif isinstance(part, Figure):
            yield f'<figure data-figure="{len(figures)}"><h3>{_text(part.title)}</h3>'
            yield f"<figcaption>{_prose(part.caption)}</figcaption></figure>"
            figures.append(part)
    yield from (f'<p class="under">{_prose(line)}</p>' for line in section.warnings)
    yield "</section>"


def _meter(meter: Meter) -> Iterator[str]:
    total, capacity = meter.total_bytes, meter.capacity_bytes
    # The line of the capacity must lie inside.
    whole = max(total, 1.03 * (capacity or 0), 1)
    label = _text(meter.label)
    yield f'<figure><h3>{label}</h3><div class="meter-box">'
    yield f'<div class="meter" role="img" aria-label="{label}">'
    for name, size, colour in meter.parts:
        style = f"width:{100 * size / whole:.3f}%;background:var(--{colour})"
        yield f'<i style="{style}" title="{_text(name)} {format_bytes(size)}"></i>'
    yield "</div>"
    if capacity is not None:
        yield f'<span class="limit" style="left:{100 * capacity / whole:.3f}%"></span>'
    yield '</div><ul class="parts">'
    for name, size, colour in meter.parts:
        swatch = f'<span class="swatch" style="background:var(--{colour})"></span>'
        yield f"<li>{swatch}{_text(name)} <b>{format_bytes(size)}</b></li>"
    if capacity is not None:
        yield '<li><span class="swatch thin" style="background:var(--capacity)"></span>'
        yield f"capacity <b>{format_bytes(capacity)}</b></li>"
    yield "</ul></figure>"


def _table(table: Table) -> Iterator[str]:
    title = _text(table.title)
    if title:
        yield f'<h3 class="table">{title}</h3>'
    folds = _folds(table)
    # A scrolling area must be reachable by keys, and needs a label.
    yield f'<div class="scroll" tabindex="0" role="group" aria-label="{title or "table"}">'
    yield '<table class="folds" role="table">' if folds else "<table>"
    if any(table.columns):
        yield f"<thead{_role('rowgroup', folds)}><tr{_role('row', folds)}>"
        for column in table.columns:
            # Screen readers would read out an empty heading.
            tag = f'th scope="col"{_role("columnheader", folds)}' if column else "td"
            yield f"<{tag}{_left(column in table.left)}>{_text(column)}</{tag[:2]}>"
        yield "</tr></thead>"
    yield f"<tbody{_role('rowgroup', folds)}>"
    for index, row in enumerate(table.rows):
        tone = f' class="{table.tones[index]}"' if table.tones else ""
        yield f"<tr{tone}{_role('row', folds)}>"
        yield from _cells(table, row, folds)
        yield "</tr>"
    yield "</tbody></table></div>"
    yield from (f'<p class="under">{_prose(line)}</p>' for line in (table.footer, *table.notes))


def _cells(table: Table, row: Sequence[str], folds: bool) -> Iterator[str]:
    for place, (column, cell) in enumerate(zip(table.columns, row, strict=True)):
        left = column in table.left
        # On a phone every cell has its heading before it, except the name that begins the block.
        is_name = place == 0 and left and not cell[:1].isdigit()
        named = folds and column not in ("", "%") and not is_name
        heading = f' data-heading="{_text(column)}"' if named else ""
        yield f"<td{_left(left, cell)}{heading}{_role('cell', folds)}>{_text(cell)}</td>"


def _role(name: str, folds: bool) -> str:
    """The role attribute: without it, screen readers do not see a table whose rows are laid out as
    blocks."""
    return f' role="{name}"' if folds else ""


def _folds(table: Table) -> bool:
    """Whether the table is too wide for a phone, where its rows become blocks. A long table of
    numbers scrolls instead, because numbers are compared down a column."""
    by_column = zip(table.columns, zip(*table.rows, strict=True), strict=False)
    widths = [_phone_pixels(name in table.left, (name, *cells)) for name, cells in by_column]
    has_sentences = any(len(cell) > SENTENCE for row in table.rows for cell in row[1:])
    most = MOST_FOLDED * (2 if has_sentences else 1)
    return len(table.rows) <= most and sum(widths) > PHONE_PIXELS


def _phone_pixels(left: bool, cells: Iterable[str]) -> float:
    """About how wide a column is on a phone, by assets/page.css."""
    longest = max(map(len, cells))
    if left:
        return 247 if longest > SENTENCE else min(max(119, 7.2 * longest + 22), 164)
    return max(66, 7.2 * longest) + 22


def _left(left: bool, cell: str = "") -> str:
    """The classes of a text cell. On a phone, a sentence needs room, or it would be a tall column
    of single words. A long word may break, or it would be as wide as the page."""
    if not left:
        return ""
    breaks = max(map(len, cell.split()), default=0) > LONG_WORD
    return f' class="left{" long" * (len(cell) > SENTENCE)}{" breaks" * breaks}"'
