"""A report as one HTML file that needs nothing else: no network, and no script but its own.

Text from records is escaped, and the data of figures lies in the page as JSON in which no tag can begin. Should something slip through all the
same, the page's policy lets only those scripts run whose hashes it names.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from vramcast import __version__
from vramcast.reporting.page.sections import Calculator, Chart, Meter, Report, Section, Table
from vramcast.text import printable
from vramcast.units import format_bytes

MARK = "<!doctype html><!-- vramcast report -->"
SCRIPTS = (
    "d3.min.js",
    "plot.min.js",
    "text.js",
    "drawing.js",
    "charts.js",
    "calculator.js",
    "start.js",
)
KINDS = {Chart: "chart", Calculator: "calculator"}
SENTENCE = 30  # characters: longer cells are text


def as_html(report: Report) -> str:
    figures = [
        figure
        for section in report.sections
        for figure in section.figures
        if not isinstance(figure, Meter)
    ]
    data = json.dumps(
        [{"kind": KINDS[type(figure)], **_plain(figure)} for figure in figures],
        separators=(",", ":"),
        allow_nan=False,
    )
    scripts = tuple(_asset(name) for name in SCRIPTS)
    numbers = iter(range(len(figures)))
    lines = [
        MARK,
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">',
        f"<title>{_text(report.title)} · vramcast</title>",
        f"<style>{_asset('page.css')}</style></head><body>",
        f'<header><p class="by">vramcast report</p><h1>{_text(report.title)}</h1></header>',
        *_contents(report),
        "<main><noscript>The charts and sliders need JavaScript; the tables are whole without it.</noscript>",
        *(
            line
            for number, section in enumerate(report.sections)
            for line in _section(section, report.title, number, numbers)
        ),
        "</main>",
        f"<footer>Made by vramcast {__version__} from {_text(', '.join(report.sources))}. GiB = 2<sup>30</sup> bytes. ",
        "Charts: arrow keys or the pointer show details; drag, + and − zoom; Esc shows all. ",
        "Drawn with Observable Plot and D3 (ISC licence).</footer>",
        # no < can begin a tag in here, whatever a record's names are
        f'<script type="application/json" id="figures">{data.replace("<", chr(92) + "u003c")}</script>',
        *(f"<script>{script}</script>" for script in scripts),
        "</body></html>\n",
    ]
    return "\n".join(lines)


@cache
def _asset(name: str) -> str:
    return files("vramcast.reporting").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _policy(scripts: tuple[str, ...]) -> str:
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def _text(value: object) -> str:
    return escape(printable(str(value)))


def _plain(value: Any) -> Any:
    """As JSON can say it; it has no nan and no infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str | int):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return (
        {key: _plain(item) for key, item in vars(value).items()} if is_dataclass(value) else value
    )


def _contents(report: Report) -> list[str]:
    if len(report.sections) < 3:
        return []
    links = [
        f'<li><a href="#section-{number}">{_text(section.title)}</a></li>'
        for number, section in enumerate(report.sections)
    ]
    return ['<nav aria-label="Contents"><ul>', *links, "</ul></nav>"]


def _section(section: Section, title: str, number: int, numbers: Iterator[int]) -> Iterator[str]:
    same = ' class="same"' if section.title == title else ""  # said above it already
    yield f'<section id="section-{number}"><h2{same}>{_text(section.title)}</h2>'
    if section.subtitle:
        yield f'<p class="knobs">{_text(section.subtitle)}</p>'
    if section.verdict:
        yield f'<p class="verdict {section.tone}">{_text(section.verdict)}</p>'
    for text in section.text:  # several lines are code, or an error's
        yield (
            f'<pre class="text" tabindex="0">{_text(text)}</pre>'
            if "\n" in text.strip()
            else f'<p class="text">{_text(text)}</p>'
        )
    for figure in section.figures:
        if isinstance(figure, Meter):
            yield from _meter(figure)
        else:
            yield f'<figure data-figure="{next(numbers)}"><h3>{_text(figure.title)}</h3><figcaption>{_text(figure.caption)}</figcaption></figure>'
    for table in section.tables:
        yield from _table(table)
    yield "</section>"


def _meter(meter: Meter) -> Iterator[str]:
    total = sum(size for _, size, _ in meter.parts)
    whole = max(total, meter.capacity_bytes or 0, 1)
    of = (
        ""
        if meter.capacity_bytes is None
        else f" of {format_bytes(meter.capacity_bytes)} ({meter.capacity_name})"
    )
    label = f"{meter.title}: {format_bytes(total)}{of}"
    yield f'<figure><h3>{_text(label)}</h3><div class="meter" role="img" aria-label="{_text(label)}">'
    yield "".join(
        f'<i style="width:{100 * size / whole:.3f}%;background:var(--{colour})" title="{_text(name)} {format_bytes(size)}"></i>'
        for name, size, colour in meter.parts
    )
    if meter.capacity_bytes is not None and total > meter.capacity_bytes:
        yield f'<span class="limit" style="left:{100 * meter.capacity_bytes / whole:.3f}%"></span>'
    yield '</div><ul class="parts">'
    for name, size, colour in meter.parts:
        yield f'<li><span class="swatch" style="background:var(--{colour})"></span>{_text(name)} <b>{format_bytes(size)}</b></li>'
    yield "</ul></figure>"


def _table(table: Table) -> Iterator[str]:
    yield f'<div class="scroll" tabindex="0" role="region" aria-label="{_text(table.title)}"><table><caption>{_text(table.title)}</caption><thead><tr>'
    yield "".join(
        f'<th scope="col"{_left(column.left)}>{_text(column.heading)}</th>'
        for column in table.columns
    )
    yield "</tr></thead><tbody>"
    for row in table.rows:
        cells = zip(table.columns, row, strict=True)
        yield f"<tr>{''.join(f'<td{_left(column.left, len(cell) > SENTENCE)}>{_text(cell)}</td>' for column, cell in cells)}</tr>"
    yield f'</tbody></table></div><p class="under">{_text(table.footer)}</p>'
    yield from (f'<p class="under">{_text(note)}</p>' for note in table.notes)
    yield from (
        f'<p class="under"><b>not modelled:</b> {_text(limit)}</p>' for limit in table.not_modelled
    )


def _left(left: bool, is_long: bool = False) -> str:
    """A sentence gets room: on a phone, where a table is scrolled, it would be a tall column of single words."""
    return f' class="left{" long" if is_long else ""}"' if left else ""
