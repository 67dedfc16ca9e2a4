"""Sections in the terminal: the verdict in a frame, tables, and lines and bars made of blocks."""

import math
import re
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from itertools import zip_longest
from operator import itemgetter
from pathlib import Path
from statistics import fmean

from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table as RichTable
from rich.text import Text

from vramcast.reporting import sections as page
from vramcast.text import printable, whole_words

BLOCKS = "▁▂▃▄▅▆▇█"
SOURCE_LINE = re.compile(r"([\w./-]+\.py):(\d+)")
FRAME = 6  # a corner, a dash and a space on both sides of the title
GREY = "bright_black"
MOST_LINES = 8  # in a chart
NARROWEST = 12
GAPS = (2, 1)  # between columns; the narrow gap is tried before columns are put below the rows
LEAST_TEXT = 30  # sentences in a narrower column cannot be read
LEAST_BAR, MOST_BAR = 8, 40
_in_terminal: ContextVar[bool] = ContextVar("in_terminal", default=False)
STYLES = {
    page.Tone.GOOD: "bold green",
    page.Tone.BAD: "bold red",
    page.Tone.UNSURE: "bold yellow",
    page.Tone.PLAIN: "",
}
COLOURS = {
    "parameters": "blue",
    "buffers": "bright_blue",
    "gradients": "magenta",
    "optimizer_state": "yellow",
    "workspaces": "cyan",
    "temporaries": "red",
    "private_pools": "bright_red",
    "cached_unused": "bright_black",
    "bad": "red",
    "unsure": "yellow",
    "s3": "yellow",
}


def show_sections(
    sections: Sequence[page.Section], console: Console, *, detail: bool = False
) -> None:
    """Prints the sections. Without `detail` it is the short form that commands show."""
    # With FORCE_COLOR rich treats a pipe as a terminal. Colours are useful there, links are not.
    _in_terminal.set(console.file.isatty())
    for index, record in enumerate(page.by_record(sections)):
        if index:
            console.print()
        shown = [section for section in record if detail or not section.detail]
        for section in shown:
            _show_section(section, console, detail)
        warnings = dict.fromkeys(line for section in shown for line in section.warnings)
        for line in warnings:
            console.print(_plain(line, "yellow"))
        if record[0].made:
            console.print(_plain("\n" * bool(warnings) + record[0].made, GREY))


def _show_section(section: page.Section, console: Console, detail: bool) -> None:
    if section.verdict.text:
        console.print(_frame(section, console.width, detail))
    elif detail:
        console.print(_plain(" ".join(section.heading.split()), "bold"))
    for text in filter(None, section.text):
        # An error or code is not wrapped, so that it can be copied.
        console.print(_plain(text.rstrip()), soft_wrap=page.is_code(text))
    for remark in section.remarks:
        console.print(_plain(remark.text, STYLES[remark.tone]))
        for line in remark.below:
            console.print(Padding(_plain(line, GREY), (0, 0, 0, 2), expand=False))
    shown = [part for part in (*section.tables, *section.figures) if detail or not part.detail]
    for index, part in enumerate(shown):
        if index or any(section.text) or section.remarks:
            console.print()
        console.print(Group(*_part(part, console.width, detail)))
    if shown:
        console.print()


def _frame(section: page.Section, width: int, detail: bool) -> Panel:
    """The verdict in a frame. In the short form the title has as many knobs as there is room
    for."""
    lines = [_plain(section.verdict.text, STYLES[section.verdict.tone])]
    if detail and section.subtitle:
        lines.append(_plain(section.subtitle, GREY))
    title = section.heading if detail else f"{section.title} {section.subtitle}"
    return Panel(Group(*lines), title=_plain(whole_words(title, width - FRAME)), title_align="left")


def _plain(text: str, style: str = "") -> Text:
    """The text without markup or escape codes: records may come from other people."""
    return linked(Text(printable(text), style=style))


def linked(text: Text) -> Text:
    """In a terminal, turns source lines of existing files into links."""
    if not _in_terminal.get():
        return text
    for found in SOURCE_LINE.finditer(text.plain):
        file = Path(found[1]).absolute()
        if file.is_file():
            text.stylize(f"link {file.as_uri()}#{found[2]}", *found.span())
    return text


def _part(part: page.Table | page.Figure, width: int, detail: bool) -> Iterator[RenderableType]:
    if isinstance(part, page.Table):
        most = None if detail else part.most_rows
        yield fitted(part, width, most)
        if most is not None and len(part.rows) > most:
            yield _plain(f"{len(part.rows) - most} more rows: see vramcast report", GREY)
        yield from (_plain(note, GREY) for note in (*[part.footer] * detail, *part.notes))
    elif isinstance(part, page.Meter):
        yield _plain(part.label)
        yield _meter(part, width)
    elif isinstance(part, page.Calculator):
        yield _plain(f"{part.title}: sliders in the HTML page.", GREY)
    elif isinstance(part, page.Tree):
        yield _plain(f"{part.title}: a tree in the HTML page.", GREY)
    else:
        yield from _chart(part, width)
        if detail:
            yield _plain(part.caption, GREY)


def fitted(table: page.Table, width: int, most_rows: int | None = None) -> RenderableType:
    """The table as wide as the terminal. Columns for which there is no room go below each row."""
    rows = [[printable(cell) for cell in row] for row in table.rows[:most_rows]]
    title = [_plain(table.title, "italic")] if table.title else []
    for gap in GAPS:
        least = _least_widths(table, rows)
        room = width - sum(least) - gap * (len(least) - 1)
        if room >= 0 or not rows:
            return Group(*title, _side_by_side(table, rows, gap, max(0, room)))
    return Group(*title, *_stacked(table, rows, width))


def _side_by_side(
    table: page.Table, rows: Sequence[Sequence[str]], gap: int, room: int
) -> RichTable:
    drawn = RichTable(
        box=None, pad_edge=False, padding=(0, gap, 0, 0), show_header=any(table.columns)
    )
    for column, width in zip(table.columns, _widths(table, rows, room), strict=True):
        side: JustifyMethod = "left" if column in table.left else "right"
        drawn.add_column(_plain(column), justify=side, overflow="fold", width=width)
    room -= gap
    longest = min(room, MOST_BAR)
    for index, row in enumerate(rows):
        cells = [linked(Text(cell)) for cell in row]
        if table.bars and room >= LEAST_BAR:
            share, colour = table.bars[index]
            length = min(longest, max(1, round(longest * share)))
            cells.append(Text("█" * length, style=COLOURS.get(colour, "green")))
        drawn.add_row(*cells, style=_style(table, index))
    return drawn


def _style(table: page.Table, index: int) -> str:
    return "red" if table.tones and table.tones[index] == page.Tone.BAD else ""


def _widths(table: page.Table, rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """The widths of the columns, with `room` more than the least. The last column gets its share
    first."""
    widths = _least_widths(table, rows)
    cells = [[*map(len, column)] for column in zip(table.columns, *rows, strict=True)]
    for place in (len(widths) - 1, *range(len(widths) - 1)):
        more = min(room, max(cells[place]) - widths[place])
        widths[place], room = widths[place] + more, room - more
    return widths


def _least_widths(table: page.Table, rows: Sequence[Sequence[str]]) -> list[int]:
    """The least widths. Headings may break between words, and sentences in the last column may
    wrap; nothing else is broken."""
    headings = [max(map(len, column.split()), default=0) for column in table.columns]
    longest = [max(map(len, cells)) for cells in zip(*rows, strict=True)] or [0] * len(headings)
    longest[-1] = min(longest[-1], LEAST_TEXT)
    return list(map(max, longest, headings))


def _stacked(table: page.Table, rows: Sequence[Sequence[str]], width: int) -> list[RenderableType]:
    gap, headings = GAPS[0], [printable(column) for column in table.columns]
    widths = [max(map(len, cells)) for cells in zip(headings, *rows, strict=True)]
    fits = [i for i in range(1, len(widths)) if sum(widths[:i]) + gap * (i - 1) <= width]
    beside = max(fits, default=1)
    below_headings = headings[beside:]
    if max(len(row[-1]) for row in rows) > LEAST_TEXT:
        below_headings[-1] = ""  # a sentence needs no heading

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
        below = "; ".join(f"{name}: {cell}" if name else cell for name, cell in pairs if cell)
        if below:
            parts.append(Padding(linked(Text(below, style=GREY)), (0, 0, 0, gap), expand=False))
    return parts


def _meter(meter: page.Meter, width: int) -> Text:
    whole = max(meter.total_bytes, meter.capacity_bytes or 0, 1)
    bar, room = Text(), max(NARROWEST, width - 2)
    for _, num_bytes, colour in meter.parts:
        bar.append("█" * round(room * num_bytes / whole), style=COLOURS.get(colour, "green"))
    return bar.append("░" * max(0, room - len(bar)), style=GREY)


def _chart(chart: page.Chart, width: int) -> Iterator[RenderableType]:
    views = [view for view in chart.views if view.in_terminal] or chart.views[:1]
    names = [_label(layer, views[0]) for layer in _lines(views[0])]
    yield _plain(chart.title, "italic")
    drawn = RichTable(box=None, pad_edge=False, show_header=len(views) > 1)
    drawn.add_column(overflow="fold", max_width=max(NARROWEST, width // 3))
    labels = min(max(map(len, names), default=width // 3), width // 3)
    room = max(NARROWEST, (width - labels) // len(views) - 2)
    for view in views:
        end = max((layer.points[-1][0] for layer in _lines(view)), default=0)
        heading = _plain(f"{view.name}, to {_value(end, view.x)}")
        drawn.add_column(heading, no_wrap=True, overflow="crop")
    blocks = [blocks_of(view, room) for view in views]
    for name, *row in zip_longest(names, *blocks, fillvalue=""):
        drawn.add_row(_plain(name), *(Text(line, style="green") for line in row))
    bands, key = bands_of(views[0], len(blocks[0][0]) if blocks[0] else 0)
    if bands:
        drawn.add_row("phases", Text(bands, style=GREY))
    for label, bar, colour in bars_of(views[0], room):
        drawn.add_row(_plain(label), Text(bar, style=COLOURS.get(colour, "green")))
    if drawn.rows:
        yield drawn
    if key:
        yield Text(key, style=GREY)


def _lines(view: page.View) -> list[page.Layer]:
    """The layers that are lines. A line of two points is a law, which blocks cannot show."""
    lines = [layer for layer in view.layers if layer.kind in ("line", "step")]
    return [layer for layer in lines if len(layer.points) > 2][:MOST_LINES]


def _label(layer: page.Layer, view: page.View) -> str:
    """The layer's name, with its first and last value. Memory has none: it ends where it began."""
    if view.y.unit == "bytes" or view.in_terminal:
        return layer.name
    first, last = (_value(layer.points[index][1], view.y) for index in (0, -1))
    return f"{layer.name} {first} → {last}"


def _value(value: float, axis: page.Axis) -> str:
    return page.WRITERS.get(axis.unit, "{:,.6g}".format)(value)


def blocks_of(view: page.View, room: int) -> list[str]:
    """A line of blocks for every layer, all with one scale and the same range of x."""
    layers = _lines(view)
    if not layers:
        return []
    begin, end = _range(view)
    num_columns = min(room, max(len(layer.points) for layer in layers))
    lines = [_in_columns(layer, view.y.log, begin, end, num_columns) for layer in layers]
    # Memory is drawn from zero; losses are scaled without the first eighth, which would flatten the
    # rest.
    first = num_columns // 8 if view.y.log else 0
    values = [value for line in lines for value in line[first:] if value is not None] or [0.0]
    low, high = 0.0 if view.y.unit == "bytes" else min(values), max(values)
    return ["".join(_block(value, low, high) for value in line) for line in lines]


def _range(view: page.View) -> tuple[float, float]:
    layers = _lines(view)
    end = max(layer.points[-1][0] for layer in layers)
    # Steps and events begin at any number; time at zero.
    begin = min(layer.points[0][0] for layer in layers) - 1 if view.x.unit == "number" else 0.0
    return begin, end


def bands_of(view: page.View, num_columns: int) -> tuple[str, str]:
    """For each column the letter of the band that begins last in it, and the meaning of the
    letters."""
    letters: dict[str, str] = {}
    for layer in view.layers:
        if layer.kind == "band":
            choice = (layer.name[0], layer.name[0].upper(), *layer.name)
            letters[layer.name] = next(x for x in choice if x not in letters.values())
    if not letters or not num_columns:
        return "", ""
    begin, end = _range(view)
    columns = [" "] * num_columns
    bands = [
        (*ends, layer.name)
        for layer in view.layers
        if layer.kind == "band"
        for ends in layer.points
    ]
    for first, last, name in sorted(bands):
        places = (
            int(num_columns * (place - begin) / max(1, end - begin)) for place in (first, last)
        )
        at, until = (min(max(0, place), num_columns) for place in places)
        for index in range(at, min(max(at + 1, until), num_columns)):
            columns[index] = letters[name]
    seen = {name: letter for name, letter in letters.items() if letter in columns}
    return "".join(columns), ", ".join(f"{letter} {name}" for name, letter in seen.items())


def _in_columns(
    layer: page.Layer, log: bool, begin: float, end: float, num_columns: int
) -> list[float | None]:
    found: list[list[float]] = [[] for _ in range(num_columns)]
    for place, value, *_ in layer.points:
        index = math.ceil(num_columns * (place - begin) / (end - begin)) - 1 if end > begin else 0
        if not log or value > 0:
            found[min(max(0, index), num_columns - 1)].append(math.log(value) if log else value)
    # The highest value, so that no peak is lost; for losses, on a logarithmic scale, the mean.
    height = fmean if log else max
    heights = [height(values) if values else None for values in found]
    # A column without a point takes the value of the next one.
    for index in reversed(range(num_columns - 1)):
        if heights[index] is None:
            heights[index] = heights[index + 1]
    return heights


def _block(value: float | None, low: float, high: float) -> str:
    if value is None:
        return " "
    # Halved first, because the difference of two large numbers may be infinite.
    height = high / 2 - low / 2
    share = (value / 2 - low / 2) / height if height > 0 else 0.0
    return BLOCKS[round((len(BLOCKS) - 1) * min(1.0, max(0.0, share)))]


def bars_of(view: page.View, room: int) -> list[tuple[str, str, str]]:
    """The label, bar and colour of each bar, on one scale. A bar from zero is full; an interval is
    lighter."""
    bars = [layer for layer in view.layers if layer.kind == "bar"]
    points = [(*point, layer.colour) for layer in bars for point in layer.points]
    points.sort(key=itemgetter(3))
    ends = [0.0, *(value for point in points for value in point[1:3])]
    low, high = min(ends), max(ends)

    def at(value: float) -> int:
        return round(room * (value - low) / (high - low)) if high > low else 0

    def bar(begin: float, end: float) -> str:
        first, last = sorted((at(begin), at(end)))
        if begin == 0:
            return " " * first + ("█" if end >= 0 else "░") * (last - first)
        drawn, zero = " " * first + "▒" * max(1, last - first), at(0)
        return f"{drawn[:zero]}│{drawn[zero + 1 :]}" if begin < 0 < end else drawn

    return [(str(label), bar(begin, end), colour) for label, begin, end, _, colour in points]
