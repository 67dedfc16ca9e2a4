"""The byte-level language model around every layer of documents 000 and 002.

    x_0 = E[tokens]                          E [256, d], from N(0, 0.02²)
    x_l = x_{l-1} + Layer_l(LayerNorm_l(x_{l-1}))
    logits = LayerNorm_f(x_L) Eᵀ             the head is the embedding

There is no feed-forward block and no state is carried from one batch to the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vramcast_zoo.language_model import LanguageModel, check_positive

VOCABULARY = 256
POWER_ITERATIONS = 3
# halves in the 16 bytes that tensor cores read at once; products of other widths take up to four
# times as long
ALIGNMENT = 8
SPECTRAL_NORM = 0.99


class LadderLM(LanguageModel):
    vocabulary = VOCABULARY

    def __init__(
        self,
        dim: int,
        depth: int,
        make_layer: Callable[[], nn.Module],
        *,
        time_first: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        check_positive(dim=dim, depth=depth)
        self.time_first = time_first
        self.set_options(**options)
        self.embedding = nn.Embedding(VOCABULARY, dim)
        self.blocks = nn.ModuleList(PreNorm(dim, make_layer()) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        logits = F.linear(self.features(tokens), self.embedding.weight)
        return logits.transpose(0, 1) if self.time_first else logits

    def features(self, tokens: Tensor) -> Tensor:
        """With time first, where the model works that way."""
        # Once a step and outside the blocks: a checkpointed block runs twice and must see the same
        # vectors both times.
        for module in self.modules():
            if isinstance(module, SpectrallyNormalised):
                module.iterate()
        # A recurrent layer works on one moment of all samples at a time: with time first that is
        # one piece of memory.
        x = self.embedding(tokens.t() if self.time_first else tokens)
        return self.norm(self.through_blocks(self.blocks, x))

    def head_matrices(self) -> tuple[Tensor, ...]:
        return (self.embedding.weight,)

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        if not self.time_first:
            return super().loss(tokens, targets)
        # The mean does not depend on the order, and the logits need not be copied into another one.
        if self.loss_chunks > 1:
            return self.chunked_loss(self.features(tokens), targets.t())
        return F.cross_entropy(self(tokens).transpose(0, 1).flatten(0, 1), targets.t().flatten())


class PreNorm(nn.Module):
    def __init__(self, dim: int, layer: nn.Module) -> None:
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(dim), layer

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layer(self.norm(x))


def aligned(weight: Tensor, dim: int) -> Tensor:
    """With zeros at the end of one dimension, up to a size that tensor cores like."""
    missing = -weight.shape[dim] % ALIGNMENT
    return F.pad(weight, (0, 0, 0, missing) if dim == 0 else (0, missing)) if missing else weight


def by_parts(x: Tensor, weight: Tensor, *rows: int) -> tuple[Tensor, ...]:
    """W x in parts of so many rows of W: every part is one piece of memory of its own."""
    return tuple(F.linear(x, part) for part in weight.split(rows))


class SpectrallyNormalised(nn.Module):
    """A square matrix scaled so that its largest singular value is 0.99:

    v = Wᵀu / |Wᵀu|,  u = Wv / |Wv|     three times a step, without gradient
    σ = |uᵀ W v|                        with gradient
    result = W · 0.99 / (σ + 1e-8)
    """

    u: Tensor
    v: Tensor

    def __init__(self, width: int, gain: float = 0.1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, width))
        nn.init.xavier_uniform_(self.weight, gain)
        self.register_buffer("u", F.normalize(torch.randn(width), dim=0))
        self.register_buffer("v", torch.zeros(width))

    @torch.no_grad()
    def iterate(self) -> None:
        for _ in range(POWER_ITERATIONS):
            # New tensors: the last ones may still be wanted by a backward pass to come.
            self.v = F.normalize(torch.mv(self.weight.t(), self.u), dim=0)
            self.u = F.normalize(torch.mv(self.weight, self.v), dim=0)

    def forward(self) -> Tensor:
        sigma = torch.dot(self.u, torch.mv(self.weight, self.v)).abs()
        return self.weight * (SPECTRAL_NORM / (sigma + 1e-8))
