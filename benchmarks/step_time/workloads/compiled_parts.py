"""Parts of networks of compiled_third.py."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


def tf32() -> None:
    torch.set_float32_matmul_precision("high")


def layers_of(*widths: int) -> nn.Sequential:
    """Products with a ReLU after each, but not after the last one."""
    parts: list[nn.Module] = []
    for inside, outside in zip(widths, widths[1:]):
        parts += [nn.Linear(inside, outside), nn.ReLU()]
    return nn.Sequential(*parts[:-1])


class DenseExperts(nn.Module):
    """All experts for all words; all but the two that a gate likes best are weighed by 0."""

    def __init__(self, width: int, inner: int, number: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, number, bias=False)
        self.up = nn.Parameter(0.02 * torch.randn(number, width, 2 * inner))
        self.down = nn.Parameter(0.02 * torch.randn(number, inner, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chances = self.gate(x).float().softmax(-1)
        best, which = chances.topk(2, -1)
        weights = torch.zeros_like(chances).scatter(-1, which, best / best.sum(-1, keepdim=True))
        words = x.flatten(0, 1).expand(len(self.up), -1, -1)
        a, b = (words @ self.up.to(x.dtype)).chunk(2, -1)
        y = (F.silu(a) * b) @ self.down.to(x.dtype)
        return torch.einsum("ebw,be->bw", y, weights.flatten(0, 1).to(y.dtype)).view_as(x)


class ChunksOfGates(nn.Module):
    """Gated linear attention: inside a chunk by products, between chunks by a state."""

    def __init__(self, width: int, heads: int, chunk: int) -> None:
        super().__init__()
        self.heads, self.chunk, self.norm = heads, chunk, nn.RMSNorm(width)
        self.four, self.gate = nn.Linear(width, 4 * width, bias=False), nn.Linear(width, heads)
        self.out, self.after = nn.Linear(width, width, bias=False), nn.RMSNorm(width // heads)
        self.register_buffer("past", torch.ones(chunk, chunk).tril().bool())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        q, k, v, open = (
            part.unflatten(-1, (self.heads, -1)).unflatten(1, (-1, self.chunk)).transpose(2, 3)
            for part in self.four(y).chunk(4, -1)
        )
        kept = F.logsigmoid(self.gate(y).float()) / 16
        kept = kept.unflatten(1, (-1, self.chunk)).transpose(2, 3).cumsum(-1)[..., None]
        fall = (kept - kept.mT).masked_fill(~self.past, -torch.inf).exp()
        inside = (q @ k.mT * fall.to(q.dtype)) @ v
        left = k * (kept[..., -1:, :] - kept).exp().to(k.dtype)
        state, states = torch.zeros_like(k[:, 0].mT @ v[:, 0]), []
        for i in range(k.shape[1]):
            states.append(state)
            state = state * kept[:, i, :, -1:].exp().to(state.dtype) + left[:, i].mT @ v[:, i]
        between = (q * kept.exp().to(q.dtype)) @ torch.stack(states, 1)
        found = self.after(inside + between) * F.silu(open)
        return x + self.out(found.transpose(2, 3).flatten(3).flatten(1, 2))


class Residual(nn.Module):
    """Two convolutions of volumes with instance norm."""

    def __init__(self, inside: int, outside: int, stride: int = 1) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv3d(inside, outside, 3, stride, 1),
            nn.InstanceNorm3d(outside, affine=True),
            nn.LeakyReLU(0.01),
            nn.Conv3d(outside, outside, 3, 1, 1),
            nn.InstanceNorm3d(outside, affine=True),
            nn.LeakyReLU(0.01),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Volumes(nn.Module):
    def __init__(self, width: int, levels: int, kinds: int) -> None:
        super().__init__()
        widths = [width * 2**i for i in range(levels)]
        pairs = list(zip(widths, widths[1:]))
        self.into, self.out = Residual(2, width), nn.Conv3d(width, kinds, 1)
        self.down = nn.ModuleList(Residual(a, b, 2) for a, b in pairs)
        self.larger = nn.ModuleList(nn.ConvTranspose3d(b, a, 2, 2) for a, b in pairs)
        self.up = nn.ModuleList(Residual(2 * a, a) for a, _ in pairs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = [self.into(x)]
        for part in self.down:
            kept.append(part(kept[-1]))
        y = kept.pop()
        for larger, part in zip(reversed(self.larger), reversed(self.up)):
            y = part(torch.cat((larger(y), kept.pop()), 1))
        return self.out(y)


class Messages(nn.Module):
    """What an edge brings depends on both of its nodes; sums by node, then a norm."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.told = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(layers))
        self.after = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))

    def forward(self, x: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        for told, after, norm in zip(self.told, self.after, self.norms):
            a, b = (
                F.linear(x, told.weight[:, : x.shape[1]]),
                F.linear(x, told.weight[:, x.shape[1] :]),
            )
            messages = F.gelu(a[one] + b[other] + told.bias)
            sums = torch.zeros_like(x).index_add(0, other, messages)
            x = norm(x + after(sums))
        return x


class TurnedBlock(nn.Module):
    """Queries and keys with a norm, then turned by their place; gates of SiLU with a norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, inner = heads, width * 8 // 3
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.of_heads = nn.ModuleList(nn.LayerNorm(width // heads) for _ in range(2))
        self.three, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.middle = nn.Linear(width, 2 * inner), nn.LayerNorm(inner)
        self.down = nn.Linear(inner, width)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        three = self.three(self.norms[0](x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = three.permute(2, 0, 3, 1, 4)
        turned = []
        for part, norm in zip((q, k), self.of_heads):
            even, odd = norm(part).unflatten(-1, (-1, 2)).unbind(-1)
            both = (even * cos - odd * sin, even * sin + odd * cos)
            turned.append(torch.stack(both, -1).flatten(-2).to(v.dtype))
        y = F.scaled_dot_product_attention(*turned, v)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        a, b = self.up(self.norms[1](x)).chunk(2, -1)
        return x + self.down(self.middle(F.silu(a) * b))


class Turned(nn.Module):
    def __init__(self, width: int, heads: int, layers: int, side: int) -> None:
        super().__init__()
        self.into, self.out = nn.Conv2d(3, width, 16, 16), nn.Linear(width, 1000)
        self.blocks = nn.ModuleList(TurnedBlock(width, heads) for _ in range(layers))
        place, pitch = torch.arange(side), 100 ** -torch.linspace(0, 1, width // heads // 4)
        angles = torch.outer(place, pitch)
        rows, columns = angles[:, None].expand(-1, side, -1), angles.expand(side, -1, -1)
        both = torch.cat((rows, columns), -1).flatten(0, 1)
        self.register_buffer("cos", both.cos())
        self.register_buffer("sin", both.sin())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.into(x).flatten(2).mT
        for block in self.blocks:
            y = block(y, self.cos, self.sin)
        return self.out(y.mean(1))


class WaveLayer(nn.Module):
    """WaveNet's: a dilated convolution that looks back, a gate, what goes on and what is kept."""

    def __init__(self, width: int, apart: int) -> None:
        super().__init__()
        self.apart, self.both = apart, nn.Conv1d(width, 2 * width, 2, dilation=apart)
        self.out = nn.Conv1d(width, 2 * width, 1)

    def forward(self, x: torch.Tensor) -> Any:
        a, b = self.both(F.pad(x, (self.apart, 0))).chunk(2, 1)
        on, kept = self.out(a.tanh() * b.sigmoid()).chunk(2, 1)
        return x + on, kept
