"""Checkpoints on disk. A thread writes them: training waits only for the copy to host memory."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from vramcast.benching.training_step import State, Training
from vramcast.errors import EnvironmentProblem


class Checkpoints(AbstractContextManager["Checkpoints"]):
    """One file. At every moment it is the old checkpoint or the new one, whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1)
        self._written: Future[None] | None = None

    def __exit__(self, *_: object) -> None:
        """Finish what is being written, also when training was interrupted."""
        self._thread.shutdown()

    def save(self, training: Training, step: int, resumed_at_steps: list[int]) -> None:
        """Raises what went wrong with the one before: without any, training would be in vain."""
        if self._written is not None:
            self._written.result()
        state = {"step": step, "resumed_at_steps": resumed_at_steps, **training.state()}
        # on the host, because the next step changes the originals
        copy = tree_map_only(Tensor, lambda tensor: tensor.to("cpu", copy=True), state)
        self._written = self._thread.submit(_write, self._path, copy)


def load(path: Path) -> State | None:
    """None where there is none, or where it is damaged."""
    try:
        state: State = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError, ValueError):
        return None
    return state


@contextmanager
def of_this_model(path: Path) -> Iterator[None]:
    """While a checkpoint is taken over: one that does not fit is named."""
    try:
        yield
    except (RuntimeError, ValueError, TypeError, AttributeError, KeyError) as problem:
        lacks = "it lacks " if isinstance(problem, KeyError) else ""
        raise EnvironmentProblem(
            f"The checkpoint {path} does not fit this model: {lacks}{problem}.",
            "It is of another model or of another version of vramcast: begin again with --force, "
            "or choose another folder with --out.",
        ) from None


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
