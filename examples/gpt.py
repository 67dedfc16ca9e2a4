"""A GPT-2 in plain PyTorch, as a vramcast workload.

    vramcast predict examples/gpt.py batch_size=16 --gpu a100-80gb    no GPU needed
    python examples/gpt.py                                            on your GPU

A workload is one function, `build`. Its keyword arguments are the knobs. It makes the model and the
optimizer and returns `step`, which does one training step and returns the loss. Copy this file and
put your own model in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

DEVICE = torch.device("cuda")


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm_1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, vocabulary: int, seq_len: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.checkpointing = False
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(seq_len, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        for weight in (self.token.weight, self.position.weight):
            nn.init.normal_(weight, std=0.02)
        self.head.weight = self.token.weight  # GPT-2 shares them

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            # Checkpointing keeps a block's input only and computes the rest again for the backward.
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointing else block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def make_optimizer(name: str, model: nn.Module) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    fused = True if name == "adamw-fused" else None
    return torch.optim.AdamW(model.parameters(), lr=3e-4, fused=fused)


def build(
    *,
    batch_size: int = 8,
    seq_len: int = 1024,
    width: int = 768,
    depth: int = 12,
    heads: int = 12,
    vocabulary: int = 50304,
    precision: Literal["fp32", "amp", "bf16"] = "amp",
    checkpointing: bool = False,
    optimizer: Literal["adamw", "adamw-fused", "sgd"] = "adamw",
) -> Callable[[], Tensor]:
    if width % heads:
        raise ValueError(f"width={width} is not a multiple of heads={heads}")
    with DEVICE:  # makes the weights on the GPU, not on the CPU first
        model = GPT(vocabulary, seq_len, width, depth, heads)
    model.checkpointing = checkpointing
    if precision == "bf16":  # weights, gradients and optimizer state; "amp" keeps them in float32
        model.to(torch.bfloat16)
    opt = make_optimizer(optimizer, model)
    use_autocast = precision == "amp"

    def step() -> Tensor:
        # Random tokens take the memory that real ones take.
        tokens = torch.randint(vocabulary, (batch_size, seq_len + 1), device=DEVICE)
        with torch.autocast(DEVICE.type, dtype=torch.bfloat16, enabled=use_autocast):
            loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        return loss.detach()

    return step


if __name__ == "__main__":
    train_one_step = build()
    for number in range(5):
        print(f"step {number}: loss {train_one_step().item():.3f}")
    print(f"peak reserved: {torch.cuda.max_memory_reserved() / 2**30:.2f} GiB")
