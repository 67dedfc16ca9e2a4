"""`vramcast.report`: one page with tables and figures, made from records alone."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import StrEnum
from io import StringIO
from pathlib import Path

from rich.console import Console

from vramcast.errors import UsageError
from vramcast.records.store import write_atomically
from vramcast.reporting.page.figures import write_figures
from vramcast.reporting.page.html import as_html
from vramcast.reporting.page.making import make_report
from vramcast.reporting.page.markdown import as_markdown
from vramcast.reporting.page.sections import Report
from vramcast.reporting.page.terminal import show_report


class ReportFormat(StrEnum):
    HTML = "html"
    MARKDOWN = "md"
    TERMINAL = "terminal"


FORMAT_OF = {".md": ReportFormat.MARKDOWN, ".markdown": ReportFormat.MARKDOWN}
PAGE = "report.html"
FILE_WIDTH = 120
MARK = "vramcast report"  # in the first line of every report


@dataclass(frozen=True)
class Page:
    report: Report
    format: ReportFormat
    text: str
    figures: list[Path] = field(default_factory=list)


def report(
    *runs: str | os.PathLike[str],
    format: str | None = None,
    out: str | os.PathLike[str] | None = None,
    figures: str | os.PathLike[str] | None = None,
) -> Page:
    """Show what commands recorded. Nothing is run again.

    `report("runs/tune", out="page.html")`. A run is a folder, or a file with what a command printed
    with --json. `format` is html, md or terminal; without it the ending of `out` decides. `figures`
    is a folder for every chart as SVG. A report that was made before is written over, no other
    file.
    """
    chosen = _format(format, out)
    if out is not None:
        _check_free(Path(out))
    made = make_report([Path(run) for run in runs])
    drawn = [] if figures is None else write_figures(made, _folder(figures))
    page = Page(made, chosen, _text(made, chosen), drawn)
    if out is not None:
        write_atomically(Path(out), page.text)
    return page


def _format(given: str | None, out: str | os.PathLike[str] | None) -> ReportFormat:
    if given is None:
        suffix = "" if out is None else Path(out).suffix.lower()
        return FORMAT_OF.get(suffix, ReportFormat.HTML)
    try:
        return ReportFormat(given)
    except ValueError:
        raise UsageError(
            f"--format {given!r} is not known.", f"Formats: {', '.join(ReportFormat)}."
        ) from None


def _check_free(target: Path) -> None:
    if target.is_dir():
        raise UsageError(f"{target} is a folder.", f"Give a file: -o {target / PAGE}.")
    if target.exists() and not (target.is_file() and MARK in _beginning(target)):
        raise UsageError(
            f"{target} is there and is no report of vramcast.", "Choose another file with -o."
        )


def _beginning(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(100).decode(errors="replace")


def _folder(figures: str | os.PathLike[str]) -> Path:
    path = Path(figures)
    if not os.fspath(figures) or path.exists() and not path.is_dir():
        raise UsageError(
            f"--figures {os.fspath(figures)!r} is no folder.",
            "Give a folder; it is made where it is not there.",
        )
    return path


def _text(made: Report, chosen: ReportFormat) -> str:
    if chosen is ReportFormat.HTML:
        return as_html(made)
    if chosen is ReportFormat.MARKDOWN:
        return as_markdown(made)
    file = StringIO()
    show_report(made, Console(file=file, width=FILE_WIDTH, no_color=True))
    return f"{MARK}\n{file.getvalue()}"
