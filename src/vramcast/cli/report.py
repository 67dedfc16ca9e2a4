"""`vramcast report`."""

from pathlib import Path
from typing import Annotated

import typer

import vramcast
from vramcast.cli.command import ExitCode, command, say
from vramcast.cli.sharing import PAGE, wrote
from vramcast.errors import UsageError


@command(
    "report",
    question="Show a record as a page, as Markdown or in the terminal.",
    examples="""
    vramcast predict train.py:build batch_size=8 --gpu rtx-4090 --json > fits.json
    vramcast report fits.json --open             memory through the step
    vramcast report fits.json runs/probe-train   what was measured laid over it
    vramcast report runs/bench-first --format md tables for a README or an issue
    """,
    then="send the page: it is one file and needs no network. --figures DIR writes the charts "
    "for a "
    "paper.",
)
def report(
    runs: Annotated[
        list[str],
        typer.Argument(help="Run folders, or files with what a command printed with --json."),
    ],
    form: Annotated[
        str | None,
        typer.Option(
            "--format", help="html, md or terminal (default: from the name of the file, else html)."
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", "-o", help="File to write, - for stdout (default: report.html in the folder)."
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    figures: Annotated[
        str | None, typer.Option(help="Also write every chart into this folder, as SVG.")
    ] = None,
) -> int:
    """Show what other commands recorded: one page with tables and figures. Nothing is run again.

    It takes records of every command that predicts, measures or compares.

    Exit codes: 0 done, 1 the file cannot be written, 2 wrong usage, or a record that cannot be
    read.
    """
    if show and form not in (None, "html"):
        raise UsageError(f"--open opens a page, and --format is {form}.", "Leave one of them out.")
    target = _target(runs, form, out)
    page = vramcast.report(*runs, format=form, out=target, figures=figures)
    if figures is not None:
        say(f"Wrote {len(page.figures)} figures into {figures}.")
    if target is not None:
        wrote(target, show)
        megabytes = len(page.text) / 1e6
        if megabytes > 3:  # such a page opens slowly
            say(f"It has {megabytes:.1f} MB: fewer runs make a lighter one.")
    elif page.format == "terminal":
        from rich.console import Console

        from vramcast.reporting.terminal import show_sections

        show_sections(page.report.sections, Console(), detail=True)
    else:
        print(page.text, end="")
    return ExitCode.DONE


def _target(runs: list[str], form: str | None, out: str | None) -> Path | None:
    """The file to write; None means stdout. Without --out, a page goes into the run's folder or the
    current one."""
    if out == "":
        raise UsageError("-o is '', which names no file.", f"For example -o {PAGE}; - is stdout.")
    if out == "-" or out is None and form not in (None, "html"):
        return None
    if out is not None:
        return Path(out)
    return Path(runs[0]) / PAGE if len(runs) == 1 and Path(runs[0]).is_dir() else Path(PAGE)
