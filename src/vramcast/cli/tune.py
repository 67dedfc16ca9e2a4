"""`vramcast tune`."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vramcast.cli.probe import default_folder
from vramcast.errors import UsageError
from vramcast.hardware.environment import command_line
from vramcast.records.tune import TuneResult, TuneVerdict
from vramcast.tuning.search import Progress
from vramcast.tuning.tune import tune
from vramcast.workload import split_assignments

NOTHING_HELPED = 3


def run(
    workload: str, assignments: list[str], out: str | None, options: dict[str, Any], as_json: bool
) -> int:
    if out == "":
        raise UsageError(
            "--out is '', which names no folder.",
            "Give a folder, or leave --out out for a new one under runs/.",
        )
    folder = Path(out) if out else default_folder("tune", workload)
    try:
        with _display() as show:
            result = tune(
                workload,
                out=folder,
                knobs=split_assignments(assignments),
                show=show,
                command=command_line(),
                **options,
            )
    except KeyboardInterrupt:
        if folder.exists():
            print(
                f"What was measured is kept: give --out {folder} to the same command to go on from there.",
                file=sys.stderr,
            )
        raise
    _show(result, folder, as_json)
    return 0 if result.rows_with(TuneVerdict.APPLIED) else NOTHING_HELPED


def _show(result: TuneResult, folder: Path, as_json: bool) -> None:
    if as_json:
        print(json.dumps({**result.to_dict(), "folder": str(folder)}))
        return
    from rich.console import Console

    from vramcast.reporting.page.sections import Report
    from vramcast.reporting.page.terminal import show_report
    from vramcast.reporting.page.tune import of_tune
    from vramcast.reporting.tune_log import probe_command

    show_report(Report(title=result.workload, sections=of_tune(result)), Console())
    print(
        f"Written to {folder}: log.md, final.json ({probe_command(result, f'{folder}/final.json')})",
        file=sys.stderr,
    )


@contextlib.contextmanager
def _display() -> Iterator[Any]:
    """What is being tried, what is left, the best so far; a line for each that has ended. Lines alone where it is no terminal."""
    if not sys.stderr.isatty():
        yield lambda progress: _line(progress) if progress.said else None
        return
    from rich.console import Console

    console = Console(stderr=True)
    with console.status("starting") as status:

        def show(progress: Progress) -> None:
            if progress.said:
                console.print(_text(progress), markup=False, highlight=False)
            left = f", {progress.left} left" if progress.left else ""
            status.update(
                f"{progress.stage}: {progress.trying}{left}, best so far {progress.best:.2f}x"
            )

        yield show


def _line(progress: Progress) -> None:
    print(_text(progress), file=sys.stderr, flush=True)


def _text(progress: Progress) -> str:
    return f"{progress.stage:9} {progress.trying:28} {progress.said}"
