"""Parts of networks of compiled_fourth.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class FewKeys(nn.Module):
    """Attention with fewer heads for keys than for queries, as `attend` says, and gates."""

    def __init__(self, width: int, heads: int, keys: int, attend: Callable[..., Any]) -> None:
        super().__init__()
        self.heads, self.keys, self.attend, size = heads, keys, attend, width // heads
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.all = nn.Linear(width, width + 2 * keys * size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up, self.down = (
            nn.Linear(width, 5 * width, bias=False),
            nn.Linear(5 * width // 2, width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.all(self.norms[0](x)).unflatten(-1, (self.heads + 2 * self.keys, -1))
        q, k, v = parts.transpose(1, 2).split((self.heads, self.keys, self.keys), 1)
        x = x + self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))
        a, b = self.up(self.norms[1](x)).chunk(2, -1)
        return x + self.down(F.silu(a) * b)


class Gated(nn.Module):
    """Demucs': a strided convolution, then one that gates; or the same way back."""

    def __init__(self, inside: int, outside: int, *, back: bool = False) -> None:
        super().__init__()
        self.back, kind = back, nn.ConvTranspose1d if back else nn.Conv1d
        gated = inside if back else outside
        self.layer = kind(inside, outside, 8, 4, 2)
        self.gate = nn.Conv1d(gated, 2 * gated, 3 if back else 1, padding=1 if back else 0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.back:
            return self.layer(F.glu(self.gate(x), 1))
        return F.glu(self.gate(F.relu(self.layer(x))), 1)


class Sources(nn.Module):
    """A U-Net of waves with an LSTM both ways in its middle, four waves come out."""

    def __init__(self, width: int, levels: int) -> None:
        super().__init__()
        widths = [width * 2**i for i in range(levels)]
        self.down = nn.ModuleList(Gated(a, b) for a, b in zip((2, *widths), widths))
        self.middle = nn.LSTM(widths[-1], widths[-1] // 2, 2, batch_first=True, bidirectional=True)
        self.up = nn.ModuleList(Gated(b, a, back=True) for a, b in zip((8, *widths), widths))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for part in self.down:
            x = part(x)
            kept.append(x)
        x = self.middle(x.mT)[0].mT
        for part in reversed(self.up):
            x = part(x + kept.pop())
        return x


class Film(nn.Module):
    """A block of one filter a channel over space and time, as ConvNeXt has them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.near = nn.Conv3d(width, width, (3, 7, 7), padding=(1, 3, 3), groups=width)
        self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, 4 * width)
        self.down, self.scale = nn.Linear(4 * width, width), nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.near(x).permute(0, 2, 3, 4, 1))
        return x + (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 4, 1, 2, 3)


class Films(nn.Module):
    def __init__(self, widths: tuple[int, ...], depths: tuple[int, ...], kinds: int) -> None:
        super().__init__()
        self.into = nn.Conv3d(3, widths[0], (2, 4, 4), (2, 4, 4))
        self.levels = nn.ModuleList(
            nn.Sequential(*(Film(width) for _ in range(depth)))
            for width, depth in zip(widths, depths)
        )
        self.smaller = nn.ModuleList(
            nn.Conv3d(a, b, (1, 2, 2), (1, 2, 2)) for a, b in zip(widths, widths[1:])
        )
        self.norm, self.out = nn.LayerNorm(widths[-1]), nn.Linear(widths[-1], kinds)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.into(x)
        for i, level in enumerate(self.levels):
            y = level(self.smaller[i - 1](y) if i else y)
        return self.out(self.norm(y.mean((2, 3, 4))))


class Largest(nn.Module):
    """The largest of what the edges bring, number by number, beside their mean; GIN's layers."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.into = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(layers))
        self.after = nn.ModuleList(
            nn.Sequential(nn.Linear(3 * width, width), nn.BatchNorm1d(width), nn.ReLU())
            for _ in range(layers)
        )

    def forward(self, x: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        rows = other[:, None].expand(-1, x.shape[1])
        for into, after in zip(self.into, self.after):
            told = into(torch.cat((x[one], x[other] - x[one]), -1))
            most = torch.zeros_like(x).scatter_reduce(0, rows, told, "amax")
            mean = torch.zeros_like(x).scatter_reduce(0, rows, told, "mean")
            x = x + after(torch.cat((x, most, mean), -1))
        return x


class Fields(nn.Module):
    """AutoInt's: fields of a row attend to each other, all that comes out is kept."""

    def __init__(self, rows: int, fields: int, width: int, layers: int) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, width)
        self.layers = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(layers))
        self.deep = nn.Sequential(
            nn.Linear(fields * width, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU()
        )
        self.out = nn.Linear(fields * width + 512, 1)

    def forward(self, names: torch.Tensor) -> torch.Tensor:
        x = self.table(names)
        deep = self.deep(x.flatten(1))
        for layer in self.layers:
            q, k, v, kept = (
                part.unflatten(-1, (2, -1)).transpose(1, 2) for part in layer(x).chunk(4, -1)
            )
            shares = (q @ k.mT).softmax(-1)
            x = F.relu(shares @ v + kept).transpose(1, 2).flatten(2)
        return self.out(torch.cat((x.flatten(1), deep), -1))[:, 0]
