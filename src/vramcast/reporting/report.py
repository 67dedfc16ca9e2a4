"""`vramcast.report`: one page with tables and figures, made from records alone."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from vramcast.errors import UsageError
from vramcast.records.store import write_atomically
from vramcast.reporting.sections import Report
from vramcast.reporting.showing import MARK, Format, make_report, render
from vramcast.reporting.svg import write_figures

FORMAT_OF = {".md": Format.MARKDOWN, ".markdown": Format.MARKDOWN}
PAGE = "report.html"


@dataclass(frozen=True)
class Page:
    report: Report
    format: Format
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
    is a folder for every chart as SVG. Only a file that is a report is written over.
    """
    chosen = _format(format, out)
    if out is not None:
        _check_free(Path(out))
    made = make_report([Path(run) for run in runs])
    drawn = [] if figures is None else write_figures(made, _folder(figures))
    page = Page(made, chosen, render(made, chosen), drawn)
    if out is not None:
        write_atomically(Path(out), page.text)
    return page


def _format(given: str | None, out: str | os.PathLike[str] | None) -> Format:
    if given is None:
        suffix = "" if out is None else Path(out).suffix.lower()
        return FORMAT_OF.get(suffix, Format.HTML)
    try:
        return Format(given)
    except ValueError:
        raise UsageError(
            f"--format {given!r} is not known.", f"Formats: {', '.join(Format)}."
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
