"""The command line: collects the commands, prints errors and chooses exit codes."""

import errno
import io
import os
import sys
from importlib import import_module
from typing import Annotated

import typer

from vramcast import __version__
from vramcast.cli.command import ExitCode, app
from vramcast.errors import UsageError, VramcastError
from vramcast.text import printable

__all__ = ["app", "main"]

# In the order of --help. A command's file imports what it needs when it runs.
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
)
INTERRUPTED = 130
# EBADF: stdout is closed.
CANNOT_BE_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
WRONG_NAMES = (errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EACCES, errno.EROFS)

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


def main() -> None:
    _prepare_output()
    try:
        try:
            app()
        finally:
            # Here a full disk can still be reported.
            sys.stdout.flush()
    except VramcastError as error:
        _print_error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # The reader of the output has read enough.
        _exit_at_once(ExitCode.DONE)
    except OSError as problem:
        if problem.errno in WRONG_NAMES and problem.filename is not None:
            file = printable(os.fsdecode(problem.filename))
            print(f"vramcast: {problem.strerror}: {file}", file=sys.stderr)
            sys.exit(UsageError.exit_code)
        if problem.errno not in CANNOT_BE_WRITTEN:
            raise
        print(f"vramcast: The output cannot be written: {problem.strerror}.", file=sys.stderr)
        _exit_at_once(ExitCode.FAILED)
    except SystemExit as stop:
        # typer turns Ctrl-C, and rich a closed pipe, into this.
        if stop.code == INTERRUPTED:
            print("Interrupted.", file=sys.stderr)
        if isinstance(stop.__context__, BrokenPipeError):
            _exit_at_once(ExitCode.DONE)
        raise


def _prepare_output() -> None:
    """Streams that can be written to, whatever their encoding."""
    # Python has None where the descriptor is closed: writing to stdout then fails, as on a full
    # disk, and stderr is lost.
    if sys.stdout is None:
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # Tests put other streams in their place.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _print_error(error: VramcastError) -> None:
    print(f"vramcast: {printable(error.message)}", file=sys.stderr)
    for line in printable(error.advice).splitlines():
        print(f"  {line}".rstrip(), file=sys.stderr)


def _exit_at_once(exit_code: int) -> None:
    """Without another attempt to write what could not be written."""
    sys.stderr.flush()
    os._exit(exit_code)
