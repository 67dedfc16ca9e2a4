"""Batches that a thread makes ahead of the training step, and how long the step waited for them."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable

import torch
from torch import Tensor

from vramcast.benching.data import Bytes

NUM_AHEAD = 4


class Batches:
    """The batches of the steps from `first_step` on, in their order, on the device."""

    def __init__(self, make: Callable[[int], Bytes], first_step: int, device: torch.device) -> None:
        self._make, self._step, self._device = make, first_step, device
        self._ready: queue.Queue[Tensor | BaseException] = queue.Queue(NUM_AHEAD)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._fill, daemon=True)
        self.wait_seconds = 0.0

    def __enter__(self) -> Batches:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        with contextlib.suppress(queue.Empty):
            while True:  # room for what the thread may be waiting to put
                self._ready.get_nowait()
        self._thread.join()

    def next(self) -> Tensor:
        """Windows of bytes as the tokens that an embedding takes."""
        started = time.perf_counter()
        batch = self._ready.get()
        self.wait_seconds += time.perf_counter() - started
        if isinstance(batch, BaseException):
            raise batch
        # Bytes are an eighth of the tokens to copy, and a copy from pinned memory blocks nothing.
        # torch reuses the pinned buffer only once the copy is done.
        return batch.to(self._device, non_blocking=True).long()

    def _fill(self) -> None:
        while not self._stopped.is_set():
            item = self._next_item()
            self._ready.put(item)
            if isinstance(item, BaseException):
                return

    def _next_item(self) -> Tensor | BaseException:
        try:
            batch = torch.from_numpy(self._make(self._step))
            self._step += 1
            return batch.pin_memory() if self._device.type == "cuda" else batch
        except BaseException as problem:  # it is raised where the batch is wanted
            return problem
