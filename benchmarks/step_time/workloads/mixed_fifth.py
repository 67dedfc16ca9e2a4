"""One more set of steps like those of mixed.py: predicted and committed, then measured.

python benchmarks/step_time/simulated.py OUT.jsonl .../mixed_fifth.py:step name=NAME
python benchmarks/step_time/recording/record.py --out OUT --step .../mixed_fifth.py:step name=NAME
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from mixed import compiled_text
from models import LAST, PLAIN, decoder, of_timm, of_transformers, speech_to_letters
from torch import nn
from unseen import BF16, Step, training

FIELDS = (400_000, 250_000, 150_000, 90_000, 40_000, 20_000, 10_000, *[2_000] * 12, *[100] * 20)


def preferences(batch: int, length: int) -> Step:
    """DPO in bf16: what was chosen and what was not, beside a model that rests."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(**decoder(1024, 2816, 12, 16, 4, 32_000), use_cache=False)
    model, resting = (Qwen2ForCausalLM(config).to("cuda", BF16) for _ in range(2))
    resting.requires_grad_(False).eval()
    x = torch.randint(0, 32_000, (2 * batch, length), device="cuda")

    def likely(net: nn.Module) -> torch.Tensor:
        found = net(input_ids=x).logits[:, :-1].log_softmax(-1)
        return found.gather(2, x[:, 1:, None]).squeeze(2).sum(1)

    def loss() -> torch.Tensor:
        with torch.no_grad():
            before = likely(resting)
        better, worse = (likely(model) - before).chunk(2)
        return -F.logsigmoid(0.1 * (better - worse)).mean()

    return training(model, loss, autocast=False)


def joint(batch: int, size: int, words: int) -> Step:
    """Stable Diffusion 3's transformer of pictures and words, trained as a flow."""
    from diffusers import SD3Transformer2DModel

    model = SD3Transformer2DModel(
        sample_size=size,
        num_layers=8,
        attention_head_dim=64,
        num_attention_heads=16,
        joint_attention_dim=2048,
        caption_projection_dim=1024,
        pooled_projection_dim=1024,
    ).cuda()
    x, noise = (torch.randn(batch, 16, size, size, device="cuda") for _ in range(2))
    told = torch.randn(batch, words, 2048, device="cuda")
    pooled = torch.randn(batch, 1024, device="cuda")
    times = torch.rand(batch, device="cuda")

    def loss() -> torch.Tensor:
        at = times[:, None, None, None]
        found = model((1 - at) * x + at * noise, told, pooled, 1000 * times).sample
        return F.mse_loss(found.float(), noise - x)

    return training(model, loss)


class Separated(nn.Module):
    """A block of Conv-TasNet: norms over all of a sound, a filter for each channel."""

    def __init__(self, width: int, inner: int, dilation: int) -> None:
        super().__init__()
        deep = nn.Conv1d(inner, inner, 3, padding=dilation, dilation=dilation, groups=inner)
        self.layers = nn.Sequential(
            *(nn.Conv1d(width, inner, 1), nn.PReLU(), nn.GroupNorm(1, inner)),
            *(deep, nn.PReLU(), nn.GroupNorm(1, inner), nn.Conv1d(inner, width, 1)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x)


def speakers(batch: int, length: int, *, width: int = 128, wide: int = 512) -> Step:
    parts = {
        "down": nn.Conv1d(1, wide, 16, 8),
        "in": nn.Conv1d(wide, width, 1),
        "blocks": nn.Sequential(*(Separated(width, wide, 2 ** (i % 8)) for i in range(16))),
        "masks": nn.Conv1d(width, 2 * wide, 1),
        "up": nn.ConvTranspose1d(wide, 1, 16, 8),
    }
    model = nn.ModuleDict(parts).cuda()
    x = torch.randn(batch, 1, length, device="cuda")
    wanted = torch.randn(batch, 2, length, device="cuda")

    def loss() -> torch.Tensor:
        seen = model["down"](x).relu()
        masks = model["masks"](model["blocks"](model["in"](seen))).sigmoid()
        each = masks.unflatten(1, (2, wide)) * seen[:, None]
        found = model["up"](each.flatten(0, 1)).unflatten(0, (batch, 2)).squeeze(2)
        rest = (found - wanted).square().sum(-1)
        return 10 * torch.log10(rest / wanted.square().sum(-1)).mean()

    return training(model, loss, autocast=False)


class Sampled(nn.Module):
    """GraphSAGE's: a node and the mean of some that are near."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.own, self.near = (nn.Linear(inside, outside) for _ in range(2))
        self.norm = nn.BatchNorm1d(outside)

    def forward(self, x: torch.Tensor, near: torch.Tensor) -> torch.Tensor:
        return F.dropout(self.norm(self.own(x) + self.near(x[near].mean(1))).relu(), 0.3)


def sage(nodes: int, degree: int, *, width: int = 256) -> Step:
    layers = [Sampled(128, width), Sampled(width, width)]
    model = nn.ModuleList([*layers, nn.Linear(width, 47)]).cuda()
    x = torch.randn(nodes, 128, device="cuda")
    near = torch.randint(0, nodes, (nodes, degree), device="cuda")
    labels = torch.randint(0, 47, (nodes,), device="cuda")

    def loss() -> torch.Tensor:
        y = x
        for layer in model[:-1]:
            y = layer(y, near)
        return F.cross_entropy(model[-1](y), labels)

    return training(model, loss, autocast=False)


def layers_of(*sizes: int) -> nn.Sequential:
    parts: list[nn.Module] = []
    for a, b in zip(sizes, sizes[1:]):
        parts += [nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU(), nn.Dropout(0.2)]
    return nn.Sequential(*parts)


def clicks(batch: int, fields: Sequence[int], *, width: int = 32) -> Step:
    """DeepFM: one table for all fields, pairs of them, layers."""
    rows = sum(fields)
    parts = {
        "table": nn.Embedding(rows, width),
        "first": nn.Embedding(rows, 1),
        "deep": layers_of(len(fields) * width, 1024, 512, 256),
        "out": nn.Linear(256, 1),
    }
    model = nn.ModuleDict(parts).cuda()
    start = torch.tensor([0, *fields[:-1]], device="cuda").cumsum(0)
    x = torch.stack([torch.randint(0, n, (batch,), device="cuda") for n in fields], 1)
    wanted = torch.randint(0, 2, (batch,), device="cuda").float()

    def loss() -> torch.Tensor:
        rows = x + start
        each = model["table"](rows)
        pairs = (each.sum(1).square() - each.square().sum(1)).sum(1) / 2
        found = pairs + model["first"](rows).sum((1, 2))
        found = found + model["out"](model["deep"](each.flatten(1))).squeeze(1)
        return F.binary_cross_entropy_with_logits(found, wanted)

    return training(model, loss, autocast=False)


def bought_next(batch: int, length: int, *, things: int = 200_000, width: int = 256) -> Step:
    """SASRec: what was bought, what came next, and something else."""
    layer = nn.TransformerEncoderLayer(width, 4, width, 0.2, batch_first=True, norm_first=True)
    parts = {
        "table": nn.Embedding(things, width, padding_idx=0),
        "places": nn.Embedding(length, width),
        "body": nn.TransformerEncoder(layer, 4, enable_nested_tensor=False),
        "norm": nn.LayerNorm(width),
    }
    model = nn.ModuleDict(parts).cuda()
    x, after, other = (torch.randint(1, things, (batch, length), device="cuda") for _ in range(3))
    places = torch.arange(length, device="cuda")
    mask = nn.Transformer.generate_square_subsequent_mask(length, device="cuda")

    def loss() -> torch.Tensor:
        y = model["table"](x) * width**0.5 + model["places"](places)
        y = model["norm"](model["body"](y, mask=mask, is_causal=True))
        good, bad = ((y * model["table"](index)).sum(-1) for index in (after, other))
        return -(F.logsigmoid(good.float()) + F.logsigmoid(-bad.float())).mean()

    return training(model, loss)


def planes(points: int, *, size: int = 256, width: int = 32) -> Step:
    """Three planes of features that points look at, then a small network."""
    body = nn.Sequential(nn.Linear(width, 128), nn.Softplus(), nn.Linear(128, 128), nn.Softplus())
    model = nn.ModuleDict({"body": body, "out": nn.Linear(128, 4)}).cuda()
    model.planes = nn.Parameter(0.1 * torch.randn(3, width, size, size, device="cuda"))
    x = 2 * torch.rand(points, 3, device="cuda") - 1
    wanted = torch.rand(points, 4, device="cuda")

    def loss() -> torch.Tensor:
        on = torch.stack((x[:, :2], x[:, 1:], x[:, ::2]))[:, None]
        seen = F.grid_sample(model.planes, on, align_corners=False).squeeze(2)
        return F.mse_loss(model["out"](model["body"](seen.sum(0).T)), wanted)

    return training(model, loss, autocast=False)


class Unit(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.one, self.other = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.other(self.one(x.relu()).relu())


def impala(batch: int) -> Step:
    """PPO with IMPALA's network: pictures of bytes, clipped ratios, clipped gradients."""
    parts: list[nn.Module] = []
    for a, b in ((4, 32), (32, 64), (64, 64)):
        parts += [nn.Conv2d(a, b, 3, padding=1), nn.MaxPool2d(3, 2, 1), Unit(b), Unit(b)]
    body = nn.Sequential(*parts, nn.ReLU(), nn.Flatten(), nn.Linear(64 * 11 * 11, 512), nn.ReLU())
    model = nn.ModuleDict({"body": body, "acts": nn.Linear(512, 18), "worth": nn.Linear(512, 1)})
    model = model.cuda()
    x = torch.randint(0, 256, (batch, 4, 84, 84), device="cuda", dtype=torch.uint8)
    acts = torch.randint(0, 18, (batch,), device="cuda")
    before, better, back = (torch.randn(batch, device="cuda") for _ in range(3))
    optimizer = torch.optim.Adam(model.parameters(), lr=2.5e-4, eps=1e-5)

    def step() -> torch.Tensor:
        y = model["body"](x.float() / 255)
        chances = torch.distributions.Categorical(logits=model["acts"](y), validate_args=False)
        ratio = (chances.log_prob(acts) - before).exp()
        clipped = torch.min(ratio * better, ratio.clamp(0.9, 1.1) * better)
        worth = (model["worth"](y).squeeze(1) - back).square().mean()
        loss = 0.5 * worth - clipped.mean() - 0.01 * chances.entropy().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def critics(batch: int, number: int, *, width: int = 512) -> Step:
    """REDQ: many critics at once, as products of stacks, and targets that follow slowly."""
    sizes = (64, width, width, width, 1)
    shapes = list(zip(sizes, sizes[1:]))
    weights = [nn.Parameter(0.05 * torch.randn(number, a, b, device="cuda")) for a, b in shapes]
    offsets = [nn.Parameter(torch.zeros(number, 1, b, device="cuda")) for _, b in shapes]
    own = [*weights, *offsets]
    slow = [p.detach().clone() for p in own]
    x, later = (torch.randn(batch, 64, device="cuda") for _ in range(2))
    reward = torch.randn(batch, 1, device="cuda")
    optimizer = torch.optim.Adam(own, lr=3e-4)

    def worth(values: Sequence[torch.Tensor], y: torch.Tensor) -> torch.Tensor:
        y = y.expand(number, -1, -1)
        half = len(values) // 2
        for i, (weight, offset) in enumerate(zip(values[:half], values[half:])):
            y = torch.baddbmm(offset, y, weight)
            y = y.relu() if i < half - 1 else y
        return y

    def step() -> torch.Tensor:
        with torch.no_grad():
            wanted = reward + 0.99 * worth(slow, later)[:2].amin(0)
        loss = (worth(own, x) - wanted).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch._foreach_lerp_(slow, [p.detach() for p in own], 0.005)
        return loss.detach()

    return step


def periodic(batch: int, columns: int, *, width: int = 24, compiled: bool = False) -> Step:
    """Numbers of a table as waves, each with a layer of its own, then layers of all."""
    parts = {"body": layers_of(columns * width, 1024, 1024, 512), "out": nn.Linear(512, 10)}
    model = nn.ModuleDict(parts).cuda()
    model.rates = nn.Parameter(torch.randn(columns, 24, device="cuda"))
    model.weights = nn.Parameter(0.1 * torch.randn(columns, 48, width, device="cuda"))
    x = torch.randn(batch, columns, device="cuda")
    labels = torch.randint(0, 10, (batch,), device="cuda")

    def found(x: torch.Tensor) -> torch.Tensor:
        angles = 6.2832 * model.rates * x[..., None]
        waves = torch.cat((angles.cos(), angles.sin()), -1)
        each = torch.einsum("bcw,cwo->bco", waves, model.weights).relu()
        return model["out"](model["body"](each.flatten(1)))

    run = torch.compile(found) if compiled else found
    return training(model, lambda: F.cross_entropy(run(x).float(), labels))


def volumes(batch: int, size: int) -> Step:
    """V-Net's: residual blocks of 5 x 5 x 5, strides instead of pooling, dice."""

    def block(inside: int, outside: int) -> nn.Sequential:
        norm = nn.InstanceNorm3d(outside, affine=True)
        return nn.Sequential(nn.Conv3d(inside, outside, 5, padding=2), norm, nn.PReLU(outside))

    widths: Sequence[int] = (16, 32, 64)
    parts: dict[str, Any] = {
        "in": block(1, 16),
        "down": nn.ModuleList(nn.Conv3d(a, b, 2, 2) for a, b in zip(widths, widths[1:])),
        "left": nn.ModuleList(block(a, a) for a in widths[1:]),
        "up": nn.ModuleList(nn.ConvTranspose3d(a, a // 2, 2, 2) for a in widths[:0:-1]),
        "right": nn.ModuleList(block(a, a // 2) for a in widths[:0:-1]),
        "out": nn.Conv3d(16, 2, 1),
    }
    model = nn.ModuleDict(parts).cuda()
    x = torch.randn(batch, 1, size, size, size, device="cuda")
    labels = torch.randint(0, 2, (batch, 1, size, size, size), device="cuda").float()

    def loss() -> torch.Tensor:
        y, kept = model["in"](x), []
        for down, left in zip(model["down"], model["left"]):
            kept.append(y)
            y = down(y)
            y = y + left(y)
        for up, right in zip(model["up"], model["right"]):
            y = right(torch.cat((up(y), kept.pop()), 1))
        found = model["out"](y).float().softmax(1)[:, 1:]
        return 1 - 2 * (found * labels).sum() / (found.square().sum() + labels.square().sum())

    return training(model, loss)


MODERN = {
    "hidden_size": 768,
    "intermediate_size": 1152,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "vocab_size": 50_368,
}
STEPS: dict[str, Callable[[], Step]] = {
    "hiera": lambda: of_timm("hiera_tiny_224", 192),
    "hgnet_fp32": lambda: of_timm("hgnetv2_b4", 96, **PLAIN),
    "convmixer_last": lambda: of_timm("convmixer_768_32", 48, **LAST),
    "volo": lambda: of_timm("volo_d1_224", 128),
    "modernbert": lambda: of_transformers("ModernBertForMaskedLM", MODERN, 32, 512),
    "preferences": lambda: preferences(16, 1024),
    "joint": lambda: joint(36, 64, 128),
    "hubert": lambda: speech_to_letters(24, 10, 64),
    "speakers": lambda: speakers(8, 32_000),
    "sage": lambda: sage(60_000, 12),
    "clicks": lambda: clicks(32_768, FIELDS),
    "bought_next": lambda: bought_next(512, 200),
    "planes": lambda: planes(1 << 20),
    "impala": lambda: impala(1024),
    "critics": lambda: critics(8192, 10),
    "volumes": lambda: volumes(4, 96),
    "periodic": lambda: periodic(65_536, 64),
    "periodic_compiled": lambda: periodic(65_536, 96, compiled=True),
    "gemma_compiled": lambda: compiled_text(
        "Gemma", decoder(2048, 8192, 3, 8, 1, 64_000, head_dim=256), 4, 1024, is_short=True
    ),
}


def step(*, name: str) -> Step:
    return STEPS[name]()
