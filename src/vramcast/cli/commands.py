"""All commands, in the order of --help."""

from importlib import import_module

from vramcast.cli.command import app
from vramcast.cli.main import COMMANDS

__all__ = ["COMMANDS", "app"]

for command in COMMANDS:
    import_module(f"vramcast.cli.{command}")
# The order is different if a command's file was imported before this one.
app.registered_commands.sort(key=lambda one: COMMANDS.index(str(one.name).replace("-", "_")))
