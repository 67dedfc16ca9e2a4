"""The processes that run user code: the environment they get, and Linux's ways of leaving none behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from pathlib import Path

_SET_PARENT_DEATH_SIGNAL = 1
_SET_CHILD_SUBREAPER = 36


def child_environment(**more: str) -> dict[str, str]:
    """This process's, in which a child finds the same vramcast, installed or not."""
    package_root = str(Path(__file__).parents[2])
    path = os.pathsep.join(
        part for part in (package_root, os.environ.get("PYTHONPATH", "")) if part
    )
    return {**os.environ, "PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false", **more}


def end_with_the_parent(parent: int) -> None:
    """When the parent dies, however it dies, the kernel kills this process too."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the kernel knew
        os._exit(1)


def outlive_the_parent() -> None:
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, 0)


def adopt_orphans() -> None:
    """Processes whose parents die below this one become its children, so that it can end them, whatever session they are in."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)


def children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def end_all_children(patience_seconds: float = 5.0) -> None:
    """Kill and reap until none is left: those that a killed one leaves behind come up as children next."""
    deadline = time.monotonic() + patience_seconds
    while (alive := children()) and time.monotonic() < deadline:
        for pid in alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
