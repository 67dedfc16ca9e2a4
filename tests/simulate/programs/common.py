"""What the programs share: short names for inputs, and a training step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

W = 32  # the usual width


def r(*shape: int, **options: Any) -> Tensor:
    return torch.randn(*shape, device="cuda", **options)


def ri(high: int, *shape: int) -> Tensor:
    return torch.randint(0, high, shape, device="cuda")


def train(
    model: nn.Module,
    make_loss: Callable[[Any], Tensor],
    optimizer: Callable[..., Any] = torch.optim.AdamW,
) -> Callable[[], Tensor]:
    """Forward, backward, update."""
    model = model.cuda()
    update = optimizer([p for p in model.parameters() if p.requires_grad], lr=1e-3)

    def step() -> Tensor:
        update.zero_grad()
        loss = make_loss(model)
        loss.backward()
        update.step()
        return loss

    return step
