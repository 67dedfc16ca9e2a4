"""Threads beside the training loop: batches are made ahead, and checkpoints are written."""

import os
import pickle
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from vramcast.benching.data import Bytes
from vramcast.benching.training_step import State, Training
from vramcast.errors import EnvironmentProblem
from vramcast.records.store import open_regular

NUM_AHEAD = 4


class Batches(AbstractContextManager["Batches"]):
    """The batches of the steps from `first_step` on, on the device."""

    def __init__(self, make: Callable[[int], Bytes], first_step: int, device: torch.device) -> None:
        self._make, self._device = make, device
        self._thread, self._steps = ThreadPoolExecutor(1), count(first_step)
        self._ready: deque[Future[Tensor]] = deque()
        self.wait_seconds = 0.0

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    def next(self) -> Tensor:
        while len(self._ready) <= NUM_AHEAD:
            self._ready.append(self._thread.submit(self._made, next(self._steps)))
        started = time.perf_counter()
        batch = self._ready.popleft().result()
        self.wait_seconds += time.perf_counter() - started
        # Bytes take an eighth of the room of tokens, and a copy from pinned memory does not block.
        return batch.to(self._device, non_blocking=True).long()

    def _made(self, step: int) -> Tensor:
        batch = torch.from_numpy(self._make(step))
        return batch.pin_memory() if self._device.type == "cuda" else batch


class Checkpoints(AbstractContextManager["Checkpoints"]):
    """Writes one file, which is always complete. Training waits only for the copy to host
    memory."""

    def __init__(self, path: Path) -> None:
        self._path, self._thread = path, ThreadPoolExecutor(1)
        self._written: Future[None] | None = None

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()

    def save(self, training: Training, step: int, resumed_at_steps: list[int]) -> None:
        """Saves a checkpoint. Raises what went wrong with the last one."""
        if self._written is not None:
            self._written.result()
        state = {"step": step, "resumed_at_steps": resumed_at_steps, **training.state()}
        # a copy, because the next step changes the originals
        copy = tree_map_only(Tensor, lambda tensor: tensor.to("cpu", copy=True), state)
        self._written = self._thread.submit(_write, self._path, copy)


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


def load_checkpoint(path: Path) -> State | None:
    """The checkpoint's state. None if there is none, or if it is damaged."""
    try:
        with open_regular(path) as file:
            state: State = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError, ValueError):
        return None
    return state


@contextmanager
def of_this_model(path: Path) -> Iterator[None]:
    """While a checkpoint is loaded in this block: reports one that does not fit the model."""
    try:
        yield
    except (RuntimeError, ValueError, TypeError, AttributeError, KeyError) as problem:
        lacks = "it lacks " if isinstance(problem, KeyError) else ""
        raise EnvironmentProblem(
            f"The checkpoint {path} does not fit this model: {lacks}{problem}.",
            "It is of another model or of another version of vramcast: begin again with --force, "
            "or choose another folder with --out.",
        ) from None
