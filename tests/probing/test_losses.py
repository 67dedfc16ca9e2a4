"""The loss that a step gives back, whatever it is, without making the host wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from vramcast.probing import on_gpu
from vramcast.probing.facts import Reporter


class Spread:
    """As a DTensor: torch copies none into a plain tensor."""

    def to_local(self) -> torch.Tensor:
        return torch.tensor(0.5)


@pytest.mark.parametrize("loss", [torch.tensor(0.5), torch.tensor([[0.5]]), Spread(), 0.5])
def test_a_loss_may_be_a_tensor_or_a_part_of_one_that_is_spread_over_gpus(
    loss: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make: Callable[..., torch.Tensor] = torch.empty
    monkeypatch.setattr(torch, "empty", lambda size, dtype, pin_memory: make(size, dtype=dtype))
    assert on_gpu.Clock(Reporter(lambda _: None), 3)._copy(loss)() == 0.5
