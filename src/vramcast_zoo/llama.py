"""A Llama-style decoder, a baseline.

The blocks of transformer.py between an embedding and a head of its own.

Parameters: 2Vd + L(2d² + 2d·kv + 3dh + 2d) + d, where kv = d / heads · kv_heads and h = hidden.
"""

from __future__ import annotations

from torch import Tensor, nn

from vramcast_zoo.attention import Attention, rotary_angles
from vramcast_zoo.language_model import LanguageModel, check_positive, run_blocks
from vramcast_zoo.training import workload
from vramcast_zoo.transformer import NORM_EPS, DecoderBlock, init_decoder, plain_linear

THETA = 10_000.0


class Llama(LanguageModel):
    def __init__(
        self,
        *,
        dim: int = 1024,
        depth: int = 20,
        heads: int = 16,
        kv_heads: int = 4,
        hidden: int = 3072,
        vocabulary: int = 32_000,
        attention: Attention = "auto",
        checkpointing: bool = False,
    ) -> None:
        super().__init__()
        check_positive(dim=dim, depth=depth, vocabulary=vocabulary)
        self.vocabulary, self.head_dim, self.checkpointing = vocabulary, dim // heads, checkpointing
        self.embedding = nn.Embedding(vocabulary, dim)
        self.blocks = nn.ModuleList(
            DecoderBlock(dim, heads, kv_heads, hidden, attention) for _ in range(depth)
        )
        self.norm, self.head = nn.RMSNorm(dim, eps=NORM_EPS), plain_linear(dim, vocabulary)
        init_decoder(self, depth)

    def forward(self, tokens: Tensor) -> Tensor:
        angles = rotary_angles(tokens.shape[1], self.head_dim, THETA, tokens.device)
        x = run_blocks(
            self.blocks, self.embedding(tokens), *angles, checkpointing=self.checkpointing
        )
        return self.head(self.norm(x))


make_model = Llama
build = workload(make_model, batch_size=8, seq_len=1024)
