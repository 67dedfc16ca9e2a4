"""Where trials run: one place a GPU, each with a thread that takes the next trial when its own has ended."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from vramcast.benching.workers import Stopped, Workers
from vramcast.hardware import nvml

Job = TypeVar("Job")


class Place(AbstractContextManager["Place"], Protocol):
    def news(self, request: dict[str, Any]) -> Generator[Any, None, None]:
        """The progress of one trial until it has written its result."""

    def stop(self) -> None:
        """From another thread: whoever waits for news gets `Stopped`."""


class Here:
    """This machine."""

    def __init__(self, device: str) -> None:
        self._device = device

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *_: object) -> None:
        return

    @property
    def gpu(self) -> str | None:
        """If vramcast knows it by name."""
        return nvml.gpu_here() if self._device == "cuda" else None

    def places(self, num_trials: int) -> list[Place]:
        return [
            Workers(gpu) for gpu in (gpus_here()[:num_trials] if self._device == "cuda" else [None])
        ]


def gpus_here() -> list[str | None]:
    """As CUDA_VISIBLE_DEVICES names them: those it shows already, or all that are like the first one, for results on others are not
    comparable. [None] where there is one: nothing has to be said."""
    visible = [
        name.strip()
        for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        if name.strip()
    ]
    if not visible:
        states = nvml.gpu_states()
        visible = [state.uuid for state in states if state.name == states[0].name]
    return [*visible] if len(visible) > 1 else [None]


def run_everywhere(
    jobs: Sequence[Job], places: Sequence[Place], do: Callable[[Job, Place], None]
) -> None:
    """Every job in one of the places. What one raises ends all of them, and is raised here; nothing is left running."""
    waiting: SimpleQueue[Job] = SimpleQueue()
    for job in jobs:
        waiting.put(job)

    def serve(place: Place) -> None:
        with place, contextlib.suppress(Empty, Stopped):
            while True:
                do(waiting.get_nowait(), place)

    with ThreadPoolExecutor(len(places)) as threads:
        try:
            for served in as_completed(
                [threads.submit(serve, place) for place in places[: len(jobs)]]
            ):
                served.result()
        except BaseException:  # of one of them, or an interruption of this thread
            for place in places:
                place.stop()
            raise
