"""Tests of processes and threads wait for what happens, however slow or busy the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable
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


class Clock:
    """`time` of the given modules, which a test puts forward: no time limit has to be waited for.

    It goes on like the real one besides.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
        self._ahead_seconds = 0.0
        instead = SimpleNamespace(**{**vars(time), "monotonic": self.monotonic})
        for module in modules:
            monkeypatch.setattr(module, "time", instead)

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead_seconds

    def put_forward(self, seconds: float) -> None:
        self._ahead_seconds += seconds
