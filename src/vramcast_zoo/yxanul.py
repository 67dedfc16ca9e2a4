"""Yxanul (document 001): a decoder whose embedding of 200,005 tokens is a product of two factors.

    x_0 = P E[token]            E: V × 128, P: 128 -> 768
    blocks                      12 query heads, 2 of keys and values, RoPE, SwiGLU of 2048
    logits = (Pᵀ n) Eᵀ          n = RMSNorm(x_L): the head is the same two factors

Parameters: (V + d)·128 + L(2d² + 2d·kv + 3dh + 2d) + d = 196,398,464.

`tied=False` has a full head of V × d instead: 350,002,304 parameters. That is what the project's
FP8 model was, though its document counts 197M. `linear="fp8"` multiplies in 8 bits inside the
blocks; weights, gradients and optimizer state stay as wide as they are.

`loss_chunks=n` takes the loss of the tokens in n parts, one after the other: only the logits of one
part are there at a time, and the backward pass computes them again. With 200,005 logits a token
they are most of the memory.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from vramcast_zoo.attention import Attention, rotary_angles
from vramcast_zoo.fp8 import Fp8Linear
from vramcast_zoo.language_model import LanguageModel, check_divides, check_positive, logits_of
from vramcast_zoo.training import workload
from vramcast_zoo.transformer import NORM_EPS, DecoderBlock, init_decoder, plain_linear

HEAD_DIM = 64
THETA = 10_000.0
LinearName = Literal["plain", "fp8"]


class Yxanul(LanguageModel):
    def __init__(
        self,
        *,
        dim: int = 768,
        depth: int = 28,
        kv_heads: int = 2,
        hidden: int = 2048,
        vocabulary: int = 200_005,
        embedding_rank: int = 128,
        tied: bool = True,
        attention: Attention = "auto",
        linear: LinearName = "plain",
        checkpointing: bool = False,
        loss_chunks: int = 1,
    ) -> None:
        super().__init__()
        check_positive(dim=dim, depth=depth, vocabulary=vocabulary, loss_chunks=loss_chunks)
        check_divides("the head's width", HEAD_DIM, "dim", dim)
        if not 1 <= embedding_rank <= dim:
            raise ValueError(f"embedding_rank={embedding_rank} is not between 1 and dim={dim}")
        self.vocabulary = vocabulary
        self.set_options(checkpointing=checkpointing, loss_chunks=loss_chunks)
        self.embedding = nn.Embedding(vocabulary, embedding_rank)
        self.widen = plain_linear(embedding_rank, dim)
        make_linear = Fp8Linear if linear == "fp8" else plain_linear
        heads = dim // HEAD_DIM
        self.blocks = nn.ModuleList(
            DecoderBlock(dim, heads, kv_heads, hidden, attention, make_linear) for _ in range(depth)
        )
        self.norm = nn.RMSNorm(dim, eps=NORM_EPS)
        self.head = None if tied else plain_linear(dim, vocabulary)
        init_decoder(self, depth)
        # x_0 as large as from one matrix of N(0, 0.02²); two such factors would leave it too small
        # for the norms to see
        nn.init.normal_(self.widen.weight, std=embedding_rank**-0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        return logits_of(self.features(tokens), *self.head_matrices())

    def features(self, tokens: Tensor) -> Tensor:
        angles = rotary_angles(tokens.shape[1], HEAD_DIM, THETA, tokens.device)
        x = self.through_blocks(self.blocks, self.widen(self.embedding(tokens)), *angles)
        return self.norm(x)

    def head_matrices(self) -> tuple[Tensor, ...]:
        return (
            (self.head.weight,)
            if self.head is not None
            else (self.widen.weight.t(), self.embedding.weight)
        )


make_model = Yxanul
build = workload(make_model, batch_size=8, seq_len=512)
