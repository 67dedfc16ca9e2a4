"""Whether the steps of a program have come to take what they will take."""

from typing import Protocol

from vramcast.programs.held_bytes import CLEARLY_MORE


class Memory(Protocol):
    """The memory of the GPU, in bytes."""

    def allocated_bytes(self) -> int: ...

    def peak_allocated_bytes(self) -> int: ...


class Settling:
    def __init__(self) -> None:
        self._num_settled = 0  # steps that took no more than the one before
        self._last_growth = 0  # the last step that took clearly more
        self._last = (-1, -1)

    def step_ended(self, number: int, memory: Memory) -> None:
        now = memory.allocated_bytes(), memory.peak_allocated_bytes()
        pairs = [*zip(now, self._last, strict=True)]
        self._num_settled = self._num_settled + 1 if all(a <= b for a, b in pairs) else 0
        if any(a > CLEARLY_MORE * b for a, b in pairs):
            self._last_growth = number
        self._last = now

    @property
    def is_settled(self) -> bool:
        """After the second step, which has the optimizer's state beside all else, steps grow where
        batches do. With lengths that grow every few steps the next growth may come as late."""
        return self._num_settled >= max(1, self._last_growth - 1)
