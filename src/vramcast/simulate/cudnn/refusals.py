"""What cuDNN would have proposed, had there been a GPU: its log names every kernel that it refuses.

cuDNN orders its kernels before it looks which of them can run here. Its log goes to a file in
memory, and is switched on only while it is asked.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

VARIABLES = {"CUDNN_LOGLEVEL_DBG": "3", "CUDNN_LOGDEST_DBG": ""}
INFORMATION = 1 << 3  # the bit of this kind of message
KERNEL, REASON = "engineConfig: type=json; val=", "Reason: "


class Refusal(NamedTuple):
    engine: int
    reasons: tuple[str, ...]


class Log:
    def __init__(self) -> None:
        self.file = os.memfd_create("cudnn-log")
        self.library: Any = None
        self.lock = threading.Lock()

    @contextmanager
    def opened(self) -> Iterator[None]:
        """cuDNN opens its log where it is first used: while this is entered."""
        variables = {**VARIABLES, "CUDNN_LOGDEST_DBG": f"/proc/self/fd/{self.file}"}
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    def attach(self, library: Any) -> None:
        self.library = library
        self._write(True)
        self._write(False)

    def _write(self, is_on: bool) -> None:
        mask = ctypes.c_uint(INFORMATION if is_on else 0)
        self.library.cudnnSetCallback(mask, None, None)

    @contextmanager
    def refusals(self) -> Iterator[list[Refusal]]:
        """Of what cuDNN is asked inside, in its order; filled at the end.

        Processes that were forked share the file, so one at a time writes.
        """
        found: list[Refusal] = []
        with self.lock:
            fcntl.lockf(self.file, fcntl.LOCK_EX)
            try:
                os.ftruncate(self.file, 0)
                self._write(True)
                try:
                    yield found
                finally:
                    self._write(False)
                    found += _parsed(self._read())
            finally:
                fcntl.lockf(self.file, fcntl.LOCK_UN)

    def _read(self) -> str:
        """cuDNN goes on where it was, also in a file that was cut: what is before is empty."""
        size = os.fstat(self.file).st_size
        if not size:
            return ""
        first = os.lseek(self.file, 0, os.SEEK_DATA)
        return os.pread(self.file, size - first, first).decode(errors="replace")


def _parsed(text: str) -> Iterator[Refusal]:
    engine, reasons = None, list[str]()
    for line in text.splitlines():
        if KERNEL in line:
            if engine is not None:
                yield Refusal(engine, tuple(reasons))
            content = line.partition(KERNEL)[2].rstrip().rstrip(";")
            engine, reasons = int(json.loads(content)["engineId"]), []
        elif engine is not None and REASON in line:
            reasons.append(line.partition(REASON)[2])
    if engine is not None:
        yield Refusal(engine, tuple(reasons))
