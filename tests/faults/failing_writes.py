"""A library that makes the nth write below a folder fail, in a command and all its processes.

It is compiled here and loaded with LD_PRELOAD, so that the writes of every library count, and those
of processes that the command starts.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
CONTROL = "FAULTS_CONTROL"
TEXT_BYTES = 4096


class Control(ctypes.Structure):
    """As in failing_writes.c."""

    _fields_ = [
        ("is_on", ctypes.c_long),
        ("count", ctypes.c_long),
        ("fail_at", ctypes.c_long),
        ("error", ctypes.c_long),
        ("stays", ctypes.c_long),
        ("root", ctypes.c_char * TEXT_BYTES),
        ("failed", ctypes.c_char * TEXT_BYTES),
    ]


def environment(folder: Path) -> dict[str, str]:
    """Of a process that has the library in it and in all that it starts."""
    library, control = folder / "failing_writes.so", folder / "control"
    command = ["cc", "-shared", "-fPIC", "-O2", "-o", library, SOURCE, "-ldl"]
    subprocess.run(command, check=True)
    control.write_bytes(bytes(ctypes.sizeof(Control)))
    return {**os.environ, "LD_PRELOAD": str(library), CONTROL: str(control)}


class FailingWrites:
    """The switch of the library that this process has loaded."""

    def __init__(self) -> None:
        with open(os.environ[CONTROL], "r+b") as file:
            self._page = Control.from_buffer(mmap.mmap(file.fileno(), 0))

    def arm(self, root: Path, fail_at: int = 0, error: int = 0, stays: bool = False) -> None:
        """From now on writes below the folder count, and this one fails; 0 is none."""
        page = self._page
        page.root, page.failed = os.fsencode(root.resolve()), b""
        page.count, page.fail_at, page.error, page.stays = 0, fail_at, error, stays
        page.is_on = 1

    def disarm(self) -> int:
        """The number of writes that were counted."""
        self._page.is_on = 0
        return int(self._page.count)

    @property
    def failed(self) -> str:
        """The call and the file that failed; empty where none did."""
        return os.fsdecode(self._page.failed)
