"""What is asked of a known model, and what the zoo's training step gets of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vramcast_zoo.known.adapters import Quantize

Batch = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Options:
    """The knobs that change the model or its batches."""

    task: str
    sizes: Mapping[str, int]
    weights: torch.dtype
    inputs: torch.dtype
    attention: str
    quantize: Quantize
    prepare_kbit: bool
    checkpointing: bool
    liger: bool
    packing: bool
    lora: int
    lora_targets: str
    lora_in_fp32: bool
    device: str
    is_sharded: bool = False  # each GPU gets a part of every weight


class Trained(nn.Module):
    """A model and its batches, as the zoo's training step asks for them."""

    longest: int | None = None

    def __init__(self, model: nn.Module, make_batch: Callable[[], Batch]) -> None:
        super().__init__()
        self.model, self._make_batch = model, make_batch
        self.names: tuple[str, ...] = ()

    def random_batch(self, *_: Any) -> tuple[Tensor, ...]:
        batch = self._make_batch()
        self.names = tuple(batch)
        return tuple(batch.values())

    def named(self, batch: tuple[Tensor, ...]) -> Batch:
        return dict(zip(self.names, batch, strict=True))

    def loss(self, *batch: Tensor) -> Tensor:
        found: Tensor = self.model(**self.named(batch)).loss
        return found
