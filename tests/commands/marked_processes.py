"""Processes of a test are told from others on the machine by a mark in their environment."""

from __future__ import annotations

import os
import signal
import uuid
from contextlib import suppress
from pathlib import Path

from waiting import comes_true


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

    def none_left(self, but: int = 0) -> bool:
        return comes_true(lambda: len(self.running()) <= but)

    def only_the_server(self) -> bool:
        """What a task has started is gone when its answer is there, its guard a moment later."""
        return self.none_left(but=1)

    def at_least(self, count: int) -> bool:
        """A process that is just starting its program has no environment for a moment."""
        return comes_true(lambda: len(self.running()) >= count)

    def end(self) -> None:
        for left in self.running():
            with suppress(ProcessLookupError):  # it ended by itself
                os.kill(left, signal.SIGKILL)
