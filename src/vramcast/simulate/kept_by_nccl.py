"""Tensors of collectives that torch's process group of NCCL keeps.

An asynchronous collective runs on a stream of its own, so the group keeps its tensors until the
program waits for it. DistributedDataParallel and communication hooks wait for a future instead:
then a thread of the group notices the end, and the next collective lets the tensors go.
"""

import math
from dataclasses import dataclass
from typing import Any

from vramcast.simulate.elapsed import Elapsed

# kWatchdogThreadSleepMillis of ProcessGroupNCCL.cpp: on average, the end of a collective is noticed
# after half of it.
LOOKS_EVERY_SECONDS = 0.1
USUALLY, AT_ONCE, AT_THE_LATEST = LOOKS_EVERY_SECONDS / 2, -math.inf, LOOKS_EVERY_SECONDS
# references to a storage that only one tensor has: that tensor's, and that of the object we ask
# with
ONE_HOLDER = 2


@dataclass
class Shelf:
    tensors: list[Any]
    ends_seconds: float  # when the collective ends, so that the GPU no longer needs them

    def clear(self) -> None:
        self.tensors.clear()


class KeptByNccl:
    def __init__(self, elapsed: Elapsed) -> None:
        self._elapsed = elapsed
        self._shelves: list[Shelf] = []
        self.noticed_after_seconds = USUALLY
        # the group was the last to hold a tensor, so it matters when it lets go
        self.was_last = False

    def clear(self) -> None:
        self._shelves.clear()
        self._elapsed.clear()
        self.was_last = False

    def keep(self, tensors: list[Any]) -> Shelf:
        self._elapsed.look()
        shelf = Shelf(tensors, max(self._elapsed.host_seconds, self._elapsed.device_seconds))
        self._shelves.append(shelf)
        return shelf

    def let_go(self, *, waits: bool = False) -> None:
        """A new collective releases the tensors of those whose end was noticed. `waits`: the host
        has waited for the GPU before it."""
        if not self._shelves:
            return
        self._elapsed.look()
        if waits:
            self._elapsed.wait()
        now = self._elapsed.host_seconds
        noticed_until = now - self.noticed_after_seconds
        kept = []
        for shelf in self._shelves:
            self.was_last = self.was_last or any(map(_is_last, shelf.tensors))
            if shelf.ends_seconds <= noticed_until:
                shelf.clear()
            elif shelf.tensors:
                kept.append(shelf)
        self._shelves = kept


def _is_last(tensor: Any) -> bool:
    """Whether nothing else holds this tensor's memory."""
    import torch  # imported here, because the simulated device must be loaded before torch

    return int(torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)) <= ONE_HOLDER
