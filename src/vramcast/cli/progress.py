"""Shows on stderr what a command reports about its progress."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from vramcast.processes.progress import Progress, Report

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

# What takes less time shows no bar.
PATIENCE_SECONDS = 2.0


@contextlib.contextmanager
def progress_display() -> Iterator[Report]:
    """Bars on a terminal; where it is none, only the lines that stay."""
    if not sys.stderr.isatty():
        yield _print_line
        return
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    bars = Bars(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(20),
        TextColumn("{task.fields[detail]}", markup=False),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    begin = threading.Timer(PATIENCE_SECONDS, bars.start)
    begin.daemon = True
    begin.start()
    try:
        yield _Display(bars).show
    finally:
        begin.cancel()
        begin.join()
        if bars.live.is_started:
            bars.stop()


def _print_line(progress: Progress) -> None:
    if progress.line:
        print(progress.line, file=sys.stderr, flush=True)


class _Display:
    """A bar for each name. One without a total goes when something else is reported."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def show(self, progress: Progress) -> None:
        if progress.line:
            self._bars.console.print(progress.line, markup=False, highlight=False)
        if progress.name not in self._tasks:
            self._remove_those_without_a_total()
            self._tasks[progress.name] = self._bars.add_task(progress.name, total=None, detail="")
        self._bars.update(
            self._tasks[progress.name],
            completed=progress.done,
            total=progress.total,
            detail=progress.detail,
        )

    def _remove_those_without_a_total(self) -> None:
        for name, task in list(self._tasks.items()):
            if next(one for one in self._bars.tasks if one.id == task).total is None:
                self._bars.remove_task(self._tasks.pop(name))
