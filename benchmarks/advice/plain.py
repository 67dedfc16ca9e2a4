"""Two workloads as people write them, without knobs for what saves memory.

PYTHONPATH=src python -m vramcast advise benchmarks/advice/plain.py:vision --gpu rtx-4090
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Step = Callable[[], Tensor]


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm_1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm_2(x))


class VisionTransformer(nn.Module):
    def __init__(self, width: int = 768, depth: int = 12, num_classes: int = 1000) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.position = nn.Parameter(torch.zeros(1, 196, width))
        self.blocks = nn.ModuleList(Block(width, 12) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


def vision(*, batch_size: int = 64, accumulation: int = 1) -> Step:
    """Float32, AdamW, gradients filled with zeros."""
    model = VisionTransformer().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> Tensor:
        for _ in range(accumulation):
            images = torch.randn(batch_size, 3, 224, 224, device="cuda")
            labels = torch.randint(1000, (batch_size,), device="cuda")
            loss = nn.functional.cross_entropy(model(images), labels) / accumulation
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return loss.detach()

    return step


def encoder(*, batch_size: int = 32, seq_len: int = 512, vocabulary: int = 32000) -> Step:
    """A masked language model of torch's own layers, float32."""
    layer = nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, batch_first=True)
    embedding = nn.Embedding(vocabulary, 768).cuda()
    body = nn.TransformerEncoder(layer, 8, enable_nested_tensor=False).cuda()
    head = nn.Linear(768, vocabulary).cuda()
    weights = [w for module in (embedding, body, head) for w in module.parameters()]
    optimizer = torch.optim.AdamW(weights, lr=1e-4)

    def step() -> Tensor:
        tokens = torch.randint(vocabulary, (batch_size, seq_len), device="cuda")
        logits = head(body(embedding(tokens)))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step
