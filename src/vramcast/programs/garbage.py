"""Garbage collections that programs ask for in epochs that run without batches.

A program may have a thousand such epochs (loaders.py), and a collection looks at all objects of all
imported libraries: flow_matching's took 9 s. Between two of them nothing was trained, so only what
was made since can have become garbage.
"""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType

from vramcast.programs.watching import Watcher, replaced

Collect = Callable[..., int]
Did = tuple[int, ...]
OLDEST, YOUNG = 2, 1  # generations of Python's collector


@contextmanager
def collecting_new_garbage(watcher: Watcher) -> Iterator[None]:
    """Where a program collects all garbage once more at the same place, with nothing done on the
    GPU in between, only objects made since then are looked at."""
    # what the program had done when it last collected garbage at a place
    last: dict[tuple[CodeType, int], Did] = {}

    def wrap(original: Collect) -> Collect:
        def collect(generation: int = OLDEST) -> int:
            frame = sys._getframe(1)
            place, did = (frame.f_code, frame.f_lasti), _did(watcher)
            is_same = watcher.num_empty_epochs > 0 and last.get(place) == did
            last[place] = did
            return original(min(generation, YOUNG) if is_same else generation)

        return collect

    with replaced(gc, "collect", wrap):
        yield


def _did(watcher: Watcher) -> Did:
    return (
        watcher.num_training_forwards,
        watcher.num_evaluation_forwards,
        watcher.num_backwards,
        watcher.num_steps,
        watcher.num_saves,
    )
