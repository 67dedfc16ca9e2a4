"""Checkpoints on disk, written by a thread of their own: training stops for the copy to the host's memory only."""

from __future__ import annotations

import os
import pickle
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vramcast.errors import EnvironmentProblem

State = dict[str, Any]


class Checkpoints:
    """One file. The old checkpoint or the new one is there at every moment, whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1)
        self._written: Future[None] | None = None

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *_: object) -> None:
        """What is being written gets written, also when training was interrupted."""
        self._thread.shutdown()

    def save(self, state: State) -> None:
        """An error of the one before is raised here: the disk may be full for hours, and training in vain."""
        if self._written is not None:
            self._written.result()
        self._written = self._thread.submit(_write, self._path, _copy_on_host(state))


def load(path: Path) -> State | None:
    """On the host; None where there is none to use: one that was damaged on disk is as good as none."""
    try:
        state: State = torch.load(path, map_location="cpu", weights_only=True)
        return state
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError, ValueError):
        return None


def _copy_on_host(state: Any) -> Any:
    """The next step changes the originals."""
    if isinstance(state, Tensor):
        return state.to("cpu", copy=True)
    if isinstance(state, dict):
        return {key: _copy_on_host(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(_copy_on_host(value) for value in state)
    return state


def _write(path: Path, state: State) -> None:
    temporary = path.with_name(f".{path.name}.new")
    try:
        with open(temporary, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except (
        OSError,
        RuntimeError,
    ) as problem:  # torch says it in its own words when the disk is full
        what = f"The checkpoint {path} cannot be written: {getattr(problem, 'strerror', None) or problem}."
        raise EnvironmentProblem(
            what, "Make room and start the same bench again: it goes on from its last checkpoint."
        ) from None
