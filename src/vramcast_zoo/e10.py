"""E10, an Elman network with memories that fade at different rates (document 000).

    [x̃, z_h, z_1 .. z_k] = W_in u                 d -> (2 + k)i, i = expansion · d
    h_t = tanh(W_x silu(x̃_t) + W_h h_{t-1} + b)   as in E1; W_h spectrally normalised
    a_j = sigmoid(logit_j)                        learned, one for each bank and channel
    m_{j,t} = a_j ⊙ m_{j,t-1} + (1 - a_j) ⊙ h_t   m_0 = 0
    y_t = W_out (h_t ⊙ silu(z_{h,t}) + Σ_j m_{j,t} ⊙ silu(z_{j,t}))

The a_j start between 0.8 and 0.99, time constants of 5 to 100 steps. Parameters of a layer:
(3 + k)di + 2i² + (1 + k)i.

For backward a layer keeps its input, the projections (2 + k), silu(x̃), h and the sum before W_out;
banks and gates are computed again.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vramcast_zoo.fused import Recurrence
from vramcast_zoo.ladder import LadderLM, SpectrallyNormalised, by_parts
from vramcast_zoo.language_model import check_positive
from vramcast_zoo.recompute import recomputed
from vramcast_zoo.recurrence import elman, ema_banks
from vramcast_zoo.training import workload

SLOWEST, FASTEST = 0.99, 0.8


class E10Layer(nn.Module):
    def __init__(
        self, dim: int, expansion: float = 1.0, banks: int = 4, recurrence: Recurrence = "auto"
    ) -> None:
        super().__init__()
        inner = int(dim * expansion)
        check_positive(inner=inner, banks=banks)
        self.inner, self.banks, self.recurrence = inner, banks, recurrence
        self.project_in = nn.Linear(dim, (2 + banks) * inner, bias=False)
        self.drive = nn.Linear(inner, inner)  # W_x and b
        self.recurrent = SpectrallyNormalised(inner)  # W_h
        self.decay_logit = nn.Parameter(
            torch.logit(torch.linspace(FASTEST, SLOWEST, banks)).unsqueeze(1)
            + 0.1 * torch.randn(banks, inner)
        )
        self.project_out = nn.Linear(inner, dim, bias=False)
        for linear in (self.project_in, self.drive, self.project_out):
            nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(self.drive.bias)

    def forward(self, u: Tensor) -> Tensor:
        x, gate, gates = by_parts(
            u, self.project_in.weight, self.inner, self.inner, self.banks * self.inner
        )
        states = elman(self.drive(F.silu(x)), self.recurrent(), self.recurrence)
        return self.project_out(recomputed(self.read, states, gate, gates, self.decay_logit))

    def read(self, states: Tensor, gate: Tensor, gates: Tensor, decay_logit: Tensor) -> Tensor:
        """The state and its banks, each through its gate."""
        logit = decay_logit.to(
            torch.promote_types(decay_logit.dtype, torch.float32)
        )  # 0.99 is no bfloat16
        memory = ema_banks(states, torch.sigmoid(logit), self.recurrence)
        return states * F.silu(gate) + (memory * F.silu(gates).view_as(memory)).sum(-2)


def make_model(
    *,
    dim: int = 960,
    depth: int = 6,
    expansion: float = 1.0,
    banks: int = 4,
    checkpointing: bool = False,
    checkpoint_every: int = 1,
    stochastic_depth: float = 0.0,
    loss_chunks: int = 1,
    recurrence: Recurrence = "auto",
) -> LadderLM:
    """E10, an Elman network on bytes with memory banks that fade at different rates."""
    return LadderLM(
        dim,
        depth,
        lambda: E10Layer(dim, expansion, banks, recurrence),
        checkpointing=checkpointing,
        checkpoint_every=checkpoint_every,
        stochastic_depth=stochastic_depth,
        loss_chunks=loss_chunks,
    )


build = workload(make_model)
