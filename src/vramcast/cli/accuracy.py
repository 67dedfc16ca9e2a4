"""`vramcast accuracy`."""

from typing import Annotated

import typer

import vramcast
from vramcast.cli import options
from vramcast.cli.command import ExitCode, command, folder_for, show
from vramcast.cli.progress import progress_display


@command(
    "accuracy",
    question="How good are the predictions?",
    examples="vramcast accuracy --against benchmarks/accuracy/h200-torch-2.11",
    then="to find why a row is off, run vramcast predict and probe with --trace, then vramcast "
    "diff.",
    needs_arguments=False,
)
def accuracy(
    suite: Annotated[
        list[str] | None,
        typer.Option(
            help="open, varied, settings, hf, zoo, distributed, compiled, known, or wide, which "
            "needs vramcast[wide]; or a file of your own, such as mine.toml; may be given again "
            "(default: all but the last four)."
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(help="Folder of the run. Rows that it already has are not done again."),
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="Compare with the measurements in this folder. Needs no GPU.")
    ] = None,
    row: Annotated[list[str] | None, typer.Option(help="Only this row. Can be repeated.")] = None,
    peers: Annotated[
        bool, typer.Option(help="Also compare with MemTracker, accelerate and 4 x parameters.")
    ] = True,
    figure: Annotated[
        str | None,
        typer.Option(help="Draw predicted against measured into this .svg, .png or .pdf."),
    ] = None,
    ray: options.Ray = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> int:
    """Predict the workloads of a suite, measure them, and compare.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 a promised accuracy was missed.
    """
    suites = suite or []
    folder = folder_for("accuracy", "-".join(suites) or "all", out)
    with progress_display() as progress:
        found = vramcast.accuracy(
            suites,
            out=folder,
            against=against,
            only=row or [],
            peers=peers,
            figure=figure,
            force=force,
            ray=ray,
            progress=progress,
        )
    show(found, as_json)
    from vramcast.records.accuracy import goals

    is_missed = any(reached is False for _, reached in goals(found))
    return ExitCode.NO if is_missed else ExitCode.DONE
