"""`vramcast accuracy`."""

from __future__ import annotations

from pathlib import Path

from vramcast.cli.probe import default_folder
from vramcast.cli.progress import count_display
from vramcast.errors import UsageError
from vramcast.suites.accuracy import accuracy
from vramcast.suites.catalogue import rows_of

GOAL_MISSED = 3


def run(
    suites: list[str],
    out: str | None,
    against: str | None,
    rows: list[str],
    peers: bool,
    figure: str | None,
    force: bool,
    as_json: bool,
) -> int:
    folder = Path(out) if out else default_folder("accuracy", "-".join(suites) or "all")
    if figure is not None and Path(figure).suffix not in (".svg", ".png", ".pdf"):
        raise UsageError(
            f"--figure {figure!r} is not a .svg, .png or .pdf file.",
            "For example --figure accuracy.svg.",
        )
    count = len(rows) or len(rows_of(suites))
    kinds = 1 if against else 4 if peers else 3
    with count_display(count * kinds) as display:
        result = accuracy(
            suites,
            out=folder,
            against=against,
            only=rows,
            peers=peers,
            progress=display,
            force=force,
        )
    if figure is not None:
        from vramcast.suites.figure import write_figure

        write_figure(result, Path(figure))
    if as_json:
        print(result.to_json())
    else:
        from rich.console import Console

        from vramcast.reporting.accuracy import show_accuracy

        show_accuracy(result, Console())
    from vramcast.records.accuracy import goals

    return GOAL_MISSED if any(reached is False for _, reached in goals(result)) else 0
