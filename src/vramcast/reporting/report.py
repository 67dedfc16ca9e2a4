"""`vramcast.report`: one page with tables and figures, made from records alone."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from vramcast.errors import UsageError
from vramcast.records.store import write_atomically
from vramcast.reporting.sections import Report
from vramcast.reporting.showing import MARK, Format, make_report, render
from vramcast.reporting.svg import write_figures

PAGE = "report.html"


@dataclass(frozen=True)
class Page:
    report: Report
    format: Format
    text: str
    figures: list[Path]


def report(
    *runs: str | os.PathLike[str],
    format: str | None = None,
    out: str | os.PathLike[str] | None = None,
    figures: str | os.PathLike[str] | None = None,
) -> Page:
    """Show what commands recorded. Nothing is run again.

    `report("runs/tune", out="page.html")`. A run is a folder, or a file with what a command printed
    with --json. `format` is html, md or terminal; without it the ending of `out` decides. `figures`
    is a folder for every chart as SVG. Only a file that is a report is written over.
    """
    target = None if out is None else Path(out)
    if format is None:
        is_markdown = target is not None and target.suffix.lower() in (".md", ".markdown")
        format = Format.MARKDOWN if is_markdown else Format.HTML
    elif format not in list(Format):
        raise UsageError(f"--format {format!r} is not known.", f"Formats: {', '.join(Format)}.")
    if target is not None:
        _check_free(target)
    made = make_report([Path(run) for run in runs])
    drawn = [] if figures is None else write_figures(made, _folder(figures))
    page = Page(made, Format(format), render(made, Format(format)), drawn)
    if target is not None:
        write_atomically(target, page.text)
    return page


def _check_free(target: Path) -> None:
    if target.is_dir():
        raise UsageError(f"{target} is a folder.", f"Give a file: -o {target / PAGE}.")
    if target.exists() and not (target.is_file() and _is_report(target)):
        raise UsageError(
            f"{target} is there and is no report of vramcast.", "Choose another file with -o."
        )


def _is_report(path: Path) -> bool:
    with path.open("rb") as file:
        return MARK.encode() in file.read(100)


def _folder(figures: str | os.PathLike[str]) -> Path:
    path = Path(figures)
    if not os.fspath(figures) or path.exists() and not path.is_dir():
        raise UsageError(
            f"--figures {os.fspath(figures)!r} is no folder.",
            "Give a folder; it is made where it is not there.",
        )
    return path
