"""The decoder block that Llama made common; Yxanul and the Llama-style baseline are built from it.

    x <- x + W_o attention(RoPE(W_q n), RoPE(W_k n), W_v n)     n = RMSNorm(x)
    x <- x + W_down (silu(W_gate n) ⊙ W_up n)                   n = RMSNorm(x)

No biases. `kv_heads` heads of keys and values serve all query heads, each a group of them (GQA).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from vramcast_zoo.attention import Attention, causal_attention, join_heads, rotate, split_heads
from vramcast_zoo.language_model import check_divides, check_positive, init_normal

NORM_EPS = 1e-5
MakeLinear = Callable[[int, int], nn.Linear]


def plain_linear(width_in: int, width_out: int) -> nn.Linear:
    return nn.Linear(width_in, width_out, bias=False)


class GroupedAttention(nn.Module):
    def __init__(
        self, dim: int, heads: int, kv_heads: int, attention: Attention, linear: MakeLinear
    ) -> None:
        super().__init__()
        check_divides("heads", heads, "dim", dim)
        check_divides("kv_heads", kv_heads, "heads", heads)
        check_divides("2 (rotary positions turn pairs of channels)", 2, "dim / heads", dim // heads)
        self.heads, self.kv_heads, self.attention = heads, kv_heads, attention
        kv_dim = dim // heads * kv_heads
        self.query, self.key_value, self.out = (
            linear(dim, dim),
            linear(dim, 2 * kv_dim),
            linear(dim, dim),
        )

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        key, value = self.key_value(x).chunk(2, dim=-1)
        q, k, v = (
            split_heads(self.query(x), self.heads),
            split_heads(key, self.kv_heads),
            split_heads(value, self.kv_heads),
        )
        return self.out(
            join_heads(
                causal_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, self.attention)
            )
        )


class SwiGLU(nn.Module):
    def __init__(self, dim: int, hidden: int, linear: MakeLinear) -> None:
        super().__init__()
        self.gate, self.up, self.down = (
            linear(dim, hidden),
            linear(dim, hidden),
            linear(hidden, dim),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class DecoderBlock(nn.Module):
    def __init__(
        self,
        dim: int,
        heads: int,
        kv_heads: int,
        hidden: int,
        attention: Attention = "auto",
        linear: MakeLinear = plain_linear,
    ) -> None:
        super().__init__()
        check_positive(dim=dim, hidden=hidden)
        self.norm_1, self.mixer = (
            nn.RMSNorm(dim, eps=NORM_EPS),
            GroupedAttention(dim, heads, kv_heads, attention, linear),
        )
        self.norm_2, self.feed_forward = nn.RMSNorm(dim, eps=NORM_EPS), SwiGLU(dim, hidden, linear)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.mixer(self.norm_1(x), cos, sin)
        return x + self.feed_forward(self.norm_2(x))


def init_decoder(model: nn.Module, depth: int) -> None:
    """N(0, 0.02²) everywhere.

    What adds to the residual stream begins smaller: its sum over all layers stays of one size.
    """
    model.apply(init_normal)
    for block in model.modules():
        if isinstance(block, DecoderBlock):
            nn.init.normal_(block.mixer.out.weight, std=0.02 / math.sqrt(2 * depth))
            nn.init.normal_(block.feed_forward.down.weight, std=0.02 / math.sqrt(2 * depth))
