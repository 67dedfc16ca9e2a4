"""What cuDNN would have proposed, had there been a GPU: its log names every kernel that it refuses.

cuDNN orders its kernels before it checks which of them can run here.
"""

import ctypes
import fcntl
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

INFORMATION = 1 << 3  # the bit of this kind of message
KERNEL = re.compile(r'engineConfig: type=json; val={"engineId":(\d+)')
REASON = re.compile(r"Reason: (.*)")


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
        """Makes cuDNN write its log into our file: it must be used for the first time in this
        block."""
        place = f"/proc/self/fd/{self.file}"
        variables = {"CUDNN_LOGLEVEL_DBG": "3", "CUDNN_LOGDEST_DBG": place}
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
        """The kernels that cuDNN refuses in this block, in its order. The list is filled at the
        end.

        Forked processes share the file, so only one at a time may write.
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
        """The log. cuDNN writes on at its old position after the file was cut, so the file begins
        with a hole, which is skipped."""
        size = os.fstat(self.file).st_size
        if not size:
            return ""
        first = os.lseek(self.file, 0, os.SEEK_DATA)
        return os.pread(self.file, size - first, first).decode(errors="replace")


def _parsed(text: str) -> Iterator[Refusal]:
    """A line that names a kernel comes before the lines of its reasons."""
    _, *parts = KERNEL.split(text)
    for engine, rest in zip(parts[::2], parts[1::2], strict=True):
        yield Refusal(int(engine), tuple(REASON.findall(rest)))
