"""E5, a low-rank Elman network (document 002).

The state is as wide as the model; there are no projections in or out.

    h_t = tanh(U_h V_h h_{t-1} + U_x V_x u_t + b)    h_0 = 0
    y_t = h_t ⊙ silu(U_z V_z u_t)

U: d × r, V: r × d, orthogonal times 0.5. Parameters of a layer: 6dr + d. What does not depend on
the state is computed for all t at once.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vramcast_zoo.fused import Recurrence
from vramcast_zoo.ladder import LadderLM, aligned
from vramcast_zoo.recurrence import low_rank_elman
from vramcast_zoo.training import workload


class LowRank(nn.Module):
    """x -> U V x."""

    def __init__(self, dim: int, rank: int) -> None:
        super().__init__()
        self.up, self.down = (
            nn.Parameter(torch.empty(dim, rank)),
            nn.Parameter(torch.empty(rank, dim)),
        )
        nn.init.orthogonal_(self.up, gain=0.5)
        nn.init.orthogonal_(self.down, gain=0.5)

    def factors(self) -> tuple[Tensor, Tensor]:
        """U and V with zeros up to a rank that tensor cores like: the same product."""
        return aligned(self.up, 1), aligned(self.down, 0)

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        up, down = self.factors()
        return F.linear(F.linear(x, down), up, bias)


class E5Layer(nn.Module):
    def __init__(self, dim: int, rank: int, recurrence: Recurrence = "auto") -> None:
        super().__init__()
        if not 1 <= rank <= dim:
            raise ValueError(f"rank={rank} is not between 1 and dim={dim}")
        self.recurrent, self.input, self.gate = (
            LowRank(dim, rank),
            LowRank(dim, rank),
            LowRank(dim, rank),
        )
        self.recurrence = recurrence
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, u: Tensor) -> Tensor:
        states = low_rank_elman(
            self.input(u, self.bias), *self.recurrent.factors(), self.recurrence
        )
        return states * F.silu(self.gate(u))


def make_model(
    *,
    dim: int = 1536,
    depth: int = 20,
    rank: int = 270,
    checkpointing: bool = False,
    recurrence: Recurrence = "auto",
) -> LadderLM:
    """E5, a low-rank Elman network on bytes."""
    return LadderLM(dim, depth, lambda: E5Layer(dim, rank, recurrence), checkpointing=checkpointing)


build = workload(make_model)
