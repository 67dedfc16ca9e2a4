"""How long work says how far it is: to a function, with which the command line draws bars."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    name: str  # each has its own bar
    done: float = 0
    total: float | None = None
    detail: str = ""  # beside the bar, for example a loss
    line: str = ""  # text that stays, for example a result


Report = Callable[[Progress], None]


def ignore(progress: Progress) -> None:
    """For callers who want to see no progress."""
