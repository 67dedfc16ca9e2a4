"""All commands, in the order of --help."""

from importlib import import_module
from typing import Annotated

import typer

from vramcast import __version__
from vramcast.cli.command import app

__all__ = ["COMMANDS", "app"]

# A command's file imports what it needs when it runs.
COMMANDS = (
    "predict",
    "max_batch",
    "plan",
    "probe",
    "fit",
    "diff",
    "tune",
    "env",
    "bench",
    "compare",
    "report",
    "accuracy",
    "calibrate",
    "gpus",
    "zoo",
    "server",
)

for command in COMMANDS:
    import_module(f"vramcast.cli.{command}")
# Whoever imported a command's file before this one has changed the order.
app.registered_commands.sort(key=lambda one: COMMANDS.index(str(one.name).replace("-", "_")))


def _show_version(asked: bool) -> None:
    if asked:
        print(__version__)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None: ...
