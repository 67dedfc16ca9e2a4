"""Elleci (document 003): blocks of Mamba and of latent attention in turn, with 1.58-bit weights.

    x = E[tokens] + P[0..T)
    x <- x + Mixer(LayerNorm(x))       blocks 0, 2, .. mix by Mamba, blocks 1, 3, .. by attention
    x <- x + FFN(LayerNorm(x))
    logits = W_head LayerNorm(x)       a head of its own

BitLinear:
    x̂ = RMSNorm(x);  s = 127 / max|x̂| for each token;  q(x̂) = round(x̂ s) / s
    g = mean|W|;  q(W) = g clamp(round(W / g), -1, 1)
    y = q(x̂) q(W)ᵀ;  the gradient goes through q as if it were not there: v + stop(q(v) - v)
FFN:
    BitLinear(d -> 4d), gelu, BitLinear(4d -> d)
Attention, 16 heads of 128 channels:
    c = W_down x (128 + 32);  [k, v] = W_up c[:128];  r = c[128:]
    the last 32 channels of a head carry its position: RoPE(q) meets RoPE(k + r); all heads share r
Mamba:
    [u, z] = W_in x;  u <- silu(causal depthwise convolution over 4)
    [p, B, C] = W_x u;  dt = softplus(W_dt p + b) for each channel;  A = -exp(A_log) for each head
    S_t = exp(dt_t A) S_{t-1} + dt_t u_t B_tᵀ;  y_t = S_t C_t + D u_t
    out = W_out LayerNorm(y ⊙ silu(z))

Parameters at d = 2048 and 24 blocks: 1,355,075,776. The original's mistakes are not repeated: its
straight-through estimator had value and gradient exchanged, its scan amplified what is long past,
its targets were the inputs, and it computed r and the norm after the gate without using them.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vramcast_zoo import fused, scan, selective
from vramcast_zoo.attention import (
    Attention,
    causal_attention,
    join_heads,
    rotary_angles,
    rotate,
    split_heads,
)
from vramcast_zoo.fused import Recurrence
from vramcast_zoo.language_model import (
    LanguageModel,
    check_divides,
    check_length,
    check_positive,
    init_normal,
)
from vramcast_zoo.selective import selective_scan
from vramcast_zoo.training import workload

MAMBA_HEADS, STATE = 8, 16
LATENT, ROTARY, THETA = 128, 32, 10_000.0
HEAD_DIM = 128  # of attention, unless heads are given
THOUGHTS, ENOUGH_CHANGE = 4, 0.01
SLOW_SHARE, SLOW_SHARE_WEIGHT = 0.3, 0.01


# -------------------------------------------------------------------------------------- BitLinear
def straight_through(value: Tensor, quantised: Tensor) -> Tensor:
    """Forward the quantised value, backward the identity."""
    return value + (quantised - value).detach()


def quantise_activations(x: Tensor) -> Tensor:
    scale = 127 / x.abs().amax(-1, keepdim=True).clamp(min=1e-5)
    return (x * scale).round().clamp(-128, 127) / scale


def quantise_weights(weight: Tensor) -> Tensor:
    scale = weight.abs().mean().clamp(min=1e-5)
    return (weight / scale).round().clamp(-1, 1) * scale


class BitLinear(nn.Linear):
    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__(width_in, width_out, bias=False)
        self.norm = nn.RMSNorm(width_in, eps=1e-5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        return F.linear(
            straight_through(x, quantise_activations(x)),
            straight_through(self.weight, quantise_weights(self.weight)),
        )


# ----------------------------------------------------------------------------------------- mixers
class LatentAttention(nn.Module):
    def __init__(self, dim: int, heads: int, attention: Attention) -> None:
        super().__init__()
        check_divides("heads", heads, "dim", dim)
        if dim // heads < ROTARY:
            raise ValueError(
                f"heads={heads} leave {dim // heads} of dim={dim} channels a head: "
                f"positions alone take {ROTARY}"
            )
        self.heads, self.attention = heads, attention
        self.query, self.down = (
            nn.Linear(dim, dim, bias=False),
            nn.Linear(dim, LATENT + ROTARY, bias=False),
        )
        self.up, self.out = nn.Linear(LATENT, 2 * dim, bias=False), nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        latent, shared = self.down(x).split((LATENT, ROTARY), dim=-1)
        key, value = self.up(latent).chunk(2, dim=-1)
        q, k, v = (split_heads(t, self.heads) for t in (self.query(x), key, value))
        cos, sin = rotary_angles(x.shape[1], ROTARY, THETA, x.device)
        q = _turn_last(q, q.new_zeros(()), cos, sin)
        k = _turn_last(k, shared.unsqueeze(1), cos, sin)
        return self.out(join_heads(causal_attention(q, k, v, self.attention)))


def _turn_last(x: Tensor, added: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    still, turning = x[..., :-ROTARY], x[..., -ROTARY:]
    return torch.cat((still, rotate(turning + added, cos, sin)), dim=-1)


class Mamba(nn.Module):
    def __init__(self, dim: int, recurrence: Recurrence = "auto") -> None:
        super().__init__()
        inner = 2 * dim
        check_divides("the number of Mamba heads", MAMBA_HEADS, "the inner width 2·dim", inner)
        self.inner, self.recurrence = inner, recurrence
        self.project_in = nn.Linear(dim, 2 * inner, bias=False)
        self.conv = nn.Conv1d(inner, inner, scan.TAPS, groups=inner, padding=scan.TAPS - 1)
        self.select = nn.Linear(inner, MAMBA_HEADS + 2 * STATE, bias=False)
        self.step = nn.Linear(MAMBA_HEADS, inner)
        self.a_log = nn.Parameter(torch.linspace(1, 16, MAMBA_HEADS).log())
        self.skip = nn.Parameter(torch.ones(MAMBA_HEADS))
        self.norm = nn.LayerNorm(inner)
        self.project_out = nn.Linear(inner, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        u, z = self.project_in(x).chunk(2, dim=-1)
        fast = fused.wanted(self.recurrence, u)
        u = self.convolved(u, fast)
        step, b, c = self.select(u).split((MAMBA_HEADS, STATE, STATE), dim=-1)
        # Decays are products of hundreds of factors near one: float32 at least.
        wide = torch.promote_types(u.dtype, torch.float32)
        dt = F.softplus(self.step(step).to(wide))
        a, skip = (
            p.repeat_interleave(self.inner // MAMBA_HEADS)
            for p in (-self.a_log.to(wide).exp(), self.skip.to(wide))
        )
        if fast:
            y = selective.scan(u, dt, a, b.contiguous(), c.contiguous(), skip)
        else:
            y = selective_scan(u, dt, a, b, c).to(u.dtype) + u * skip.to(u.dtype)
        return self.project_out(self.norm(y * F.silu(z)))

    def convolved(self, u: Tensor, fast: bool) -> Tensor:
        if not fast:
            return F.silu(self.conv(u.transpose(1, 2))[..., : u.shape[1]]).transpose(1, 2)
        assert self.conv.bias is not None
        return scan.causal_conv(u, self.conv.weight.to(u.dtype), self.conv.bias.to(u.dtype))


class Block(nn.Module):
    def __init__(self, dim: int, mixer: nn.Module) -> None:
        super().__init__()
        self.norm_1, self.mixer = nn.LayerNorm(dim), mixer
        self.norm_2, self.feed_forward = (
            nn.LayerNorm(dim),
            nn.Sequential(BitLinear(dim, 4 * dim), nn.GELU(), BitLinear(4 * dim, dim)),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mixer(self.norm_1(x))
        return x + self.feed_forward(self.norm_2(x))


# ------------------------------------------------------------------------------------------ model
class TwoPathRouter(nn.Module):
    """x <- p_slow · slow(x) + p_fast · fast(x).

    Two attention blocks, or one Mamba block up to four times, mixed token by token.

    It stands in front of the 24 blocks; the original's replaced them. `slow_share` is what the loss
    holds near 0.3.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        attention: Attention,
        recurrence: Recurrence,
        temperature: float = 1.0,
    ) -> None:
        super().__init__()
        self.temperature = temperature
        self.choose = nn.Sequential(nn.Linear(dim, 256), nn.GELU(), nn.Linear(256, 2))
        self.fast = nn.Sequential(
            *(Block(dim, LatentAttention(dim, heads, attention)) for _ in range(2))
        )
        self.slow = Block(dim, Mamba(dim, recurrence))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        share = (self.choose(x) / self.temperature).softmax(-1)
        slow_share, fast_share = share.unbind(-1)
        mixed = slow_share.unsqueeze(-1) * self.think(x) + fast_share.unsqueeze(-1) * self.fast(x)
        return mixed, slow_share.mean()

    def think(self, x: Tensor) -> Tensor:
        for _ in range(THOUGHTS):
            before, x = x, self.slow(x)
            if (x - before).abs().mean().item() < ENOUGH_CHANGE:
                break
        return x


class Elleci(LanguageModel):
    def __init__(
        self,
        *,
        dim: int = 2048,
        depth: int = 24,
        heads: int | None = None,
        vocabulary: int = 32_128,
        positions: int = 1024,
        router: bool = False,
        attention: Attention = "auto",
        recurrence: Recurrence = "auto",
        checkpointing: bool = True,
        checkpoint_every: int = 1,
        stochastic_depth: float = 0.0,
        loss_chunks: int = 1,
    ) -> None:
        super().__init__()
        check_positive(dim=dim, depth=depth, vocabulary=vocabulary, positions=positions)
        self.vocabulary, self.longest = vocabulary, positions
        self.set_options(
            checkpointing=checkpointing,
            checkpoint_every=checkpoint_every,
            stochastic_depth=stochastic_depth,
            loss_chunks=loss_chunks,
        )
        self.embedding, self.position = nn.Embedding(vocabulary, dim), nn.Embedding(positions, dim)
        heads = dim // HEAD_DIM if heads is None else heads
        self.router = TwoPathRouter(dim, heads, attention, recurrence) if router else None
        self.blocks = nn.ModuleList(
            Block(dim, LatentAttention(dim, heads, attention) if i % 2 else Mamba(dim, recurrence))
            for i in range(depth)
        )
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocabulary, bias=False)
        self.apply(init_normal)
        for module in self.modules():
            if isinstance(module, Mamba):
                # a first time step between 0.001 and 0.1: with zero bias all would be forgotten
                # within two positions
                nn.init.uniform_(
                    module.step.bias, math.log(math.expm1(1e-3)), math.log(math.expm1(1e-1))
                )

    def forward(self, tokens: Tensor) -> Tensor:
        return self.logits_and_slow_share(tokens)[0]

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        if self.loss_chunks > 1:
            features, slow_share = self.features_and_slow_share(tokens)
            loss = self.chunked_loss(features, targets)
        else:
            logits, slow_share = self.logits_and_slow_share(tokens)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return (
            loss
            if slow_share is None
            else loss + SLOW_SHARE_WEIGHT * (slow_share - SLOW_SHARE).square()
        )

    def logits_and_slow_share(self, tokens: Tensor) -> tuple[Tensor, Tensor | None]:
        features, slow_share = self.features_and_slow_share(tokens)
        return self.head(features), slow_share

    def features_and_slow_share(self, tokens: Tensor) -> tuple[Tensor, Tensor | None]:
        check_length(tokens.shape[1], self.longest)
        x = self.embedding(tokens) + self.position(
            torch.arange(tokens.shape[1], device=tokens.device)
        )
        slow_share = None
        if self.router is not None:
            x, slow_share = self.router(x)
        return self.norm(self.through_blocks(self.blocks, x)), slow_share

    def head_matrices(self) -> tuple[Tensor, ...]:
        return (self.head.weight,)


make_model = Elleci
build = workload(make_model, batch_size=2, seq_len=1024, precision="amp-bf16")
