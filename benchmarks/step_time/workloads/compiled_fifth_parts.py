"""Parts of networks of compiled_fifth.py."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from compiled_parts import layers_of
from torch import nn


class Side(nn.Module):
    """Attention and the two products after it, side by side, all from one norm and one product."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout, self.norm = heads, dropout, nn.LayerNorm(width)
        self.widths = (3 * width, 4 * width)
        self.into, self.out = nn.Linear(width, 7 * width), nn.Linear(5 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        three, inner = self.into(self.norm(x)).split(self.widths, -1)
        q, k, v = three.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        both = torch.cat((seen.transpose(1, 2).flatten(2), F.gelu(inner, approximate="tanh")), -1)
        return x + F.dropout(self.out(both), self.dropout, self.training)


class ChoosingExperts(nn.Module):
    """Every expert takes the words of each text that its gate likes best, all as many."""

    def __init__(self, width: int, inner: int, number: int, share: float) -> None:
        super().__init__()
        self.share, self.gate = share, nn.Linear(width, number, bias=False)
        self.up = nn.Parameter(0.02 * torch.randn(number, width, inner))
        self.down = nn.Parameter(0.02 * torch.randn(number, inner, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        chances = self.gate(x).float().softmax(-1).mT
        weights, which = chances.topk(int(length * self.share), -1)
        rows = (which + length * torch.arange(batch, device=x.device)[:, None, None]).transpose(
            0, 1
        )
        taken = x.flatten(0, 1)[rows.flatten(1)]
        found = F.gelu(taken @ self.up.to(x.dtype)) @ self.down.to(x.dtype)
        found = found * weights.transpose(0, 1).flatten(1)[..., None].to(found.dtype)
        sums = torch.zeros(batch * length, width, device=x.device, dtype=found.dtype)
        return sums.index_add(0, rows.flatten(), found.flatten(0, 1)).view(batch, length, width)


class LowRank(nn.Module):
    """A product whose weights stay, and two narrow ones beside it that learn."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.layer, self.scale = layer, 2.0
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + self.scale * self.up(self.down(F.dropout(x, 0.05, self.training)))


def with_low_ranks(model: nn.Module, rank: int) -> None:
    """Beside every product inside of `model`; nothing else learns."""
    model.requires_grad_(False)
    for part in list(model.modules()):
        for name, layer in list(part.named_children()):
            if isinstance(layer, nn.Linear):
                setattr(part, name, LowRank(layer, rank))


class Selective(nn.Module):
    """Mamba's: states that fall by what each word says, all of them by doubling distances."""

    def __init__(self, width: int, states: int) -> None:
        super().__init__()
        inner = 2 * width
        self.states, self.norm = states, nn.RMSNorm(width)
        self.into, self.out = nn.Linear(width, 2 * inner, bias=False), nn.Linear(inner, width)
        self.near = nn.Conv1d(inner, inner, 4, padding=3, groups=inner)
        self.said, self.rate = nn.Linear(inner, 2 * states), nn.Linear(inner, inner)
        self.fall = nn.Parameter(torch.arange(1.0, states + 1).log().expand(inner, -1).clone())
        self.passed = nn.Parameter(torch.ones(inner))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, gate = self.into(self.norm(x)).chunk(2, -1)
        y = F.silu(self.near(y.mT)[..., : x.shape[1]].mT)
        into, seen = self.said(y).float().chunk(2, -1)
        rate = F.softplus(self.rate(y).float())[..., None]
        kept = torch.exp(-rate * self.fall.exp())
        state = running(kept, rate * into[:, :, None] * y.float()[..., None])
        found = (state * seen[:, :, None]).sum(-1) + self.passed * y
        return x + self.out(found.to(gate.dtype) * F.silu(gate))


def running(kept: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """state[i] = kept[i] * state[i - 1] + new[i], in as many rounds as the length has bits."""
    far = 1
    while far < kept.shape[1]:
        more = new[:, far:] + kept[:, far:] * new[:, :-far]
        left = kept[:, far:] * kept[:, :-far]
        new = torch.cat((new[:, :far], more), 1)
        kept = torch.cat((kept[:, :far], left), 1)
        far *= 2
    return new


class EdgesAttend(nn.Module):
    """Every node asks those that have an edge to it; the shares of its edges are a softmax."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.three, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.after = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 2 * width),
            nn.SiLU(),
            nn.Linear(2 * width, width),
        )

    def forward(self, x: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        q, k, v = self.three(self.norm(x)).unflatten(-1, (3, self.heads, -1)).unbind(1)
        scores = (q[other] * k[one]).sum(-1) * q.shape[-1] ** -0.5
        weights = scores.clamp(max=30).exp()
        sums = torch.zeros_like(x[:, : self.heads]).index_add(0, other, weights)
        shares = (weights / (sums[other] + 1e-6))[..., None]
        seen = torch.zeros_like(v).index_add(0, other, shares * v[one])
        x = x + self.out(seen.flatten(1))
        return x + self.after(x)


class Graph(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EdgesAttend(width, 8) for _ in range(layers))

    def forward(self, x: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, one, other)
        return x


class PlanesInTurn(nn.Module):
    """A filter of a plane, then one along what is left of the three directions."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv3d(inside, outside, (1, 3, 3), stride, (0, 1, 1), bias=False),
            nn.BatchNorm3d(outside),
            nn.ReLU(),
            nn.Conv3d(outside, outside, (3, 1, 1), 1, (1, 0, 0), bias=False),
            nn.BatchNorm3d(outside),
        )
        self.across = nn.Conv3d(inside, outside, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.layers(x) + self.across(x))


class Apart(nn.Module):
    """QuartzNet's: long filters of each channel, then products, with what came in added."""

    def __init__(self, width: int, long: int, times: int) -> None:
        super().__init__()
        self.near = nn.ModuleList(
            nn.Conv1d(width, width, long, padding=long // 2, groups=width, bias=False)
            for _ in range(times)
        )
        self.mixed = nn.ModuleList(nn.Conv1d(width, width, 1, bias=False) for _ in range(times))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(times))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for near, mixed, norm in zip(self.near, self.mixed, self.norms):
            y = F.relu(norm(mixed(near(y))))
        return x + y


class Bags(nn.Module):
    """What a user did before, as means of bags of names; crossed layers of DCN, then deep ones."""

    def __init__(self, bags: int, rows: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="mean") for _ in range(bags))
        whole = bags * width
        self.crossed = nn.ModuleList(nn.Linear(whole, whole) for _ in range(3))
        self.deep = layers_of(whole, 1024, 512, 1)

    def forward(self, names: torch.Tensor) -> torch.Tensor:
        x = y = torch.cat([table(z) for table, z in zip(self.tables, names)], -1)
        for layer in self.crossed:
            y = x * layer(y) + y
        return self.deep(y)[:, 0]


class Bends(nn.Module):
    """Half of the columns say how each of the others is bent: quotients of squares, by pieces."""

    def __init__(self, columns: int, width: int, pieces: int) -> None:
        super().__init__()
        self.pieces, half = pieces, columns // 2
        self.net = nn.Sequential(
            nn.Linear(half, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, half * (3 * pieces + 1)),
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        still, moved = x.chunk(2, -1)
        told = self.net(still).unflatten(-1, (moved.shape[-1], -1)).float()
        wide, high, slopes = told.split((self.pieces, self.pieces, self.pieces + 1), -1)
        moved, stretched = bent(moved, edges(wide), edges(high), F.softplus(slopes) + 1e-3)
        return torch.cat((moved, still), -1), stretched.sum(-1)


def edges(told: torch.Tensor) -> torch.Tensor:
    """Of pieces that are at least 0.001 long, and 1 together."""
    lengths = 1e-3 + (1 - 1e-3 * told.shape[-1]) * told.softmax(-1)
    return F.pad(lengths.cumsum(-1), (1, 0))


def bent(
    x: torch.Tensor, across: torch.Tensor, up: torch.Tensor, slopes: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of `x` between 0 and 1, and the logarithm of how much it is stretched there."""
    x = x.clamp(1e-4, 1 - 1e-4)[..., None]
    at = (x >= across[..., 1:-1]).sum(-1, keepdim=True)
    left, right = across.gather(-1, at), across.gather(-1, at + 1)
    low, high = up.gather(-1, at), up.gather(-1, at + 1)
    start, end = slopes.gather(-1, at), slopes.gather(-1, at + 1)
    mean, part = (high - low) / (right - left), (x - left) / (right - left)
    both = part * (1 - part)
    below = mean + (start + end - 2 * mean) * both
    found = low + (high - low) * (mean * part.square() + start * both) / below
    rise = end * part.square() + 2 * mean * both + start * (1 - part).square()
    stretched = 2 * mean.log() + rise.log() - 2 * below.log()
    return found[..., 0], stretched[..., 0]


class Doubled(nn.Module):
    """Two convolutions with group norms before them, added to what came in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.GroupNorm(16, width),
            nn.SiLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.GroupNorm(16, width),
            nn.SiLU(),
            nn.Conv2d(width, width, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x)


class Codes(nn.Module):
    """A VQ-VAE: pictures to the codes that are nearest, and back."""

    def __init__(self, width: int, codes: int) -> None:
        super().__init__()
        self.into = nn.Sequential(
            nn.Conv2d(3, width // 2, 4, 2, 1),
            nn.SiLU(),
            nn.Conv2d(width // 2, width, 4, 2, 1),
            *(Doubled(width) for _ in range(3)),
        )
        self.table = nn.Embedding(codes, width)
        self.out = nn.Sequential(
            *(Doubled(width) for _ in range(3)),
            nn.ConvTranspose2d(width, width // 2, 4, 2, 1),
            nn.SiLU(),
            nn.ConvTranspose2d(width // 2, 3, 4, 2, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.into(x).permute(0, 2, 3, 1).float()
        table = self.table.weight
        apart = table.square().sum(-1) - 2 * (y.flatten(0, 2) @ table.T)
        found = self.table(apart.argmin(-1)).view_as(y)
        moved = F.mse_loss(found, y.detach()) + 0.25 * F.mse_loss(y, found.detach())
        back = self.out((y + (found - y).detach()).permute(0, 3, 1, 2))
        return F.l1_loss(back.float(), x) + moved


class MixedSeries(nn.Module):
    """TSMixer's: products over time, then over the series, each with a norm of both."""

    def __init__(self, length: int, series: int, inner: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm((length, series)) for _ in range(2))
        self.time = nn.Linear(length, length)
        self.up, self.down = nn.Linear(series, inner), nn.Linear(inner, series)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + F.dropout(F.relu(self.time(self.norms[0](x).mT)), 0.1, self.training).mT
        return x + self.down(F.relu(self.up(self.norms[1](x))))


class Pyramid(nn.Module):
    """What a backbone sees at four sizes, brought to the largest, added, then as the image."""

    def __init__(
        self, backbone: nn.Module, widths: tuple[int, ...], width: int, kinds: int
    ) -> None:
        super().__init__()
        self.backbone, self.out = backbone, nn.Conv2d(width, kinds, 1)
        self.across = nn.ModuleList(nn.Conv2d(wide, width, 1) for wide in widths)
        self.smooth = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
            )
            for _ in widths
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = self.backbone(x)[-len(self.across) :]
        how = {"mode": "bilinear", "align_corners": False}
        y, sums = None, 0
        for across, smooth, z in reversed(list(zip(self.across, self.smooth, seen))):
            z = across(z)
            y = z if y is None else z + F.interpolate(y, size=z.shape[2:], mode="nearest")
            sums = sums + F.interpolate(smooth(y), size=seen[0].shape[2:], **how)
        return F.interpolate(self.out(sums), size=x.shape[2:], **how)
