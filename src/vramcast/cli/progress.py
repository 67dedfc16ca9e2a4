"""What goes to stderr: errors as one message, and a sign of life for anything longer than two seconds."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

from vramcast.errors import VramcastError

PATIENCE_SECONDS = 2.0


def plain_errors(error: VramcastError) -> None:
    print(f"vramcast: {error.message}", file=sys.stderr)
    if error.advice:
        print(f"  {error.advice}", file=sys.stderr)


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
            print(f"\r{marks[int(seconds * 10) % len(marks)]} {text} {seconds:.0f} s", end="", file=sys.stderr, flush=True)
        print("\r" + " " * (len(text) + 12) + "\r", end="", file=sys.stderr, flush=True)

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
