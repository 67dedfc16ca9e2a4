"""`vramcast compare`."""

from typing import Annotated

import typer

import vramcast
from vramcast.cli import options
from vramcast.cli.command import ExitCode, command, show


@command(
    "compare",
    question="Which model is better, and is the difference real?",
    examples="vramcast compare runs/first",
    then="if they are not distinguishable, train with more seeds: vramcast bench ... --seeds "
    "1,2,3,4,5 into the same folder.",
    is_shared=True,
)
def compare(
    runs: Annotated[
        list[str], typer.Argument(help="Folders of vramcast bench, or of single trials in one.")
    ],
    as_json: options.Json = False,
) -> int:
    """Say which model learned best under the same protocol, and whether the difference is real.

    Exit codes: 0 the best one is better, 2 wrong usage or not comparable, 3 not distinguishable.
    """
    found = vramcast.compare(*runs)
    show(found, as_json)
    return ExitCode.DONE if found.decided else ExitCode.NO
