"""A report as Markdown: the same tables; of a figure its title and what there is to see."""

from __future__ import annotations

from collections.abc import Iterator

from vramcast.reporting.page.sections import Calculator, Figure, Meter, Report, Section, Table
from vramcast.text import markdown_cell, printable
from vramcast.units import format_bytes


def as_markdown(report: Report) -> str:
    lines = ["<!-- vramcast report -->", f"# {markdown_cell(report.title)}", ""]
    for section in report.sections:
        lines += _section(section)
    lines.append(
        f"Made by `vramcast report` from {markdown_cell(', '.join(report.sources))}. GiB = 2^30 bytes."
    )
    return "\n".join(lines) + "\n"


def _section(section: Section) -> Iterator[str]:
    yield f"## {markdown_cell(section.title)}"
    yield ""
    if section.subtitle:
        yield from (markdown_cell(section.subtitle), "")
    if section.verdict:
        yield from (f"**{markdown_cell(section.verdict)}**", "")
    for text in section.text:
        yield from (_block(text) if "\n" in text.strip() else [markdown_cell(text)])
        yield ""
    for figure in section.figures:
        yield from (f"*{markdown_cell(_figure(figure))}*", "")
    for table in section.tables:
        yield from _table(table)


def _figure(figure: Figure) -> str:
    if isinstance(figure, Meter):
        total = sum(size for _, size, _ in figure.parts)
        of = (
            ""
            if figure.capacity_bytes is None
            else f" of {format_bytes(figure.capacity_bytes)} ({figure.capacity_name})"
        )
        parts = ", ".join(f"{name} {format_bytes(size)}" for name, size, _ in figure.parts)
        return f"{figure.title}: {format_bytes(total)}{of}: {parts}"
    kind = "Sliders" if isinstance(figure, Calculator) else "Figure"
    return f"{kind} in the HTML page: {figure.title}. {figure.caption}"


def _block(text: str) -> list[str]:
    return [f"    {line}" for line in printable(text).strip().splitlines()]


def _table(table: Table) -> Iterator[str]:
    yield f"### {markdown_cell(table.title)}"
    yield ""
    yield f"| {' | '.join(markdown_cell(column.heading) for column in table.columns)} |"
    yield f"|{'|'.join('---' if column.left else '---:' for column in table.columns)}|"
    for row in table.rows:
        yield f"| {' | '.join(map(markdown_cell, row))} |"
    yield ""
    for line in (
        table.footer,
        *table.notes,
        *(f"not modelled: {limit}" for limit in table.not_modelled),
    ):
        yield f"- {markdown_cell(line)}"
    yield ""
