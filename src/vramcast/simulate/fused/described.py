"""What a kernel is given, with tensors as what a block needs to know of them."""

from collections.abc import Callable
from typing import Any

import torch

from vramcast.simulate.fused.values import Tensor


class Describer:
    """`length_of` says how many elements of a tensor's memory a kernel may reach, `constant_of`
    what anything else is to a kernel."""

    def __init__(
        self, length_of: Callable[[torch.Tensor], int], constant_of: Callable[[Any], Any]
    ) -> None:
        self._length_of, self._constant_of = length_of, constant_of
        self._numbers: dict[int, int] = {}  # by address: the same memory has one number
        self.tensors: list[torch.Tensor] = []
        self.described: list[Tensor] = []

    def describe(self, given: Any) -> Any:
        if isinstance(given, tuple):
            return tuple(map(self.describe, given))
        if not isinstance(given, torch.Tensor):
            return self._constant_of(given)
        number = self._numbers.setdefault(given.data_ptr(), len(self._numbers))
        described = Tensor(self._length_of(given), given.element_size(), number)
        self.tensors.append(given)
        self.described.append(described)
        return described


def extent_of(tensor: torch.Tensor) -> int:
    """From its first element to its last, with those between that are not its own."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((size - 1) * step for size, step in steps) if tensor.numel() else 0
