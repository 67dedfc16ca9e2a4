"""Batches that a thread makes ahead of the training step, and how long the step waited for them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import count

import torch
from torch import Tensor

from vramcast.benching.data import Bytes

NUM_AHEAD = 4


class Batches(AbstractContextManager["Batches"]):
    """The batches of the steps from `first_step` on, in their order, on the device."""

    def __init__(self, make: Callable[[int], Bytes], first_step: int, device: torch.device) -> None:
        self._make, self._device = make, device
        self._thread, self._steps = ThreadPoolExecutor(1), count(first_step)
        self._ready: deque[Future[Tensor]] = deque()
        self.wait_seconds = 0.0

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    def next(self) -> Tensor:
        """Windows of bytes as the tokens that an embedding takes."""
        while len(self._ready) <= NUM_AHEAD:
            self._ready.append(self._thread.submit(self._made, next(self._steps)))
        started = time.perf_counter()
        batch = self._ready.popleft().result()
        self.wait_seconds += time.perf_counter() - started
        # Bytes are an eighth of the tokens to copy, and a copy from pinned memory blocks nothing.
        # torch reuses the pinned buffer only once the copy is done.
        return batch.to(self._device, non_blocking=True).long()

    def _made(self, step: int) -> Tensor:
        batch = torch.from_numpy(self._make(step))
        return batch.pin_memory() if self._device.type == "cuda" else batch
