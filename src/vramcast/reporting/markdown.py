"""A report as Markdown: the same tables, and the title and caption of each figure."""

from collections.abc import Iterable, Iterator, Sequence

from vramcast.reporting.sections import (
    Calculator,
    Figure,
    Meter,
    Report,
    Section,
    Table,
    by_record,
    count,
    is_code,
)
from vramcast.text import markdown_cell, printable
from vramcast.units import format_bytes


def as_markdown(report: Report) -> str:
    lines = ["<!-- vramcast report -->", f"# {markdown_cell(report.title)}", ""]
    for section in report.sections:
        lines += _section(section)
    made = "Made by `vramcast`"
    if report.sources:
        made += f" from {markdown_cell(', '.join(report.sources))}"
    return "\n".join([*lines, f"{made}. GiB = 2^30 bytes."]) + "\n"


def brief_markdown(sections: Sequence[Section]) -> str:
    """What a command shows, for a pull request. Everything but answers and their first tables is
    folded."""
    lines: list[str] = []
    for record in by_record(sections):
        shown = [section for section in record if not section.detail]
        lines += [f"### {markdown_cell(shown[0].heading)}", ""]
        for section in shown:
            lines += _answer(section)
            tables = [table for table in section.tables if not table.detail]
            num_open = 1 if section.verdict.text else 0
            for table in tables[:num_open]:
                lines += _rows(table)
            for table in tables[num_open:]:
                lines += _folded(table.title, _rows(table))
        knobs = " ".join(shown[0].subtitle.replace("`", "'").split())
        lines += _folded("Knobs", [f"`{knobs}`"] * bool(knobs))
        warnings = dict.fromkeys(line for section in shown for line in section.warnings)
        lines += _folded(count(len(warnings), "note"), _listed([*warnings]))
        lines += [f"<sub>{markdown_cell(record[0].made)}</sub>", ""] * bool(record[0].made)
    return "\n".join(lines)


def _folded(title: str, lines: Iterable[str]) -> Iterator[str]:
    """A folded block. GitHub reads its contents as Markdown only between empty lines."""
    inside = "\n".join(lines).rstrip()
    if inside:
        yield from (f"<details><summary>{markdown_cell(title)}</summary>", "", inside, "")
        yield from ("</details>", "")


def _section(section: Section) -> Iterator[str]:
    yield f"## {markdown_cell(section.heading)}"
    yield ""
    if section.subtitle:
        yield from (markdown_cell(section.subtitle), "")
    yield from _answer(section, section.made, section.warnings)
    for figure in section.figures:
        yield from (f"*{markdown_cell(_figure(figure))}*", "")
    for table in section.tables:
        yield from _table(table)


def _answer(section: Section, made: str = "", warnings: Sequence[str] = ()) -> Iterator[str]:
    if section.verdict.text:
        yield from (f"**{markdown_cell(section.verdict.text)}**", "")
    for text in filter(None, (*section.text, made)):
        if is_code(text):
            yield from (f"    {line}" for line in printable(text).strip().splitlines())
        else:
            yield markdown_cell(text)
        yield ""
    remarks = [line for remark in section.remarks for line in (remark.text, *remark.below)]
    yield from _listed([*remarks, *warnings])


def _listed(lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield from (f"- {markdown_cell(line)}" for line in lines)
        yield ""


def _figure(figure: Figure) -> str:
    if isinstance(figure, Meter):
        parts = ", ".join(f"{name} {format_bytes(size)}" for name, size, _ in figure.parts)
        return f"{figure.label}: {parts}"
    kind = "Sliders" if isinstance(figure, Calculator) else "Figure"
    return f"{kind} in the HTML page: {figure.title}. {figure.caption}"


def _table(table: Table) -> Iterator[str]:
    yield from (f"### {markdown_cell(table.title)}", "")
    yield from _rows(table)
    yield from _listed([table.footer, *table.notes])


def _rows(table: Table) -> Iterator[str]:
    yield f"| {' | '.join(map(markdown_cell, table.columns))} |"
    yield f"|{'|'.join('---' if column in table.left else '---:' for column in table.columns)}|"
    for row in table.rows:
        yield f"| {' | '.join(map(markdown_cell, row))} |"
    yield ""
