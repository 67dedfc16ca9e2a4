"""Starts the command line: `vramcast` and `python -m vramcast`.

Ctrl-C and SIGTERM are one line and an exit code, also while modules are being imported.
"""

import contextlib
import os
import signal
from types import FrameType


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        # Shells and nohup start programs that ignore signals: that stays so.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _end_at_once)
    from vramcast.cli.main import main as run_command
    from vramcast.processes.lifetime import begin_command

    begin_command()
    run_command()


def _end_at_once(number: int, _frame: FrameType | None) -> None:
    """Nothing was begun, or everything has ended."""
    with contextlib.suppress(OSError):  # stderr may be closed
        os.write(2, b"Interrupted.\n" if number == signal.SIGINT else b"Terminated.\n")
    os._exit(128 + number)


if __name__ == "__main__":
    main()
