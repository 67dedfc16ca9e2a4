"""Where trials run: one place a GPU, each with a thread that takes the next trial when its own has ended."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from vramcast import nvml
from vramcast.benching.workers import Stopped, Workers

Job = TypeVar("Job")


class Place(AbstractContextManager["Place"], Protocol):
    def news(self, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Of one trial; the last has "ended"."""

    def stop(self) -> None:
        """From another thread: whoever waits for news gets `Stopped`."""


def places_here(device: str) -> list[Place]:
    return [Workers(gpu) for gpu in (gpus_here() if device == "cuda" else [None])]


def gpus_here() -> list[str | None]:
    """As CUDA_VISIBLE_DEVICES names them: those it shows already, or all that are like the first one, for results on others are not
    comparable. [None] where there is one: nothing has to be said."""
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    if not visible:
        states = nvml.gpu_states()
        visible = [state.uuid for state in states if state.name == states[0].name]
    return [*visible] if len(visible) > 1 else [None]


def run_everywhere(jobs: Sequence[Job], places: Sequence[Place], do: Callable[[Job, Place], None]) -> None:
    """Every job in one of the places. What one raises ends all of them, and is raised here; nothing is left running."""
    waiting: SimpleQueue[Job] = SimpleQueue()
    for job in jobs:
        waiting.put(job)
    problems: list[BaseException] = []

    def stop_all() -> None:
        for place in places:
            place.stop()

    def serve(place: Place) -> None:
        try:
            with place:
                while True:
                    do(waiting.get_nowait(), place)
        except (Empty, Stopped):
            return
        except BaseException as problem:  # KeyboardInterrupt too: it is raised where the others are waited for
            problems.append(problem)
            stop_all()

    threads = [threading.Thread(target=serve, args=(place,)) for place in places[: len(jobs)]]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        stop_all()
        for thread in threads:
            thread.join()
        raise
    if problems:
        raise problems[0]
