"""A report as Markdown: the same tables; of a figure its title and caption."""

from collections.abc import Iterator, Sequence

from vramcast.reporting.sections import Calculator, Figure, Meter, Report, Section, Table, is_code
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


def _section(section: Section) -> Iterator[str]:
    yield f"## {markdown_cell(section.heading)}"
    yield ""
    if section.subtitle:
        yield from (markdown_cell(section.subtitle), "")
    if section.verdict.text:
        yield from (f"**{markdown_cell(section.verdict.text)}**", "")
    for text in filter(None, (*section.text, section.made)):
        if is_code(text):
            yield from (f"    {line}" for line in printable(text).strip().splitlines())
        else:
            yield markdown_cell(text)
        yield ""
    remarks = [line for remark in section.remarks for line in (remark.text, *remark.below)]
    yield from _listed([*remarks, *section.warnings])
    for figure in section.figures:
        yield from (f"*{markdown_cell(_figure(figure))}*", "")
    for table in section.tables:
        yield from _table(table)


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
    yield f"### {markdown_cell(table.title)}"
    yield ""
    yield f"| {' | '.join(map(markdown_cell, table.columns))} |"
    yield f"|{'|'.join('---' if column in table.left else '---:' for column in table.columns)}|"
    for row in table.rows:
        yield f"| {' | '.join(map(markdown_cell, row))} |"
    yield ""
    yield from _listed([table.footer, *table.notes])
