"""Tests of processes and threads wait for what happens, however slow or busy the machine is."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

# For commands that end long before, also on a busy machine: beyond it a test fails, not hangs.
PATIENCE_SECONDS = 300.0


def comes_true(condition: Callable[[], object]) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def let_ctrl_c_through() -> None:
    """For `preexec_fn`: what a shell runs in the background ignores SIGINT, and so its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Clock:
    """`time` of the given modules, which a test puts forward: no time limit has to be waited for.

    It goes on like the real one besides, or stands still.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *modules: ModuleType, goes_on: bool = True
    ) -> None:
        self._ahead_seconds, self._goes_on = 0.0, goes_on
        instead = SimpleNamespace(**{**vars(time), "monotonic": self.monotonic})
        for module in modules:
            monkeypatch.setattr(module, "time", instead)

    def monotonic(self) -> float:
        return (time.monotonic() if self._goes_on else 0.0) + self._ahead_seconds

    def put_forward(self, seconds: float) -> None:
        self._ahead_seconds += seconds


class Timer:
    """In place of `threading.Timer`: the time is over when somebody says so in the file `over`.

    That is whoever hangs; nobody else has to be quick. The clock goes on by the timer's seconds.
    """

    over: Path
    clock: Clock

    @classmethod
    def install(cls, monkeypatch: pytest.MonkeyPatch, module: ModuleType, over: Path) -> None:
        clock = Clock(monkeypatch, module, goes_on=False)
        values = {"over": over, "clock": clock}
        monkeypatch.setattr(module, "Timer", type("Timer", (cls,), values))

    def __init__(self, seconds: float, call: Callable[[], object]) -> None:
        self._seconds, self._call = seconds, call
        self._cancelled = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._wait).start()

    def cancel(self) -> None:
        self._cancelled.set()

    def _wait(self) -> None:
        assert comes_true(lambda: self._cancelled.is_set() or self.over.exists())
        if not self._cancelled.is_set():
            self.over.unlink()
            self.clock.put_forward(self._seconds)
            self._call()
