"""Garbage collections that programs ask for in epochs without batches."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from vramcast.programs.garbage import collecting_new_garbage


@contextmanager
def _generations() -> Iterator[list[int]]:
    """Which generations were collected."""
    seen = list[int]()

    def see(phase: str, about: dict[str, int]) -> None:
        if phase == "start":
            seen.append(about["generation"])

    gc.disable()
    gc.callbacks.append(see)
    try:
        yield seen
    finally:
        gc.callbacks.remove(see)
        gc.enable()


def _watcher(num_empty_epochs: int) -> Any:
    names = ("training_forwards", "evaluation_forwards", "backwards", "steps", "saves")
    counts = {f"num_{name}": 3 for name in names}
    return SimpleNamespace(**counts, num_empty_epochs=num_empty_epochs)


def test_only_what_was_made_since_is_looked_at_again_in_epochs_without_batches() -> None:
    watcher = _watcher(num_empty_epochs=1)
    with _generations() as seen, collecting_new_garbage(watcher):
        for _ in range(3):
            gc.collect()
        gc.collect()  # at another place
        for num_saves in (4, 5):
            watcher.num_saves = num_saves
            gc.collect()
    assert seen == [2, 1, 1, 2, 2, 2]


def test_all_garbage_is_collected_while_the_program_trains() -> None:
    with _generations() as seen, collecting_new_garbage(_watcher(num_empty_epochs=0)):
        for _ in range(2):
            gc.collect()
    assert seen == [2, 2]
