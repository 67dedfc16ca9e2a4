"""Models of the accuracy suites that come from no library, and their training steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from vramcast_zoo.suites.training import DTYPES, training_step

Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def attend_eagerly(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """As written before there was a fused kernel: the whole matrix of scores is made and kept."""
    length = q.shape[-2]
    mask = torch.ones(length, length, dtype=torch.bool, device=q.device).tril()
    scores = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).masked_fill(~mask, float("-inf"))
    return scores.softmax(-1) @ v


def attend_with(backend: SDPBackend) -> Attention:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    return attend


ATTENTION: dict[str, Attention] = {
    "sdpa": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    "eager": attend_eagerly,
    "efficient": attend_with(SDPBackend.EFFICIENT_ATTENTION),
    "math": attend_with(SDPBackend.MATH),
}


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float, attention: str) -> None:
        super().__init__()
        self.heads, self.dropout, self.attend = heads, dropout, ATTENTION[attention]
        self.norm_1, self.qkv, self.out = (
            nn.LayerNorm(width),
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
        )
        self.norm_2, self.up, self.down = (
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm_1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = self.attend(q, k, v).transpose(1, 2).reshape(batch, length, width)
        x = x + F.dropout(self.out(mixed), self.dropout, self.training)
        return x + F.dropout(
            self.down(F.gelu(self.up(self.norm_2(x)))), self.dropout, self.training
        )


class GPT(nn.Module):
    def __init__(
        self,
        vocabulary: int,
        width: int,
        depth: int,
        heads: int,
        length: int,
        dropout: float,
        checkpointing: str,
        attention: str,
    ) -> None:
        super().__init__()
        self.checkpointing = checkpointing
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout, attention) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            if self.checkpointing:
                x = checkpoint(block, x, use_reentrant=self.checkpointing == "reentrant")
            else:
                x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


class ElmanLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.wx, self.wh, self.norm = (
            nn.Linear(width, width),
            nn.Linear(width, width, bias=False),
            nn.LayerNorm(width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        u = self.wx(self.norm(x))
        state, states = torch.zeros_like(u[:, 0]), []
        for t in range(x.shape[1]):
            state = torch.tanh(u[:, t] + self.wh(state))
            states.append(state)
        return x + torch.stack(states, 1) * F.silu(u)


class Elman(nn.Module):
    def __init__(self, vocabulary: int, width: int, depth: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(ElmanLayer(width) for _ in range(depth))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.token(tokens)
        for layer in self.layers:
            x = layer(x)
        logits = self.head(x)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


class LSTMModel(nn.Module):
    def __init__(self, vocabulary: int, width: int, depth: int, kind: str) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.rnn = getattr(nn, kind)(width, width, depth, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.rnn(self.token(tokens))
        return F.cross_entropy(self.head(hidden).flatten(0, 1), targets.flatten())


class Experts(nn.Module):
    """Top-2 mixture of experts that gathers each expert's tokens: shapes depend on the data."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(experts)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.view(-1, x.shape[-1])
        weights, chosen = self.router(flat).softmax(-1).topk(2)
        mixed = torch.zeros_like(flat)
        for index, expert in enumerate(self.experts):
            token, slot = torch.where(chosen == index)
            mixed.index_add_(
                0, token, (expert(flat[token]) * weights[token, slot, None]).to(mixed.dtype)
            )
        return x + mixed.view_as(x)


class MoE(nn.Module):
    def __init__(self, vocabulary: int, width: int, depth: int, experts: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.layers = nn.Sequential(
            *(
                nn.Sequential(
                    nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True),
                    Experts(width, experts),
                )
                for _ in range(depth)
            )
        )
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(
            self.head(self.layers(self.token(tokens))).flatten(0, 1), targets.flatten()
        )


class Residual(nn.Module):
    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv_1, self.norm_1 = (
            nn.Conv2d(width_in, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.conv_2, self.norm_2 = (
            nn.Conv2d(width, width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.short = (
            nn.Sequential(nn.Conv2d(width_in, width, 1, stride, bias=False), nn.BatchNorm2d(width))
            if stride > 1 or width_in != width
            else nn.Identity()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm_1(self.conv_1(x)), inplace=True)
        return F.relu(self.norm_2(self.conv_2(y)) + self.short(x), inplace=True)


def resnet18() -> nn.Module:
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    for width_in, width, stride in (
        (64, 64, 1),
        (64, 64, 1),
        (64, 128, 2),
        (128, 128, 1),
        (128, 256, 2),
        (256, 256, 1),
        (256, 512, 2),
        (512, 512, 1),
    ):
        layers.append(Residual(width_in, width, stride))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def language_model(
    model: nn.Module, batch_size: int, seq_len: int, vocabulary: int, **options: Any
) -> Callable[[], torch.Tensor]:
    def loss() -> torch.Tensor:
        tokens = torch.randint(0, vocabulary, (batch_size, seq_len + 1), device="cuda")
        return model(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())

    return training_step(loss, model.parameters(), **options)


def on_gpu(make: Callable[[], nn.Module], precision: str) -> nn.Module:
    with torch.device("cuda"):
        model = make()
    return model.to(DTYPES[precision]) if precision else model


def gpt(
    *,
    batch_size: int = 8,
    seq_len: int = 1024,
    vocabulary: int = 50304,
    width: int = 768,
    depth: int = 12,
    heads: int = 12,
    dropout: float = 0.0,
    checkpointing: str = "",
    attention: str = "sdpa",
    precision: str = "",
    optimizer: str = "adamw",
    autocast: str = "",
    accumulate: int = 1,
    scale_loss: bool = False,
) -> Callable[[], torch.Tensor]:
    model = on_gpu(
        lambda: GPT(vocabulary, width, depth, heads, seq_len, dropout, checkpointing, attention),
        precision,
    )
    return language_model(
        model,
        batch_size,
        seq_len,
        vocabulary,
        optimizer=optimizer,
        autocast=autocast,
        accumulate=accumulate,
        scale_loss=scale_loss,
    )


def elman(
    *,
    batch_size: int = 64,
    seq_len: int = 512,
    width: int = 1024,
    depth: int = 5,
    precision: str = "",
    autocast: str = "",
    optimizer: str = "adamw",
) -> Callable[[], torch.Tensor]:
    return language_model(
        on_gpu(lambda: Elman(256, width, depth), precision),
        batch_size,
        seq_len,
        256,
        autocast=autocast,
        optimizer=optimizer,
    )


def rnn(
    *,
    batch_size: int = 32,
    seq_len: int = 256,
    width: int = 512,
    depth: int = 2,
    kind: str = "LSTM",
    precision: str = "",
    autocast: str = "",
) -> Callable[[], torch.Tensor]:
    return language_model(
        on_gpu(lambda: LSTMModel(10000, width, depth, kind), precision),
        batch_size,
        seq_len,
        10000,
        autocast=autocast,
    )


def moe(
    *,
    batch_size: int = 8,
    seq_len: int = 512,
    width: int = 512,
    depth: int = 4,
    experts: int = 8,
    precision: str = "",
    autocast: str = "",
) -> Callable[[], torch.Tensor]:
    return language_model(
        on_gpu(lambda: MoE(32000, width, depth, experts), precision),
        batch_size,
        seq_len,
        32000,
        autocast=autocast,
    )


def resnet(
    *,
    batch_size: int = 64,
    size: int = 224,
    autocast: str = "",
    channels_last: bool = False,
    optimizer: str = "sgd",
) -> Callable[[], torch.Tensor]:
    model = on_gpu(resnet18, "")
    if channels_last:
        model = model.to(memory_format=torch.channels_last)

    def loss() -> torch.Tensor:
        images = torch.randn(batch_size, 3, size, size, device="cuda")
        if channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        return F.cross_entropy(model(images), torch.randint(0, 1000, (batch_size,), device="cuda"))

    return training_step(loss, model.parameters(), optimizer=optimizer, autocast=autocast)


def encoder(
    *,
    batch_size: int = 16,
    seq_len: int = 256,
    width: int = 512,
    depth: int = 6,
    heads: int = 8,
    autocast: str = "",
    optimizer: str = "adamw",
) -> Callable[[], torch.Tensor]:
    """Built on the host and moved, with a padding mask and a CPU batch, as many scripts do."""
    layer = nn.TransformerEncoderLayer(
        width, heads, 4 * width, dropout=0.1, batch_first=True, norm_first=True
    )
    model = nn.Sequential(
        nn.Embedding(20000, width),
        nn.TransformerEncoder(layer, depth, enable_nested_tensor=False),
        nn.Linear(width, 20000),
    ).cuda()

    def loss() -> torch.Tensor:
        tokens = torch.randint(0, 20000, (batch_size, seq_len)).cuda()
        hidden = model[1](model[0](tokens), src_key_padding_mask=tokens == 0)
        return F.cross_entropy(model[2](hidden).transpose(1, 2), tokens)

    return training_step(loss, model.parameters(), optimizer=optimizer, autocast=autocast)
