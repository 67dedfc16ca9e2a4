"""Mamba-2 (document 002's baseline), in the same wrapper as the Elman networks.

    [z, x, B, C, dt] = W_in u                     d -> 2i + 2n + heads, i = 2d, heads of 64 channels, state n
    (x, B, C) <- silu(depthwise causal convolution over 4 moments)
    dt = softplus(dt + bias),  A = -exp(A_log)    one a head
    S_t = exp(dt_t A) S_{t-1} + dt_t x_t B_tᵀ     a 64 × n matrix a head; B and C are shared by the heads
    y_t = S_t C_t + D x_t
    out = W_out (RMSNorm(y ⊙ silu(z)))

Parameters of a layer: d(2i + 2n + heads) + 5(i + 2n) + 3 heads + i + id.

`ssd` computes the recurrence a chunk at a time: inside a chunk as a product of matrices, from chunk to chunk through the states.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vramcast_zoo.ladder import LadderLM
from vramcast_zoo.language_model import check_divides, check_positive
from vramcast_zoo.training import workload

HEAD_DIM = 64
CHUNK = 64


def ssd(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, chunk: int = CHUNK) -> Tensor:
    """y_t = C_t S_t for x [batch, time, head, channel], dt [batch, time, head], a [head], b and c [batch, time, state].

    Decays are powers of e at most 0, so nothing can overflow: exp(cum_t - cum_s) is formed as one difference with s <= t.
    """
    length = x.shape[1]
    chunk = min(chunk, length)
    short = -length % chunk
    if short:  # moments with dt = 0 change nothing: no decay, no input
        x, dt, b, c = (F.pad(t, (0, 0) * (t.dim() - 2) + (0, short)) for t in (x, dt, b, c))
    x, dt, b, c = (t.unflatten(1, (-1, chunk)) for t in (x, dt, b, c))
    cum = (dt * a).cumsum(2)  # [batch, chunk, time, head], never rising
    x = x * dt.unsqueeze(-1).to(x.dtype)
    inside = torch.einsum("kzhts,kzshp->kzthp", _scores(b, c, cum).to(x.dtype), x)
    before = torch.einsum("kztn,kzhpn->kzthp", c, _states_before(x, b, cum).to(c.dtype))
    y = inside + before * cum.exp().unsqueeze(-1).to(x.dtype)
    return y.flatten(1, 2)[:, :length]


def _scores(b: Tensor, c: Tensor, cum: Tensor) -> Tensor:
    """(C_t · B_s) exp(cum_t - cum_s) for s <= t, else 0: [batch, chunk, head, t, s]."""
    by_head = cum.transpose(2, 3)
    gap = by_head.unsqueeze(-1) - by_head.unsqueeze(-2)
    future = torch.ones(gap.shape[-2:], dtype=torch.bool, device=gap.device).triu(1)
    return torch.einsum("kztn,kzsn->kzts", c, b).unsqueeze(2) * gap.masked_fill(future, -math.inf).exp()


def _states_before(x: Tensor, b: Tensor, cum: Tensor) -> Tensor:
    """The state at the start of every chunk: [batch, chunk, head, channel, state]."""
    to_end = (cum[:, :, -1:] - cum).exp().unsqueeze(-1)
    added = torch.einsum("kzsn,kzshp->kzhpn", b, x * to_end.to(x.dtype))
    decay = cum[:, :, -1].exp()[..., None, None]
    state = torch.zeros_like(added[:, 0], dtype=cum.dtype)
    states = []
    for added_z, decay_z in zip(added.unbind(1), decay.unbind(1)):
        states.append(state)
        state = state * decay_z + added_z
    return torch.stack(states, 1)


class Mamba2Layer(nn.Module):
    def __init__(self, dim: int, state: int = 64) -> None:
        super().__init__()
        inner = 2 * dim
        check_positive(dim=dim, state=state)
        check_divides("the head's width", HEAD_DIM, "the inner width 2·dim", inner)
        self.inner, self.state, self.heads = inner, state, inner // HEAD_DIM
        mixed = inner + 2 * state
        self.project_in = nn.Linear(dim, inner + mixed + self.heads, bias=False)
        self.conv = nn.Conv1d(mixed, mixed, 4, groups=mixed, padding=3)
        self.dt_bias = nn.Parameter(_inverse_softplus(torch.empty(self.heads).uniform_(math.log(1e-3), math.log(1e-1)).exp()))
        self.a_log = nn.Parameter(torch.empty(self.heads).uniform_(1, 16).log())
        self.skip = nn.Parameter(torch.ones(self.heads))  # D
        self.norm = nn.RMSNorm(inner, eps=1e-5)
        self.project_out = nn.Linear(inner, dim, bias=False)

    def forward(self, u: Tensor) -> Tensor:
        z, mixed, dt = self.project_in(u).split((self.inner, self.inner + 2 * self.state, self.heads), dim=-1)
        mixed = F.silu(self.conv(mixed.transpose(1, 2))[..., : u.shape[1]]).transpose(1, 2)
        x, b, c = mixed.split((self.inner, self.state, self.state), dim=-1)
        x = x.unflatten(-1, (self.heads, HEAD_DIM))
        # Decays are products of hundreds of factors near one: float32 at least.
        wide = torch.promote_types(dt.dtype, torch.float32)
        dt = F.softplus(dt.to(wide) + self.dt_bias)
        # The matrices inside the chunks are large and quickly made again: backward keeps only what goes into the scan.
        scanned = checkpoint(ssd, x, dt, -self.a_log.to(wide).exp(), b, c, use_reentrant=False)
        y = scanned + x * self.skip.to(x.dtype).unsqueeze(-1)
        return self.project_out(self.norm(y.flatten(-2) * F.silu(z)))


def _inverse_softplus(y: Tensor) -> Tensor:
    return y + torch.log(-torch.expm1(-y))


def make_model(*, dim: int = 672, depth: int = 18, state: int = 64, checkpointing: bool = False) -> LadderLM:
    """Mamba-2 on bytes."""
    return LadderLM(dim, depth, lambda: Mamba2Layer(dim, state), time_first=False, checkpointing=checkpointing)


build = workload(make_model)
