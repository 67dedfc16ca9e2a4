"""A report in each of its formats, and the charts in it."""

from __future__ import annotations

from io import StringIO
from typing import Any

from rich.console import Console

from vramcast.reporting.sections import Chart, Report
from vramcast.reporting.showing import Format, render
from vramcast.reporting.terminal import show_sections

MOST_BYTES = 3 << 20  # of a page


def in_terminal(report: Report, width: int = 4000) -> str:
    file = StringIO()
    show_sections(report.sections, Console(file=file, width=width), detail=True)
    return file.getvalue()


def html_of(report: Report) -> str:
    return render(report, Format.HTML)


def markdown_of(report: Report) -> str:
    return render(report, Format.MARKDOWN)


def charts(report: Report) -> dict[str, Chart]:
    return {
        figure.title: figure
        for section in report.sections
        for figure in section.figures
        if isinstance(figure, Chart)
    }


def layers(chart: Chart, view: int = 0) -> dict[str, Any]:
    return {layer.name: layer for layer in chart.views[view].layers}
