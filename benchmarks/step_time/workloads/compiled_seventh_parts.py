"""Parts of networks of compiled_seventh.py."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


def twice(inside: int, outside: int) -> nn.Sequential:
    """Two convolutions, each with batch norm and a ReLU, as a U-Net's levels have."""
    parts: list[nn.Module] = []
    for width in (inside, outside):
        layer = nn.Conv2d(width, outside, 3, padding=1, bias=False)
        parts += [layer, nn.BatchNorm2d(outside), nn.ReLU(inplace=True)]
    return nn.Sequential(*parts)


class Segments(nn.Module):
    """The U-Net of pictures: halved by the largest of four, doubled by transposed convolutions."""

    def __init__(self, width: int, levels: int, classes: int) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(levels + 1)]
        pairs = list(zip(widths, widths[1:]))
        self.into, self.leave = twice(3, width), nn.Conv2d(width, classes, 1)
        self.down = nn.ModuleList(twice(a, b) for a, b in pairs)
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in reversed(pairs))
        self.mix = nn.ModuleList(twice(2 * a, a) for a, _ in reversed(pairs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = [self.into(x)]
        for down in self.down:
            kept.append(down(F.max_pool2d(kept[-1], 2)))
        y = kept.pop()
        for up, mix in zip(self.up, self.mix):
            y = mix(torch.cat((kept.pop(), up(y)), 1))
        return self.leave(y)


class ToldBlock(nn.Module):
    """DiT's: shifts, scales and gates come from the time and the class; they start at nothing."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.told = heads, nn.Linear(width, 6 * width)
        self.three, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList(
            nn.LayerNorm(width, eps=1e-6, elementwise_affine=False) for _ in range(2)
        )
        nn.init.zeros_(self.told.weight)
        nn.init.zeros_(self.told.bias)

    def forward(self, x: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
        shift, scale, gate, low, high, last = self.told(F.silu(told))[:, None].chunk(6, -1)
        y = self.norms[0](x) * (1 + scale) + shift
        q, k, v = self.three(y).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + gate * self.out(y)
        y = self.norms[1](x) * (1 + high) + low
        return x + last * self.down(F.gelu(self.up(y), approximate="tanh"))


class Told(nn.Module):
    """DiT by hand: pieces of latents, sines of the time, a table of classes."""

    def __init__(self, width: int, heads: int, layers: int, side: int) -> None:
        super().__init__()
        self.into, self.classes = nn.Conv2d(4, width, 2, 2), nn.Embedding(1001, width)
        self.places = nn.Parameter(0.02 * torch.randn(side * side // 4, width))
        self.times = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList(ToldBlock(width, heads) for _ in range(layers))
        self.last, self.out = nn.Linear(width, 2 * width), nn.Linear(width, 16)
        self.norm = nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)
        self.register_buffer("pitch", 1e-4 ** torch.linspace(0, 1, 128), persistent=False)

    def forward(self, x: torch.Tensor, time: torch.Tensor, name: torch.Tensor) -> torch.Tensor:
        angles = 1000 * time[:, None] * self.pitch
        told = self.times(torch.cat((angles.cos(), angles.sin()), -1)) + self.classes(name)
        y = self.into(x).flatten(2).mT + self.places
        for block in self.blocks:
            y = block(y, told)
        shift, scale = self.last(F.silu(told))[:, None].chunk(2, -1)
        y = self.out(self.norm(y) * (1 + scale) + shift)
        return F.pixel_shuffle(y.mT.unflatten(-1, (x.shape[-2] // 2, -1)), 2)


class StatesHandedOn(nn.Module):
    """Mamba-2's with groups of states; each chunk hands what it knows to the next, in a loop."""

    def __init__(self, width: int, heads: int, groups: int, states: int, chunk: int) -> None:
        super().__init__()
        inner, of_groups = 2 * width, groups * states
        self.widths = (inner, inner + 2 * of_groups, heads)
        self.parts, self.heads, self.groups = (inner, of_groups, of_groups), heads, groups
        self.chunk, self.norm = chunk, nn.RMSNorm(width)
        self.into, self.out = (
            nn.Linear(width, sum(self.widths), bias=False),
            nn.Linear(inner, width, bias=False),
        )
        self.near = nn.Conv1d(self.widths[1], self.widths[1], 4, padding=3, groups=self.widths[1])
        self.fall = nn.Parameter(torch.linspace(1, 16, heads).log())
        self.offset, self.passed = nn.Parameter(torch.zeros(heads)), nn.Parameter(torch.ones(heads))
        self.after = nn.RMSNorm(inner)
        self.register_buffer("past", torch.ones(chunk, chunk).tril().bool(), persistent=False)

    def in_heads(self, x: torch.Tensor, heads: int) -> torch.Tensor:
        """[batch, heads, length, numbers]"""
        each = x.unflatten(-1, (heads, -1)).transpose(1, 2)
        return each.repeat_interleave(self.heads // heads, 1)

    def of_chunk(self, state: Any, kept: Any, new: Any, into: Any, seen: Any) -> Any:
        apart = kept[..., :, None] - kept[..., None, :]
        weights = apart.masked_fill(~self.past, -torch.inf).exp()
        inside = ((seen @ into.mT) * weights).to(new.dtype) @ new
        between = (seen * kept.exp()[..., None]).to(new.dtype) @ state.to(new.dtype)
        left = (into * (kept[..., -1:] - kept).exp()[..., None]).to(new.dtype)
        state = state * kept[..., -1].exp()[..., None, None] + (left.mT @ new).float()
        return state, inside + between

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, told, rate = self.into(self.norm(x)).split(self.widths, -1)
        told = F.silu(self.near(told.mT)[..., : x.shape[1]].mT)
        y, into, seen = told.split(self.parts, -1)
        y = self.in_heads(y, self.heads)
        into, seen = self.in_heads(into, self.groups), self.in_heads(seen, self.groups)
        rate = F.softplus(rate.float() + self.offset).transpose(1, 2)
        fall, new = -rate * self.fall.exp()[:, None], y * rate[..., None].to(y.dtype)
        kept = fall.unflatten(-1, (-1, self.chunk)).cumsum(-1).flatten(-2)
        state = torch.zeros(*y.shape[:2], into.shape[-1], y.shape[-1], device=x.device)
        found = []
        for i in range(0, x.shape[1], self.chunk):
            parts = (part[:, :, i : i + self.chunk] for part in (kept, new, into, seen))
            state, out = self.of_chunk(state, *parts)
            found.append(out)
        found = torch.cat(found, 2) + self.passed[:, None, None] * y
        return x + self.out(self.after(found.transpose(1, 2).flatten(2) * F.silu(gate)))
