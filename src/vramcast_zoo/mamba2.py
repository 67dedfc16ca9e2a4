"""Mamba-2 (document 002's baseline), in the same wrapper as the Elman networks.

    [z, x, B, C, dt] = W_in u                     d -> 2i + 2n + heads; i = 2d, 64 channels a head
    (x, B, C) <- silu(depthwise causal convolution over 4 moments)
    dt = softplus(dt + bias),  A = -exp(A_log)    one a head
    S_t = exp(dt_t A) S_{t-1} + dt_t x_t B_tᵀ     a 64 × n matrix a head; all heads share B and C
    y_t = S_t C_t + D x_t
    out = W_out (RMSNorm(y ⊙ silu(z)))

Parameters of a layer: d(2i + 2n + heads) + 5(i + 2n) + 3 heads + i + id.

`ssd` computes the recurrence a chunk at a time: inside a chunk as a product of matrices, from chunk
to chunk through the states. Halves on a GPU go through the operators of scan.py instead.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vramcast_zoo import fused, scan
from vramcast_zoo.fused import Recurrence
from vramcast_zoo.ladder import LadderLM, aligned
from vramcast_zoo.language_model import check_divides, check_positive
from vramcast_zoo.training import workload

HEAD_DIM = 64
CHUNK = 64


def ssd(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, chunk: int = CHUNK) -> Tensor:
    """y_t = C_t S_t for x [batch, time, head, channel], dt [batch, time, head], a [head], b and c
    [batch, time, state].

    Decays are powers of e at most 0, so nothing can overflow: exp(cum_t - cum_s) is formed as one
    difference with s <= t.
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
    return (
        torch.einsum("kztn,kzsn->kzts", c, b).unsqueeze(2)
        * gap.masked_fill(future, -math.inf).exp()
    )


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
    def __init__(self, dim: int, state: int = 64, recurrence: Recurrence = "auto") -> None:
        super().__init__()
        inner = 2 * dim
        check_positive(dim=dim, state=state)
        check_divides("the head's width", HEAD_DIM, "the inner width 2·dim", inner)
        self.inner, self.state, self.heads = inner, state, inner // HEAD_DIM
        self.mixed, self.recurrence = inner + 2 * state, recurrence
        self.project_in = nn.Linear(dim, inner + self.mixed + self.heads, bias=False)
        self.conv = nn.Conv1d(
            self.mixed, self.mixed, scan.TAPS, groups=self.mixed, padding=scan.TAPS - 1
        )
        self.dt_bias = nn.Parameter(
            _inverse_softplus(
                torch.empty(self.heads).uniform_(math.log(1e-3), math.log(1e-1)).exp()
            )
        )
        self.a_log = nn.Parameter(torch.empty(self.heads).uniform_(1, 16).log())
        self.skip = nn.Parameter(torch.ones(self.heads))  # D
        self.norm = nn.RMSNorm(inner, eps=1e-5)
        self.project_out = nn.Linear(inner, dim, bias=False)

    def forward(self, u: Tensor) -> Tensor:
        z_weight, rest_weight = self.project_in.weight.split((self.inner, self.mixed + self.heads))
        z, rest = F.linear(u, z_weight), F.linear(u, aligned(rest_weight, 0))
        mixed, dt = rest[..., : self.mixed], rest[..., self.mixed : self.mixed + self.heads]
        # Decays are products of hundreds of factors near one: float32 at least.
        wide = torch.promote_types(dt.dtype, torch.float32)
        dt = F.softplus(dt.to(wide) + self.dt_bias)
        fast = fused.wanted(self.recurrence, mixed) and scan.fits(self.heads, mixed, self.state)
        y = (self.scan_fused if fast else self.scan_plain)(mixed, dt, -self.a_log.to(wide).exp())
        return self.project_out(self.norm(y * F.silu(z)))

    def scan_fused(self, mixed: Tensor, dt: Tensor, a: Tensor) -> Tensor:
        assert self.conv.bias is not None
        convolved = scan.causal_conv(
            mixed, self.conv.weight.to(mixed.dtype), self.conv.bias.to(mixed.dtype)
        )
        return scan.ssd(convolved, dt, a, self.skip.to(a.dtype), self.state)

    def scan_plain(self, mixed: Tensor, dt: Tensor, a: Tensor) -> Tensor:
        mixed = F.silu(self.conv(mixed.transpose(1, 2))[..., : mixed.shape[1]]).transpose(1, 2)
        x, b, c = mixed.split((self.inner, self.state, self.state), dim=-1)
        x = x.unflatten(-1, (self.heads, HEAD_DIM))
        # The matrices inside the chunks are large and quickly made again: backward keeps only what
        # goes into the scan.
        scanned = checkpoint(ssd, x, dt, a, b, c, use_reentrant=False)
        return (scanned + x * self.skip.to(x.dtype).unsqueeze(-1)).flatten(-2)


def _inverse_softplus(y: Tensor) -> Tensor:
    return y + torch.log(-torch.expm1(-y))


def make_model(
    *,
    dim: int = 672,
    depth: int = 18,
    state: int = 64,
    checkpointing: bool = False,
    recurrence: Recurrence = "auto",
) -> LadderLM:
    """Mamba-2 on bytes."""
    return LadderLM(
        dim,
        depth,
        lambda: Mamba2Layer(dim, state, recurrence),
        time_first=False,
        checkpointing=checkpointing,
    )


build = workload(make_model)
