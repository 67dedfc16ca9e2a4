"""`vramcast server`."""

import json
from typing import Annotated

import typer

import vramcast
from vramcast.cli import options
from vramcast.cli.command import ExitCode, command, say
from vramcast.cli.progress import progress_display


@command(
    "server",
    question="Keep torch loaded, so that predictions are faster.",
    examples="""
    vramcast server start
    vramcast predict train.py:build --gpu rtx-4090
    vramcast server stop
    """,
    then="vramcast predict, max-batch and plan now use the server.",
)
def server(
    action: Annotated[str, typer.Argument(help="start, stop or status.")],
    minutes: Annotated[
        float, typer.Option(help="The server ends after this many minutes without a command.")
    ] = 30.0,
    as_json: options.Json = False,
) -> int:
    """Keep a process that has imported torch, for the next commands of the same user.

    Every question is answered in a fork of it. VRAMCAST_SERVER=keep starts one with the next
    command, for 5 minutes after the last question; VRAMCAST_SERVER=off uses none.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no server runs.
    """
    with progress_display() as display:
        found = vramcast.server(action, minutes=minutes, progress=display)
    if as_json:
        print(json.dumps({"servers": found}))
    else:
        from vramcast.predicting.server import describe

        for one in found:
            print(describe(one, has_ended=action == "stop"))
        if not found:
            say("No server runs.")
    return ExitCode.DONE if found or action == "stop" else ExitCode.NO
