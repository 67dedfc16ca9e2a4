"""A sixth set of steps like those of mixed.py, of fields and settings that no set had: predicted
and committed, then measured.

python benchmarks/step_time/simulated.py OUT.jsonl .../sixth.py:step name=NAME
python benchmarks/step_time/recording/one_by_one.py OUT SECONDS LIST
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from models import LAST, PLAIN, decoder, of_timm, of_transformers
from sixth_pictures import (
    averaged,
    detr,
    dit_compiled,
    films,
    flux,
    organs_last,
    rays_compiled,
    views,
)
from torch import nn
from unseen import BF16, Step, training


class Around(nn.Module):
    """Point Transformer's: each number of a point's neighbours has a weight of its own."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.three = nn.Linear(width, 3 * width)
        self.places = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, width))
        self.weights = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, near: torch.Tensor, away: torch.Tensor) -> torch.Tensor:
        q, k, v = self.three(self.norm(x)).chunk(3, -1)
        place = self.places(away)
        weights = self.weights(q[:, None] - k[near] + place).softmax(1)
        return x + (weights * (v[near] + place)).sum(1)


def point_transformer(points: int, *, near: int = 16, width: int = 96, layers: int = 4) -> Step:
    parts = [Around(width) for _ in range(layers)]
    model = nn.ModuleList([nn.Linear(6, width), *parts, nn.Linear(width, 13)]).cuda()
    x = torch.randn(points, 6, device="cuda")
    index = torch.randint(0, points, (points, near), device="cuda")
    labels = torch.randint(0, 13, (points,), device="cuda")

    def loss() -> torch.Tensor:
        y, away = model[0](x), x[index, :3] - x[:, None, :3]
        for layer in model[1:-1]:
            y = layer(y, index, away)
        return F.cross_entropy(model[-1](y).float(), labels)

    return training(model, loss)


def gat(nodes: int, edges: int, *, width: int = 32, heads: int = 8, layers: int = 3) -> Step:
    """GATv2: scores of edges, their softmax over each node's, sums."""
    sizes = [128, *[heads * width] * layers]
    both = nn.ModuleList(nn.Linear(a, 2 * b) for a, b in zip(sizes, sizes[1:]))
    scores = nn.ParameterList(nn.Parameter(torch.randn(heads, width)) for _ in range(layers))
    parts = {"both": both, "scores": scores, "out": nn.Linear(sizes[-1], 40)}
    model = nn.ModuleDict(parts).cuda()
    x = torch.randn(nodes, 128, device="cuda")
    start, end = (torch.randint(0, nodes, (edges,), device="cuda") for _ in range(2))
    labels = torch.randint(0, 40, (nodes,), device="cuda")

    def loss() -> torch.Tensor:
        y = x
        for layer, own in zip(model["both"], model["scores"]):
            left, right = (z.unflatten(1, (heads, width)) for z in layer(y).chunk(2, 1))
            sent = left[start]
            score = (F.leaky_relu(sent + right[end], 0.2) * own).sum(-1).exp()
            total = score.new_zeros(nodes, heads).index_add(0, end, score)
            share = score / (total[end] + 1e-9)
            y = left.new_zeros(nodes, heads, width).index_add(0, end, sent * share[..., None])
            y = F.elu(y.flatten(1))
        return F.cross_entropy(model["out"](y), labels)

    return training(model, loss, autocast=False)


def checkpointed(batch: int, length: int) -> Step:
    """Every layer computed twice, all of it in bf16, NAdam, clipped gradients."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**decoder(2048, 5632, 8, 16, 16, 32_000), use_cache=False)
    model = LlamaForCausalLM(config).to("cuda", BF16)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-4)
    x = torch.randint(0, 32_000, (batch, length), device="cuda")

    def step() -> torch.Tensor:
        loss = model(input_ids=x, labels=x).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


class Experts(nn.Module):
    """Each word goes to the two best of some experts, as far as these have room."""

    def __init__(self, width: int, inner: int, number: int) -> None:
        super().__init__()
        self.route, self.number = nn.Linear(width, number, bias=False), number
        self.up = nn.Parameter(0.02 * torch.randn(number, width, 2 * inner))
        self.down = nn.Parameter(0.02 * torch.randn(number, inner, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        words, width = x.shape
        room = 5 * words // (2 * self.number)
        weights, chosen = self.route(x).float().softmax(-1).topk(2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        which = F.one_hot(chosen.flatten(), self.number)
        place = ((which.cumsum(0) - 1) * which).sum(-1)
        fits = place < room
        slot = torch.where(fits, chosen.flatten() * room + place, self.number * room)
        given = x.new_zeros(self.number * room + 1, width)
        given = given.index_copy(0, slot, x.repeat_interleave(2, 0))
        gate, up = torch.bmm(given[:-1].view(self.number, room, width), self.up).chunk(2, -1)
        found = torch.bmm(F.silu(gate) * up, self.down).flatten(0, 1)
        found = F.pad(found, (0, 0, 0, 1))[slot].unflatten(0, (words, 2))
        return (found * weights[..., None].to(found.dtype)).sum(1)


class Routed(nn.Module):
    def __init__(self, width: int, inner: int, number: int, heads: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.three, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.experts, self.heads = Experts(width, inner, number), heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.three(self.norms[0](x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.experts(self.norms[1](x).flatten(0, 1)).view_as(x)


def experts(batch: int, length: int, *, width: int = 1024, layers: int = 6) -> Step:
    body = nn.Sequential(*(Routed(width, 1408, 16, 16) for _ in range(layers)))
    parts = {"table": nn.Embedding(32_000, width), "body": body, "out": nn.Linear(width, 32_000)}
    model = nn.ModuleDict(parts).to("cuda", BF16)
    x = torch.randint(0, 32_000, (batch, length), device="cuda")

    def loss() -> torch.Tensor:
        y = model["out"](model["body"](model["table"](x)))
        return F.cross_entropy(y.flatten(0, 1).float(), x.flatten())

    return training(model, loss, autocast=False, fused=True)


class Chunks(nn.Module):
    """Mamba-2's: what decays is summed in chunks, and handed from one to the next."""

    def __init__(self, width: int, heads: int, state: int, chunk: int) -> None:
        super().__init__()
        self.heads, self.state, self.chunk = heads, state, chunk
        self.norm, self.into = nn.RMSNorm(width), nn.Linear(width, 4 * width + 2 * state + heads)
        groups = 2 * width + 2 * state
        self.short = nn.Conv1d(groups, groups, 4, padding=3, groups=groups)
        self.rate, self.out = nn.Parameter(torch.zeros(heads)), nn.Linear(2 * width, width)
        self.sizes = [2 * width, groups, heads]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        gate, y, times = self.into(self.norm(x)).split(self.sizes, -1)
        y = F.silu(self.short(y.transpose(1, 2))[..., :length].transpose(1, 2))
        values, keys, queries = y.split([self.sizes[0], self.state, self.state], -1)
        times = F.softplus(times.float())
        decay = (-self.rate.exp() * times).unflatten(1, (-1, self.chunk)).cumsum(2)
        values = values.unflatten(-1, (self.heads, -1)) * times[..., None].to(values.dtype)
        values, keys, queries = (t.unflatten(1, (-1, self.chunk)) for t in (values, keys, queries))
        far = decay[:, :, :, None] - decay[:, :, None]
        mask = torch.ones(self.chunk, self.chunk, device=x.device, dtype=torch.bool).tril()
        share = far.masked_fill(~mask[..., None], -torch.inf).exp().to(x.dtype)
        inside = torch.einsum("bcln,bcsn->bcls", queries, keys)
        found = torch.einsum("bcls,bclsh,bcshp->bclhp", inside, share, values)
        left = (decay[:, :, -1:] - decay).exp().to(x.dtype)
        states = torch.einsum("bcsn,bcsh,bcshp->bchpn", keys, left, values)
        whole = decay[:, :, -1].exp().to(x.dtype)
        state, before = torch.zeros_like(states[:, 0]), []
        for number in range(states.shape[1]):
            before.append(state)
            state = whole[:, number, :, None, None] * state + states[:, number]
        more = torch.einsum("bcln,bchpn->bclhp", queries, torch.stack(before, 1))
        found = found + more * decay.exp()[..., None].to(x.dtype)
        return x + self.out(found.flatten(1, 2).flatten(2) * F.silu(gate))


def chunks(batch: int, length: int, *, width: int = 768, layers: int = 4) -> Step:
    body = nn.Sequential(*(Chunks(width, 24, 64, 64) for _ in range(layers)))
    parts = {"table": nn.Embedding(32_000, width), "body": body, "out": nn.Linear(width, 32_000)}
    model = nn.ModuleDict(parts).cuda()
    x = torch.randint(0, 32_000, (batch, length), device="cuda")

    def loss() -> torch.Tensor:
        y = model["out"](model["body"](model["table"](x)))
        return F.cross_entropy(y.flatten(0, 1).float(), x.flatten())

    return training(model, loss)


def games(runs: int, length: int, *, width: int = 512) -> Step:
    """PPO over sequences: pictures, an LSTM, clipped ratios, a worth that is clipped too."""
    eye = nn.Sequential(
        *(nn.Conv2d(3, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU()),
        *(nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 49, width), nn.ReLU()),
    )
    parts = {"eye": eye, "lstm": nn.LSTM(width, width), "acts": nn.Linear(width, 15)}
    model = nn.ModuleDict({**parts, "worth": nn.Linear(width, 1)}).cuda()
    x = torch.randint(0, 256, (length, runs, 3, 84, 84), device="cuda", dtype=torch.uint8)
    acts = torch.randint(0, 15, (length, runs, 1), device="cuda")
    before, better, back, old = (torch.randn(length, runs, device="cuda") for _ in range(4))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=2.5e-4)

    def step() -> torch.Tensor:
        y = model["eye"](x.flatten(0, 1).float() / 255).unflatten(0, (length, runs))
        y = model["lstm"](y)[0]
        chances = model["acts"](y).log_softmax(-1)
        ratio = (chances.gather(2, acts).squeeze(2) - before).exp()
        clipped = torch.min(ratio * better, ratio.clamp(0.8, 1.2) * better).mean()
        worth = model["worth"](y).squeeze(2)
        near = old + (worth - old).clamp(-0.2, 0.2)
        wrong = torch.max((worth - back).square(), (near - back).square()).mean()
        loss = 0.5 * wrong - clipped + 0.01 * (chances.exp() * chances).sum(-1).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


class Gated(nn.Module):
    """WaveNet's layers as flows of speech have them."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.into = nn.ModuleList(
            nn.Conv1d(width, 2 * width, 5, padding=2 * 2**i, dilation=2**i) for i in range(layers)
        )
        self.out = nn.ModuleList(nn.Conv1d(width, 2 * width, 1) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total: Any = 0
        for into, out in zip(self.into, self.out):
            a, b = into(x).chunk(2, 1)
            more, kept = out(a.tanh() * b.sigmoid()).chunk(2, 1)
            x, total = x + more, total + kept
        return total


def speaks(batch: int, frames: int, *, width: int = 192) -> Step:
    """VITS: a posterior of spectra, couplings, a decoder to waves, in fp32."""
    up: list[nn.Module] = []
    for a, b, stride in ((512, 256, 8), (256, 128, 8), (128, 64, 2)):
        up += [nn.LeakyReLU(0.1), nn.ConvTranspose1d(a, b, 2 * stride, stride, stride // 2)]
        up += [nn.LeakyReLU(0.1), nn.Conv1d(b, b, 7, padding=9, dilation=3)]
    half = width // 2
    parts: dict[str, nn.Module] = {
        "spectra": nn.Conv1d(513, width, 1),
        "posterior": Gated(width, 8),
        "both": nn.Conv1d(width, 2 * width, 1),
        "before": nn.ModuleList(nn.Conv1d(half, width, 1) for _ in range(4)),
        "flows": nn.ModuleList(Gated(width, 4) for _ in range(4)),
        "after": nn.ModuleList(nn.Conv1d(width, half, 1) for _ in range(4)),
        "waves": nn.Sequential(nn.Conv1d(width, 512, 7, padding=3), *up, nn.Conv1d(64, 1, 7, 1, 3)),
    }
    model = nn.ModuleDict(parts).cuda()
    x = torch.randn(batch, 513, frames, device="cuda")
    wanted = torch.randn(batch, 1, 128 * frames, device="cuda")

    def loss() -> torch.Tensor:
        both = model["both"](model["posterior"](model["spectra"](x)))
        mean, spread = both.chunk(2, 1)
        z = mean + torch.randn_like(mean) * spread.exp()
        y = z
        for before, flow, after in zip(model["before"], model["flows"], model["after"]):
            one, other = y.chunk(2, 1)
            y = torch.cat((one, other + after(flow(before(one)))), 1).flip(1)
        far = (0.5 * y.square() - spread).mean()
        return F.l1_loss(model["waves"](z), wanted) + far

    return training(model, loss, autocast=False)


ROBERTA = {
    "hidden_size": 768,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "vocab_size": 250_002,
    "max_position_embeddings": 514,
}
STEPS: dict[str, Callable[[], Step]] = {
    "organs_last": lambda: organs_last(4, 96),
    "films": lambda: films(6, 9, 128),
    "speaks": lambda: speaks(64, 256),
    "swin_v2": lambda: of_timm("swinv2_tiny_window8_256", 192, 256),
    "maxvit": lambda: of_timm("maxvit_tiny_rw_224", 192),
    "pvt_last": lambda: of_timm("pvt_v2_b1", 192, **LAST),
    "dual_path_fp32": lambda: of_timm("dpn68b", 96, **PLAIN),
    "detr": lambda: detr(64, 512),
    "flux": lambda: flux(12, 32, 256),
    "experts": lambda: experts(8, 1024),
    "chunks": lambda: chunks(32, 1024),
    "checkpointed": lambda: checkpointed(12, 1024),
    "many_words": lambda: of_transformers("XLMRobertaForMaskedLM", ROBERTA, 24, 256),
    "point_transformer": lambda: point_transformer(80_000),
    "gat": lambda: gat(60_000, 900_000),
    "games": lambda: games(320, 64),
    "views": lambda: views(512),
    "averaged": lambda: averaged(192, 224),
    "dit_compiled": lambda: dit_compiled(48, 256),
    "rays_compiled": lambda: rays_compiled(4096, 96),
}


def step(*, name: str) -> Step:
    return STEPS[name]()
