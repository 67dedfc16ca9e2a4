"""`vramcast report`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from vramcast.errors import UsageError
from vramcast.records.store import write_atomically

if TYPE_CHECKING:
    from vramcast.reporting.page.sections import Report

FORMATS = ("html", "md", "terminal")
SUFFIXES = {".html": "html", ".htm": "html", ".md": "md", ".markdown": "md"}
PAGE = "report.html"
FILE_WIDTH = 120
LARGE = 3_000_000
MARK = "vramcast report"  # in the first line of every report


def run(runs: list[str], form: str | None, out: str | None, show: bool, figures: str | None) -> int:
    form = _format(form, out, show)
    target = _target(runs, form, out)
    from vramcast.reporting.page.html import as_html
    from vramcast.reporting.page.making import make_report
    from vramcast.reporting.page.markdown import as_markdown

    report = make_report([Path(path) for path in runs])
    if figures is not None:
        from vramcast.reporting.page.figures import write_figures

        written = write_figures(report, _folder(figures))
        print(f"Wrote {len(written)} figures into {figures}.", file=sys.stderr)
    if form == "terminal" and target is None:
        from rich.console import Console

        from vramcast.reporting.page.terminal import show_report

        show_report(report, Console())
        return 0
    text = (
        as_html(report)
        if form == "html"
        else as_markdown(report)
        if form == "md"
        else _as_text(report)
    )
    if target is None:
        print(text, end="")
        return 0
    write_atomically(target, text)
    print(f"Wrote {target}.", file=sys.stderr)
    if len(text) > LARGE:
        print(f"It has {len(text) / 1e6:.1f} MB: fewer runs make a lighter one.", file=sys.stderr)
    if show:
        _open(target)
    return 0


def _format(form: str | None, out: str | None, show: bool) -> str:
    if form is not None and form not in FORMATS:
        raise UsageError(f"--format {form!r} is not known.", f"Formats: {', '.join(FORMATS)}.")
    if show and form not in (None, "html"):
        raise UsageError(f"--open opens a page, and --format is {form}.", "Leave one of them out.")
    if out is not None and form is None and out != "-":
        return SUFFIXES.get(Path(out).suffix.lower(), "html")
    return form or "html"


def _target(runs: list[str], form: str, out: str | None) -> Path | None:
    """None is stdout. A page goes into the run's folder, or here, unless it is told where."""
    if out == "":
        raise UsageError("-o is '', which names no file.", f"For example -o {PAGE}; - is stdout.")
    if out == "-" or (out is None and form != "html"):
        return None
    inside = len(runs) == 1 and Path(runs[0]).is_dir()
    target = Path(out) if out is not None else Path(runs[0]) / PAGE if inside else Path(PAGE)
    _check_free(target)
    return target


def _check_free(target: Path) -> None:
    """A report that was made here may be made again; nothing else is written over."""
    if target.is_dir():
        raise UsageError(f"{target} is a folder.", f"Give a file: -o {target / PAGE}.")
    if target.exists() and not (target.is_file() and MARK in _beginning(target)):
        raise UsageError(
            f"{target} is there and is no report of vramcast.", "Choose another file with -o."
        )


def _beginning(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(100).decode(errors="replace")


def _as_text(report: Report) -> str:
    from io import StringIO

    from rich.console import Console

    from vramcast.reporting.page.terminal import show_report

    file = StringIO()
    show_report(report, Console(file=file, width=FILE_WIDTH, no_color=True))
    return f"{MARK}\n{file.getvalue()}"


def _folder(text: str) -> Path:
    path = Path(text)
    if not text or path.exists() and not path.is_dir():
        raise UsageError(
            f"--figures {text!r} is no folder.", "Give a folder; it is made where it is not there."
        )
    return path


def _open(target: Path) -> None:
    import webbrowser

    if not webbrowser.open(target.absolute().as_uri()):
        print(f"There is no browser here to open it. Open {target} yourself.", file=sys.stderr)
