"""Parts of networks of compiled_sixth.py."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class NanoBlock(nn.Module):
    """nanoGPT's: layer norms and products without biases, exact GELU."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norms = nn.ModuleList(nn.LayerNorm(width, bias=False) for _ in range(2))
        self.three, self.out = (
            nn.Linear(width, 3 * width, bias=False),
            nn.Linear(width, width, bias=False),
        )
        self.up, self.down = (
            nn.Linear(width, 4 * width, bias=False),
            nn.Linear(4 * width, width, bias=False),
        )
        self.dropped = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.three(self.norms[0](x)).split(width, 2)
        )
        rate = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=rate, is_causal=True)
        y = y.transpose(1, 2).contiguous().view(batch, length, width)
        x = x + self.dropped(self.out(y))
        return x + self.dropped(self.down(F.gelu(self.up(self.norms[1](x)))))


class Nano(nn.Module):
    """nanoGPT: learnt places, and one table for words that come in and go out."""

    def __init__(
        self, words: int, width: int, heads: int, layers: int, length: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.dropped, self.norm = nn.Dropout(dropout), nn.LayerNorm(width, bias=False)
        self.blocks = nn.ModuleList(NanoBlock(width, heads, dropout) for _ in range(layers))
        self.out = nn.Linear(width, words, bias=False)
        self.table.weight = self.out.weight

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        place = torch.arange(x.shape[1], device=x.device)
        y = self.dropped(self.table(x) + self.places(place))
        for block in self.blocks:
            y = block(y)
        scores = self.out(self.norm(y))
        return F.cross_entropy(scores.view(-1, scores.shape[-1]), labels.view(-1), ignore_index=-1)


def normed(x: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, (x.shape[-1],))


class SpeedBlock(nn.Module):
    """As those who race to train GPT-2: norms without weights, turned queries, squares of ReLU."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.up, self.down = (
            nn.Linear(width, 4 * width, bias=False),
            nn.Linear(4 * width, width, bias=False),
        )
        self.share = nn.Parameter(torch.tensor([1.0, 0.0]))

    def forward(
        self, x: torch.Tensor, first: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> torch.Tensor:
        x = self.share[0] * x + self.share[1] * first
        y, seen = normed(x), []
        for layer in (self.q, self.k):
            a, b = normed(layer(y).unflatten(-1, (self.heads, -1))).chunk(2, -1)
            seen.append(torch.cat((a * cos + b * sin, b * cos - a * sin), -1).to(a.dtype))
        three = (*seen, self.v(y).unflatten(-1, (self.heads, -1)))
        q, k, v = (part.transpose(1, 2) for part in three)
        y = F.scaled_dot_product_attention(q, k, v.to(q.dtype), is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(F.relu(self.up(normed(x))).square())


class Speed(nn.Module):
    def __init__(self, words: int, width: int, heads: int, layers: int, length: int) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(words, width), nn.Linear(width, words, bias=False)
        self.blocks = nn.ModuleList(SpeedBlock(width, heads) for _ in range(layers))
        pitch = 1e-4 ** torch.linspace(0, 1, width // heads // 2)
        angles = torch.outer(torch.arange(length), pitch)[:, None]
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        first = y = normed(self.table(x))
        for block in self.blocks:
            y = block(y, first, self.cos, self.sin)
        scores = 30 * torch.tanh(self.out(normed(y)).float() / 30)
        return F.cross_entropy(scores.flatten(0, 1), labels.flatten())


class ChunksOfStates(nn.Module):
    """Mamba-2's: states that fall by head, in chunks by products, between chunks by sums."""

    def __init__(self, width: int, heads: int, states: int, chunk: int) -> None:
        super().__init__()
        inner = 2 * width
        self.widths, self.heads = (inner, inner + 2 * states, heads), heads
        self.parts, self.chunk = (inner, states, states), chunk
        self.norm, self.into = nn.RMSNorm(width), nn.Linear(width, sum(self.widths), bias=False)
        self.near = nn.Conv1d(self.widths[1], self.widths[1], 4, padding=3, groups=self.widths[1])
        self.fall = nn.Parameter(torch.linspace(1, 16, heads).log())
        self.offset, self.passed = nn.Parameter(torch.zeros(heads)), nn.Parameter(torch.ones(heads))
        self.after, self.out = nn.RMSNorm(inner), nn.Linear(inner, width, bias=False)
        self.register_buffer("past", torch.ones(chunk, chunk).tril().bool(), persistent=False)

    def in_chunks(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(1, (-1, self.chunk))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, told, rate = self.into(self.norm(x)).split(self.widths, -1)
        told = F.silu(self.near(told.mT)[..., : x.shape[1]].mT)
        y, into, seen = (self.in_chunks(part) for part in told.split(self.parts, -1))
        y = y.unflatten(-1, (self.heads, -1)).transpose(2, 3)
        rate = self.in_chunks(F.softplus(rate.float() + self.offset)).transpose(2, 3)
        kept = (-rate * self.fall.exp()[:, None]).cumsum(-1)
        new = y * rate[..., None].to(y.dtype)

        far = kept[..., :, None] - kept[..., None, :]
        fall = far.masked_fill(~self.past, -torch.inf).exp()
        inside = ((seen @ into.mT)[:, :, None] * fall).to(new.dtype) @ new

        left = (kept[..., -1:] - kept).exp()[..., None]
        states = (into[:, :, None] * left).to(new.dtype).mT @ new
        whole = kept[..., -1].transpose(1, 2).cumsum(-1)
        before = whole - kept[..., -1].transpose(1, 2)
        earlier = torch.ones(whole.shape[-1], whole.shape[-1], device=x.device).tril(-1).bool()
        far = before[..., :, None] - whole[..., None, :]
        weights = far.masked_fill(~earlier, -torch.inf).exp().to(states.dtype)
        handed = weights @ states.transpose(1, 2).flatten(3)
        handed = handed.unflatten(-1, states.shape[-2:]).transpose(1, 2)
        between = (seen[:, :, None] * kept.exp()[..., None]).to(handed.dtype) @ handed

        found = inside + between + self.passed[:, None, None] * y
        found = found.transpose(2, 3).flatten(3).flatten(1, 2)
        return x + self.out(self.after(found * F.silu(gate)))


class TwoOfExperts(nn.Module):
    """Every word goes to two experts, which have room for as many words as each other."""

    def __init__(self, width: int, inner: int, number: int, room: float) -> None:
        super().__init__()
        self.number, self.room, self.gate = number, room, nn.Linear(width, number, bias=False)
        self.up = nn.Parameter(0.02 * torch.randn(number, width, 2 * inner))
        self.down = nn.Parameter(0.02 * torch.randn(number, inner, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        words = x.flatten(0, 1)
        number, room = len(words), int(2 * self.room * len(words) / self.number)
        best, which = self.gate(words).float().softmax(-1).topk(2, -1)
        weights, which = (best / best.sum(-1, keepdim=True)).flatten(), which.flatten()
        chosen = F.one_hot(which, self.number)
        place = (chosen.cumsum(0) * chosen).sum(-1) - 1
        taken = place < room
        slots = torch.where(taken, which * room + place, self.number * room)
        names = torch.arange(2 * number, device=x.device) // 2
        rows = torch.full((self.number * room + 1,), number, device=x.device)
        rows = rows.scatter(0, slots, names)[:-1]
        nothing = torch.zeros_like(words[:1])
        sent = torch.cat((words, nothing))[rows].view(self.number, room, -1)
        a, b = (sent @ self.up).chunk(2, -1)
        found = torch.cat((((F.silu(a) * b) @ self.down).flatten(0, 1), nothing))
        back = found[slots] * (weights * taken).to(found.dtype)[:, None]
        return back.view(number, 2, -1).sum(1).view_as(x)


class Conformer(nn.Module):
    """Half a product pair, attention, a convolution of each channel, the other half."""

    def __init__(self, width: int, heads: int, near: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropped = heads, nn.Dropout(dropout)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.halves = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width),
                nn.Linear(width, 4 * width),
                nn.SiLU(),
                nn.Dropout(dropout),
                nn.Linear(4 * width, width),
                nn.Dropout(dropout),
            )
            for _ in range(2)
        )
        self.three, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.gated, self.over = nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 1)
        self.near = nn.Conv1d(width, width, near, padding=near // 2, groups=width)
        self.of_near = nn.BatchNorm1d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + 0.5 * self.halves[0](x)
        parts = self.three(self.norms[0](x)).unflatten(-1, (3, self.heads, -1))
        y = F.scaled_dot_product_attention(*parts.permute(2, 0, 3, 1, 4))
        x = x + self.dropped(self.out(y.transpose(1, 2).flatten(2)))
        y = F.glu(self.gated(self.norms[1](x).mT), 1)
        y = self.over(F.silu(self.of_near(self.near(y))))
        x = x + self.dropped(y.mT)
        x = x + 0.5 * self.halves[1](x)
        return self.norms[2](x)


class Listener(nn.Module):
    """Two strided convolutions of a spectrogram, Conformer's blocks, chances of pieces of words."""

    def __init__(self, bands: int, width: int, heads: int, layers: int, pieces: int) -> None:
        super().__init__()
        self.smaller = nn.Sequential(
            nn.Conv2d(1, width, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, 2, 1),
            nn.ReLU(),
        )
        self.into = nn.Linear(width * bands // 4, width)
        self.blocks = nn.Sequential(*(Conformer(width, heads, 31, 0.1) for _ in range(layers)))
        self.out = nn.Linear(width, pieces)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.smaller(x[:, None]).transpose(1, 2).flatten(2)
        return self.out(self.blocks(self.into(y)))
