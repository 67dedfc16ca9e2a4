"""The command line: starts the simulated GPU, runs a command, prints errors, chooses exit codes."""

import contextlib
import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from typing import NoReturn

from vramcast.cli.missing_file import lacks_file
from vramcast.errors import UsageError, VramcastError
from vramcast.processes import lifetime
from vramcast.text import printable

# In the order of --help. A command's file does its slow imports when the command runs.
COMMANDS = (
    "predict",
    "max_batch",
    "plan",
    "advise",
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
# These simulate: their worker process starts while this one still reads the command line.
SIMULATING = ("predict", "max-batch", "plan", "advise")
DONE, FAILED = 0, 1
INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM
# EBADF means that stdout is closed.
CANNOT_BE_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
# A message may contain the user's input, which may be very long.
MAX_MESSAGE_CHARACTERS = 10_000
WRONG_NAMES = (errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EACCES, errno.EROFS)


def main() -> None:
    _prepare_output()
    with _sigterm_interrupts() as received:
        try:
            _run(received)
        finally:
            lifetime.end_orphans_of_this_command()


@contextlib.contextmanager
def _sigterm_interrupts() -> Iterator[list[int]]:
    """SIGTERM acts like Ctrl-C: measurements are kept, and started processes are ended.

    Yields a list, which contains the signal once it has come.
    """
    received: list[int] = []

    def interrupt(number: int, _frame: object) -> NoReturn:
        received.append(number)
        raise KeyboardInterrupt

    # Only the main thread may set signal handlers.
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: interrupt}
    before = {number: signal.getsignal(number) for number in usual}
    for number, handler in usual.items():
        if before[number] != signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield received
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)


def _interrupted(received: list[int]) -> NoReturn:
    print("Terminated." if received else "Interrupted.", file=sys.stderr)
    sys.exit(TERMINATED if received else INTERRUPTED)


def _run(received: list[int]) -> None:
    try:
        try:
            with _simulated_gpu(sys.argv[1:]):
                _run_command(sys.argv[1:])
        finally:
            # Here a full disk can still be reported.
            sys.stdout.flush()
    except VramcastError as error:
        _print_error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        _interrupted(received)
    except BrokenPipeError:
        # The reader of the output has read enough.
        _exit_at_once(DONE)
    except OSError as problem:
        if problem.errno in WRONG_NAMES and problem.filename is not None:
            file = printable(os.fsdecode(problem.filename))
            print(f"vramcast: {problem.strerror}: {file}", file=sys.stderr)
            sys.exit(UsageError.exit_code)
        if problem.errno not in CANNOT_BE_WRITTEN:
            raise
        print(f"vramcast: The output cannot be written: {problem.strerror}.", file=sys.stderr)
        _exit_at_once(FAILED)
    except SystemExit as stop:
        # typer turns Ctrl-C, and rich a closed pipe, into this.
        if stop.code == INTERRUPTED:
            _interrupted(received)
        if isinstance(stop.__context__, BrokenPipeError):
            _exit_at_once(DONE)
        raise


def _run_command(words: list[str]) -> None:
    # imported only now, because this takes a tenth of a second
    from vramcast.cli.command import app

    name = words[0].replace("-", "_") if words else ""
    # the other commands are needed only for the list of all
    import_module(f"vramcast.cli.{name if name in COMMANDS else 'commands'}")
    if words[:1] == ["--help"]:
        # options are not part of the list, and take long to make
        for command in app.registered_commands:
            command.callback = lambda: None
    # the same name for python -m vramcast, because completion depends on it
    app(prog_name="vramcast")


def _simulated_gpu(words: list[str]) -> contextlib.AbstractContextManager[object]:
    if words[:1] and words[0] in SIMULATING and "--help" not in words and words[1:]:
        if lacks_file(words[1]):
            # the error can be shown without torch
            return contextlib.nullcontext()
        from vramcast.simulate.runner import early_server

        return early_server()
    return contextlib.nullcontext()


def _prepare_output() -> None:
    """Makes stdout and stderr writable, whatever their encoding."""
    # None means that the descriptor is closed. Writing to stdout must then fail, as on a full disk.
    if sys.stdout is None:
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # Tests use other streams.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _print_error(error: VramcastError) -> None:
    print(f"vramcast: {printable(error.message, MAX_MESSAGE_CHARACTERS)}", file=sys.stderr)
    for line in printable(error.advice, MAX_MESSAGE_CHARACTERS).splitlines():
        print(f"  {line}".rstrip(), file=sys.stderr)


def _exit_at_once(exit_code: int) -> None:
    """Exits without another attempt to write the output that could not be written."""
    sys.stderr.flush()
    os._exit(exit_code)
