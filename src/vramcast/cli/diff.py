"""`vramcast diff`."""

import json
from typing import Annotated

import typer

import vramcast
from vramcast.cli import options
from vramcast.cli.command import ExitCode, command


@command(
    "diff",
    question="Where do two memory traces part?",
    examples="vramcast diff predicted/trace.json measured/trace.json",
    then="the first difference names operator, module and source line; docs/how-it-works.md says "
    "how to go on from there.",
)
def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="A trace.json, or a folder with one.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another.")],
    as_json: options.Json = False,
) -> int:
    """Line up two memory traces and show the first place where they differ.

    Exit codes: 0 they are the same, 2 wrong usage, 3 they differ.
    """
    found = vramcast.diff(a, b)
    if as_json:
        print(json.dumps({"a_file": a, "b_file": b, **found.to_dict()}))
    else:
        from vramcast.reporting.showing import show
        from vramcast.reporting.trace import of_diff

        show(of_diff(found, a, b))
    return ExitCode.DONE if found.same else ExitCode.NO
