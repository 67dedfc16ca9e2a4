"""Shows on stderr what a command reports about its progress."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from vramcast.processes.progress import Progress, Report
from vramcast.text import printable

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

# Shorter tasks show no bar.
PATIENCE_SECONDS = 2.0


def say(text: str) -> None:
    """Prints a text for people to stderr. Names of files and options are shown without control
    characters."""
    print(printable(text), file=sys.stderr)


@contextlib.contextmanager
def progress_display() -> Iterator[Report]:
    """Shows bars on a terminal. Elsewhere it prints only the lines that stay."""
    if not sys.stderr.isatty():
        yield _print_line
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        SpinnerColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars
    from rich.text import Text

    class TimeLeft(TimeRemainingColumn):
        def render(self, task: Task) -> Text:
            """The time left, once a part of a known total is done."""
            if task.time_remaining is None or task.finished:
                return Text("")
            return Text.assemble(super().render(task), " left")

    bars = Bars(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(20),
        TextColumn("{task.fields[detail]}", markup=False),
        TimeElapsedColumn(),
        TimeLeft(),
        console=Console(stderr=True),
        transient=True,
    )
    begin = threading.Timer(PATIENCE_SECONDS, bars.start)
    begin.daemon = True
    begin.start()
    try:
        yield functools.partial(_show, bars)
    finally:
        begin.cancel()
        begin.join()
        if bars.live.is_started:
            bars.stop()


def _print_line(progress: Progress) -> None:
    if progress.line:
        print(printable(progress.line), file=sys.stderr, flush=True)


def _show(bars: Bars, progress: Progress) -> None:
    """A bar for each name. A bar without a total disappears when something else is reported."""
    if progress.line:
        bars.console.print(printable(progress.line), markup=False, highlight=False)
    tasks = {task.description: task.id for task in bars.tasks}
    if progress.name not in tasks:
        for task in bars.tasks:
            if task.total is None:
                bars.remove_task(task.id)
        tasks[progress.name] = bars.add_task(progress.name, total=None, detail="")
    bars.update(
        tasks[progress.name],
        completed=progress.done,
        total=progress.total,
        detail=progress.detail,
    )
