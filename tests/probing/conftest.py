"""Processes of these tests are told from those of others on the machine by a mark in their environment."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


class Marked:
    """Everything that was started with this environment, and what it has started."""

    def __init__(self) -> None:
        self.environment = {"VRAMCAST_PROBE_TEST_MARK": uuid.uuid4().hex}
        self._entry = "=".join(*self.environment.items()).encode()

    def running(self) -> list[int]:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                is_ours = self._entry in (folder / "environ").read_bytes().split(b"\0")
                has_ended = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            except OSError:  # it has ended meanwhile
                continue
            if is_ours and not has_ended:
                found.append(int(folder.name))
        return found

    def none_left(self, patience_seconds: float = 20.0) -> bool:
        deadline = time.monotonic() + patience_seconds
        while self.running():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def end(self) -> None:
        for left in self.running():
            os.kill(left, signal.SIGKILL)


@pytest.fixture(scope="module")
def new_mark() -> Iterator[Callable[[], Marked]]:
    """A fresh mark; whatever still carries it when the tests are over is ended."""
    marks: list[Marked] = []

    def make() -> Marked:
        marks.append(Marked())
        return marks[-1]

    yield make
    for mark in marks:
        mark.end()
