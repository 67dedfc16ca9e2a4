"""What goes to stderr: errors as one message, and a sign of life for anything longer than two seconds; and streams that can be written."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from vramcast.errors import VramcastError
from vramcast.text import printable

if TYPE_CHECKING:
    from vramcast.probing.facts import Facts

PATIENCE_SECONDS = 2.0


def prepare_output() -> None:
    """Python has no stdout or stderr (None) where the descriptor is closed, and raises where an encoding has no ✓."""
    if (
        sys.stdout is None
    ):  # what is written to it fails, and is told as on a full disk; a command that writes nothing there does not
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # else somebody reads along, as tests do
            stream.reconfigure(errors="replace")


def plain_errors(error: VramcastError) -> None:
    print(f"vramcast: {printable(error.message)}", file=sys.stderr)  # a message may quote a file
    if error.advice:
        print(f"  {printable(error.advice)}", file=sys.stderr)


@contextlib.contextmanager
def sign_of_life(text: str) -> Iterator[None]:
    """A line that counts the seconds, on a terminal and only once it takes longer."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()

    def tick() -> None:
        started = time.monotonic()
        if done.wait(PATIENCE_SECONDS):
            return
        marks = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
        while not done.wait(0.1):
            seconds = time.monotonic() - started
            print(
                f"\r{marks[int(seconds * 10) % len(marks)]} {text} {seconds:.0f} s",
                end="",
                file=sys.stderr,
                flush=True,
            )
        print("\r" + " " * (len(text) + 12) + "\r", end="", file=sys.stderr, flush=True)

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextlib.contextmanager
def step_display(warmup_steps: int, measure_steps: int) -> Iterator[Callable[[Facts], None]]:
    """A bar over the steps of a real run, on a terminal; called with what is known so far."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    texts = TextColumn("{task.description:<10}"), TextColumn("{task.fields[loss]}")
    columns = (texts[0], BarColumn(), texts[1], TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=warmup_steps + measure_steps, loss="")

        def show(facts: Facts) -> None:
            losses = facts.losses
            loss = f"loss {losses[-1]:.4f}" if losses and losses[-1] is not None else ""
            progress.update(task, description=facts.phase, completed=len(losses), loss=loss)

        yield show


@contextlib.contextmanager
def count_display(total: int) -> Iterator[Callable[[str, str], None]]:
    """A bar over many pieces of work, on a terminal; called with the kind and the name of each finished piece."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description:<60}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=total)
        yield lambda kind, name: progress.update(task, advance=1, description=f"{kind} {name}"[:60])


@contextlib.contextmanager
def total_display(text: str) -> Iterator[Callable[[int, int], None]]:
    """A bar of which the total is known only once it has begun; called with how much is done, and of how much."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(text, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
