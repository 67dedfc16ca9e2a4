"""How long tasks report their progress: to a function, with which the command line draws bars."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vramcast.text import printable

MAX_LINE_BYTES = 2000


@dataclass(frozen=True)
class Progress:
    name: str  # each name has its own bar
    done: float = 0
    total: float | None = None
    detail: str = ""  # shown beside the bar, for example a loss
    line: str = ""  # text that stays, for example a result


Report = Callable[[Progress], None]


# lines in Python's report of a fatal signal that do not concern the user
OUR_LINES = ("Extension modules:", 'File "<frozen runpy>"', f'File "{Path(__file__).parents[1]}/')


def is_of_user(line: str) -> bool:
    return not line.strip().startswith(OUR_LINES)


class OutputLines:
    """Makes whole lines of what a program prints. Of a progress bar that is redrawn in one line,
    only the last state is shown."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show, self._rest = show, b""

    def receive(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line(line)
        # only the last state of a progress bar is needed
        self._rest = self._rest[self._rest.rfind(b"\r", 0, -1) + 1 :][-MAX_LINE_BYTES:]

    def end(self) -> None:
        if self._rest.strip():
            self._line(self._rest)
        self._rest = b""

    def _line(self, line: bytes) -> None:
        last = line.rstrip(b"\r").rpartition(b"\r")[2]
        shown = printable(last.decode(errors="replace"), MAX_LINE_BYTES)
        if is_of_user(shown):
            self._show(shown)


def ignore(progress: Progress) -> None:
    """A report for callers who do not want progress."""
