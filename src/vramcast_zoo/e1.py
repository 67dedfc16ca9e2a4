"""E1, a gated Elman network (document 002).

    [x̃, z] = W_in u                          d -> 2i, i = expansion · d
    x = silu(x̃)
    h_t = tanh(W_x x_t + W_h h_{t-1} + b)    h_0 = 0; W_h spectrally normalised, see ladder.py
    y_t = W_out (h_t ⊙ silu(z_t))            i -> d

Parameters of a layer: 3di + 2i² + i.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from vramcast_zoo.fused import Recurrence
from vramcast_zoo.ladder import LadderLM, SpectrallyNormalised, by_parts
from vramcast_zoo.language_model import check_positive
from vramcast_zoo.recurrence import elman
from vramcast_zoo.training import workload


class E1Layer(nn.Module):
    def __init__(self, dim: int, expansion: float = 1.0, recurrence: Recurrence = "auto") -> None:
        super().__init__()
        inner = int(dim * expansion)
        check_positive(inner=inner)
        self.inner, self.recurrence = inner, recurrence
        self.project_in = nn.Linear(dim, 2 * inner, bias=False)
        self.drive = nn.Linear(inner, inner)  # W_x and b
        self.recurrent = SpectrallyNormalised(inner)  # W_h
        self.project_out = nn.Linear(inner, dim, bias=False)
        for linear in (self.project_in, self.drive, self.project_out):
            nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(self.drive.bias)

    def forward(self, u: Tensor) -> Tensor:
        x, z = by_parts(u, self.project_in.weight, self.inner, self.inner)
        states = elman(self.drive(F.silu(x)), self.recurrent(), self.recurrence)
        return self.project_out(states * F.silu(z))


def make_model(
    *,
    dim: int = 512,
    depth: int = 21,
    expansion: float = 1.0,
    checkpointing: bool = False,
    recurrence: Recurrence = "auto",
) -> LadderLM:
    """E1, a gated Elman network on bytes."""
    return LadderLM(
        dim, depth, lambda: E1Layer(dim, expansion, recurrence), checkpointing=checkpointing
    )


build = workload(make_model)
