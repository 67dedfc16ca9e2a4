"""A memory of slots that is read by gathering and written by adding, in two equivalent forms."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor


class Ring(Protocol):
    """Slots are numbers [batch, k], different ones within a row; values [batch, k, width]."""

    def read(self, slots: Tensor) -> Tensor: ...

    def read_last(self, slots: Tensor) -> Tensor: ...

    def write(self, slots: Tensor, values: Tensor) -> None: ...


def _as_index(slots: Tensor, width: int) -> Tensor:
    return slots.unsqueeze(-1).expand(-1, -1, width)


class DenseRing:
    """Every write makes a new memory.

    Autograd keeps the old ones, because the gradient of a gather asks for what it gathered from.
    """

    def __init__(self, memory: Tensor) -> None:
        self.memory = memory

    def read(self, slots: Tensor) -> Tensor:
        return self.memory.gather(1, _as_index(slots, self.memory.shape[-1]))

    read_last = read

    def write(self, slots: Tensor, values: Tensor) -> None:
        self.memory = self.memory.scatter_add(1, _as_index(slots, self.memory.shape[-1]), values)


class SparseRing:
    """One memory, written in place; in backward one gradient of the same size, added to in place.

    The gradient of a read adds to the slots read; the gradient of a write is what has come together
    in the slots written. That is right only if backward goes through reads and writes in exactly
    the opposite order, so each hands a number, `turn`, to the next.
    """

    def __init__(self, memory: Tensor) -> None:
        # What backward needs is an object of its own: it must not lead back to `turn`, which leads
        # to the whole graph.
        self.shared = _Shared(memory)
        self.turn = memory.new_zeros(())

    def read(self, slots: Tensor) -> Tensor:
        values, self.turn = _Read.apply(self.turn, slots, self.shared, False)
        return values

    def read_last(self, slots: Tensor) -> Tensor:
        values, self.turn = _Read.apply(self.turn, slots, self.shared, True)
        self.shared.memory = None  # backward does not need what is in it
        return values

    def write(self, slots: Tensor, values: Tensor) -> None:
        self.turn = _Write.apply(self.turn, slots, values, self.shared)


class _Shared:
    def __init__(self, memory: Tensor) -> None:
        self.memory: Tensor | None = memory
        self.gradient: Tensor | None = None


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, turn: Tensor, slots: Tensor, shared: _Shared, last: bool
    ) -> tuple[Tensor, Tensor]:
        memory = shared.memory
        assert memory is not None, "nothing is read after the last read"
        ctx.save_for_backward(slots)
        ctx.shared, ctx.shape_if_last = shared, memory.shape if last else None
        return memory.gather(1, _as_index(slots, memory.shape[-1])), turn.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        grad_values, grad_turn = grads
        (slots,) = ctx.saved_tensors
        if ctx.shape_if_last is not None:  # backward begins here
            ctx.shared.gradient = grad_values.new_zeros(ctx.shape_if_last)
        ctx.shared.gradient.scatter_add_(1, _as_index(slots, grad_values.shape[-1]), grad_values)
        return grad_turn, None, None, None


class _Write(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, turn: Tensor, slots: Tensor, values: Tensor, shared: _Shared) -> Tensor:
        assert shared.memory is not None, "nothing is written after the last read"
        ctx.save_for_backward(slots)
        ctx.shared = shared
        shared.memory.scatter_add_(1, _as_index(slots, values.shape[-1]), values)
        return turn.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, Tensor, None]:
        (slots,) = ctx.saved_tensors
        gradient = ctx.shared.gradient
        return grads[0], None, gradient.gather(1, _as_index(slots, gradient.shape[-1])), None
