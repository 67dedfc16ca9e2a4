"""What is allocated when the backward pass of a step begins, step by step."""

import itertools
from collections.abc import Iterable
from typing import Any

CLEARLY_MORE = 1.01


class HeldBytes:
    def __init__(self) -> None:
        self._by_step: dict[int, int] = {}
        self._first_state_bytes = 0

    def begin(self, step: int, allocated_bytes: int, optimizers: Iterable[Any]) -> None:
        if not self._by_step:
            self._first_state_bytes = _state_bytes(optimizers)
        self._by_step.setdefault(step, allocated_bytes)

    def values(self) -> list[int]:
        return list(self._by_step.values())

    def first_was_most(self, optimizers: Iterable[Any]) -> bool:
        """Such as a step with a penalty that is added to every sixteenth loss. It comes again when
        there is optimizer state beside what it holds. Unknown without a GPU, where all is 0."""
        first, *others = self.values() or [0]
        if len(others) < 2 or not any(others):
            return False
        first += _state_bytes(optimizers) - self._first_state_bytes
        # the last step, whose time is told, is to be one of those that are usual
        return first > CLEARLY_MORE * max(others[:-1])


def _state_bytes(optimizers: Iterable[Any]) -> int:
    states = [state.values() for one in optimizers for state in one.state.values()]
    found = {id(each): each for each in itertools.chain(*states) if hasattr(each, "is_cuda")}
    mine = (getattr(each, "_local_tensor", each) for each in found.values())
    return sum(each.nbytes for each in mine if each.is_cuda)
