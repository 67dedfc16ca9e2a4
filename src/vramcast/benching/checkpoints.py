"""Checkpoints on disk. A thread writes them: training waits only for the copy to host memory."""

from __future__ import annotations

import os
import pickle
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vramcast.benching.training_step import State, Training
from vramcast.errors import EnvironmentProblem


class Checkpoints:
    """One file. At every moment it is the old checkpoint or the new one, whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1)
        self._written: Future[None] | None = None

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *_: object) -> None:
        """What is being written gets written, also when training was interrupted."""
        self._thread.shutdown()

    def save(self, training: Training, step: int, resumed_at_steps: list[int]) -> None:
        """Raises the error of the checkpoint before: training on without any would be in vain."""
        if self._written is not None:
            self._written.result()
        state = {"step": step, "resumed_at_steps": resumed_at_steps, **training.state()}
        self._written = self._thread.submit(_write, self._path, _copy_on_host(state))


def load(path: Path) -> State | None:
    """On the host; None where there is none, or one that was damaged on disk."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError, ValueError):
        return None
    if not isinstance(state, dict) or not {"step", "resumed_at_steps"} <= state.keys():
        raise _does_not_fit(path, "it does not say which step it is of")
    return state


def restore(training: Training, state: State, path: Path) -> None:
    try:
        training.restore(state)
    except KeyError as problem:
        raise _does_not_fit(path, f"it lacks {problem}") from None
    except (RuntimeError, ValueError, TypeError, AttributeError) as problem:
        raise _does_not_fit(path, str(problem)) from None


def _does_not_fit(path: Path, why: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"The checkpoint {path} does not fit this model: {why}.",
        "It is of another model or of another version of vramcast: begin again with --force, "
        "or choose another folder with --out.",
    )


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
    except (OSError, RuntimeError) as problem:  # torch raises RuntimeError when the disk is full
        why = getattr(problem, "strerror", None) or problem
        raise EnvironmentProblem(
            f"The checkpoint {path} cannot be written: {why}.",
            "Make room and start the same bench again: it goes on from its last checkpoint.",
        ) from None
