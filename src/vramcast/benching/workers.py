"""The process that forks one for every trial, as seen from outside."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

from vramcast.processes.lifetime import child_environment


class Stopped(Exception):
    """The process was ended on purpose, and what it was doing is nobody's failure."""


class Workers:
    """Started with the first trial; on the GPU that is named, where there are several."""

    def __init__(self, gpu: str | None = None) -> None:
        self._gpu = gpu
        self._process: subprocess.Popen[bytes] | None = None
        self._reader = -1
        self._is_stopped = False
        self._lock = threading.Lock()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        """However it comes to this, an interruption included: nothing is left running."""
        if self._process is not None:
            self._kill()
            self._process.wait()
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            os.close(self._reader)
            self._process = None

    def stop(self) -> None:
        """From another thread: whoever waits for news gets `Stopped`."""
        with self._lock:
            self._is_stopped = True
            self._kill()

    def _kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def news(self, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Of one trial: {"progress"} lines, {"outcome"} or {"error"}, and at the end {"ended"}, the exit code of its process."""
        process = self._running()
        assert process.stdin is not None
        with contextlib.suppress(
            BrokenPipeError
        ):  # it has died: there will be nothing to read, and its exit code says so
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        for news in _lines(self._reader, process):
            yield news
            if "ended" in news:
                return
        code = process.wait()
        if self._is_stopped:
            raise Stopped
        self.__exit__()
        yield {"ended": code}

    def _running(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_stopped:
                raise Stopped
            return self._process or self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self._reader, writer = os.pipe()
        self._process = subprocess.Popen(
            # -P: a random.py in the user's folder is not Python's
            [sys.executable, "-P", "-m", "vramcast.benching.worker", str(writer), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[writer],
            env=child_environment(
                **({} if self._gpu is None else {"CUDA_VISIBLE_DEVICES": self._gpu})
            ),
            start_new_session=True,
        )
        os.close(writer)
        return self._process


def _lines(reader: int, process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    """Until the process has ended."""
    rest = b""
    while True:
        if not select.select([reader], [], [], 0.5)[0]:
            if process.poll() is None:
                continue
            if not select.select([reader], [], [], 0)[0]:
                return  # a process that the model's code has forked may hold the pipe open
        chunk = os.read(reader, 1 << 16)
        if not chunk:
            return
        *lines, rest = (rest + chunk).split(b"\n")
        for line in filter(None, lines):
            with contextlib.suppress(
                ValueError, RecursionError
            ):  # user code may write rubbish into any descriptor
                news = json.loads(line)
                if isinstance(news, dict):
                    yield news
