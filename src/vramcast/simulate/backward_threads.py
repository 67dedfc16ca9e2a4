"""A backward pass has ended when its thread has let go of the last tensors, not when the caller is told so.

Autograd's device thread reports the end and only then drops what it holds. On a busy machine the caller can be far into the next step by
then, and a simulation would not give the same trace twice. On Linux the threads that are still at work can be seen.
"""

from __future__ import annotations

import os
import threading
import time

PAUSE_SECONDS = 2e-5
PATIENCE_SECONDS = 1.0


def wait_until_idle() -> None:
    """Until every other thread of this process sleeps, seen twice: one that waits for Python's lock sleeps too, but not for long."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    quiet = 0
    while quiet < 2 and time.monotonic() < deadline:
        quiet = 0 if _others_at_work() else quiet + 1
        time.sleep(PAUSE_SECONDS)  # lets the others have Python's lock


def _others_at_work() -> bool:
    own = threading.get_native_id()
    return any(_state(task) not in "SI" for task in _tasks() if int(task) != own)


def _tasks() -> list[str]:
    try:
        return os.listdir("/proc/self/task")
    except OSError:
        return []


def _state(task: str) -> str:
    try:
        with open(f"/proc/self/task/{task}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:  # it has ended meanwhile
        return "S"
