"""Starts the command line: `vramcast` and `python -m vramcast`.

Ctrl-C and SIGTERM give one line and an exit code, even while modules are being imported.
"""

import atexit
import contextlib
import os
import signal
import sys
from types import FrameType


def main() -> None:
    end_at_signals()
    codes: list[int] = []
    atexit.register(_leave, codes)  # registered first, so that it is called last
    from vramcast.cli.main import main as run_command
    from vramcast.processes.lifetime import begin_command

    begin_command()
    try:
        run_command()
        codes.append(0)
    except SystemExit as stop:
        codes.append(stop.code if isinstance(stop.code, int) else bool(stop.code))
        raise


def end_at_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        # A program that was started to ignore a signal, by a shell or nohup, must go on ignoring
        # it.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _end_at_once)


def _end_at_once(number: int, _frame: FrameType | None) -> None:
    """Ends the process: nothing was begun yet, or everything has ended."""
    with contextlib.suppress(OSError):  # stderr may be closed
        os.write(2, b"Interrupted.\n" if number == signal.SIGINT else b"Terminated.\n")
    os._exit(128 + number)


def _leave(codes: list[int]) -> None:
    """Ends the process with its exit code. Python's own exit removes the signal handlers first, and
    would end by SIGINT if a signal came while a dataclass was made."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(codes[0] if codes else 1)


if __name__ == "__main__":
    main()
