"""How long work says how far it is: to a function, with which the command line draws bars."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vramcast.text import printable

MAX_LINE_BYTES = 2000


@dataclass(frozen=True)
class Progress:
    name: str  # each has its own bar
    done: float = 0
    total: float | None = None
    detail: str = ""  # beside the bar, for example a loss
    line: str = ""  # text that stays, for example a result


Report = Callable[[Progress], None]


# lines in Python's report of a fatal signal that are not the user's
OUR_LINES = ("Extension modules:", 'File "<frozen runpy>"', f'File "{Path(__file__).parents[1]}/')


def is_of_user(line: str) -> bool:
    return not line.strip().startswith(OUR_LINES)


class OutputLines:
    """Makes whole lines of what a program prints. Of a bar that is drawn again and again in one
    line, only its last state is shown."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show, self._rest = show, b""

    def receive(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line(line)
        # of a bar the states before the last are not needed
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
    """For callers who want to see no progress."""
