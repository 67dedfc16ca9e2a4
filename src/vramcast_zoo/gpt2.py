"""GPT-2, a baseline.

    x = E[tokens] + P[0..T)
    x <- x + W_o attention(W_qkv n)          n = LayerNorm(x)
    x <- x + W_down gelu(W_up n)             n = LayerNorm(x)
    logits = LayerNorm(x) Eᵀ                 the head is the embedding

All matrices but the embeddings have biases. Parameters: (V + positions)d + L(12d² + 13d) + 2d.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vramcast_zoo.attention import Attention, causal_attention, join_heads, split_heads
from vramcast_zoo.language_model import (
    LanguageModel,
    check_divides,
    check_length,
    check_positive,
    init_normal,
)
from vramcast_zoo.training import workload

HEAD_DIM = 64  # unless heads are given


class Block(nn.Module):
    def __init__(self, dim: int, heads: int, attention: Attention) -> None:
        super().__init__()
        check_divides("heads", heads, "dim", dim)
        self.heads, self.attention = heads, attention
        self.norm_1, self.qkv, self.out = (
            nn.LayerNorm(dim),
            nn.Linear(dim, 3 * dim),
            nn.Linear(dim, dim),
        )
        self.norm_2, self.up, self.down = (
            nn.LayerNorm(dim),
            nn.Linear(dim, 4 * dim),
            nn.Linear(4 * dim, dim),
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            split_heads(part, self.heads) for part in self.qkv(self.norm_1(x)).chunk(3, dim=-1)
        )
        x = x + self.out(join_heads(causal_attention(q, k, v, self.attention)))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class GPT2(LanguageModel):
    def __init__(
        self,
        *,
        dim: int = 768,
        depth: int = 12,
        heads: int | None = None,
        vocabulary: int = 50_257,
        positions: int = 1024,
        attention: Attention = "auto",
        checkpointing: bool = False,
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
        self.blocks = nn.ModuleList(Block(dim, heads, attention) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.apply(init_normal)
        for name, weight in self.named_parameters():
            if name.endswith(("out.weight", "down.weight")):
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * depth))

    def forward(self, tokens: Tensor) -> Tensor:
        return F.linear(self.features(tokens), self.embedding.weight)

    def features(self, tokens: Tensor) -> Tensor:
        check_length(tokens.shape[1], self.longest)
        x = self.embedding(tokens) + self.position(
            torch.arange(tokens.shape[1], device=tokens.device)
        )
        return self.norm(self.through_blocks(self.blocks, x))

    def head_matrices(self) -> tuple[Tensor, ...]:
        return (self.embedding.weight,)


make_model = GPT2
build = workload(make_model, batch_size=8, seq_len=1024, precision="amp-bf16")
