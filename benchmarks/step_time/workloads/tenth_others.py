"""Steps of tenth.py that are written here: sound, graphs, points."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from ninth_others import layers_of
from torch import nn
from unseen import BF16, Step, training

from vramcast_zoo.suites.training import training_step


def stereo_latents(batch: int, length: int) -> Step:
    """Stable Audio's autoencoder: waves of two sides, losses of spectra of three lengths."""
    from diffusers import AutoencoderOobleck

    sizes = {"encoder_hidden_size": 64, "decoder_channels": 64, "decoder_input_channels": 32}
    model = AutoencoderOobleck(**sizes).cuda()
    x = torch.randn(batch, 2, length, device="cuda")
    windows = {size: torch.hann_window(size, device="cuda") for size in (512, 1024, 2048)}

    def spectra(waves: torch.Tensor, size: int) -> torch.Tensor:
        waves = waves.flatten(0, 1)
        found = torch.stft(waves, size, size // 4, window=windows[size], return_complex=True)
        return found.abs().clamp(min=1e-5)

    def loss() -> torch.Tensor:
        code = model.encode(x).latent_dist
        made = model.decode(code.sample()).sample
        total = 1e-4 * code.kl().mean()
        for size in windows:
            one, other = spectra(made, size), spectra(x, size)
            total = total + (one - other).norm() / other.norm() + F.l1_loss(one.log(), other.log())
        return total

    return training(model, loss, autocast=False)


def speech_to_text_fp16(batch: int, frames: int, told: int) -> Step:
    """Two gated convolutions, an encoder and a decoder, in fp16 with scaled gradients."""
    from transformers import Speech2TextConfig, Speech2TextForConditionalGeneration

    sizes: dict[str, Any] = {"d_model": 512, "max_source_positions": frames}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_attention_heads": 8, f"{side}_ffn_dim": 2048}
    config = Speech2TextConfig(**sizes, use_cache=False)
    model = Speech2TextForConditionalGeneration(config).cuda()
    x = torch.randn(batch, frames, 80, device="cuda")
    labels = torch.randint(5, 10_000, (batch, told), device="cuda")
    return training_step(
        lambda: model(input_features=x, labels=labels).loss,
        model.parameters(),
        autocast="fp16",
        scale_loss=True,
    )


def music_of_words(batch: int, length: int) -> Step:
    """MusicGen's decoder in bf16: four codes of sound at once, told by words."""
    from transformers import MusicgenForCausalLM
    from transformers.models.musicgen import MusicgenDecoderConfig

    config = MusicgenDecoderConfig(num_hidden_layers=12, use_cache=False)
    model = MusicgenForCausalLM(config).to("cuda", BF16)
    codes = torch.randint(0, 2048, (batch * 4, length), device="cuda")
    labels = codes.unflatten(0, (batch, 4)).transpose(1, 2)
    words = torch.randn(batch, 64, 1024, device="cuda", dtype=BF16)
    return training(
        model,
        lambda: model(input_ids=codes, encoder_hidden_states=words, labels=labels).loss,
        autocast=False,
        fused=True,
    )


def near(inside: int, outside: int, length: int, apart: int = 1) -> nn.Sequential:
    layer = nn.Conv1d(inside, outside, length, dilation=apart, padding=length // 2 * apart)
    return nn.Sequential(layer, nn.ReLU(), nn.BatchNorm1d(outside))


class Scales(nn.Module):
    """ECAPA's: channels in eight parts, each of which sees the one before, then a gate."""

    def __init__(self, width: int, apart: int, parts: int = 8) -> None:
        super().__init__()
        size = width // parts
        self.parts = nn.ModuleList(near(size, size, 3, apart) for _ in range(parts - 1))
        self.into, self.out = near(width, width, 1), near(width, width, 1)
        self.gate = nn.Sequential(
            nn.Conv1d(width, 128, 1), nn.ReLU(), nn.Conv1d(128, width, 1), nn.Sigmoid()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, *others = self.into(x).chunk(len(self.parts) + 1, 1)
        found, last = [first], torch.zeros_like(first)
        for part, other in zip(self.parts, others):
            last = part(other + last)
            found.append(last)
        y = self.out(torch.cat(found, 1))
        return x + y * self.gate(y.mean(2, keepdim=True))


class Speaker(nn.Module):
    """Three scales, then mean and spread of what a gate of each frame likes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.into, self.joined = near(80, width, 5), nn.Conv1d(3 * width, 1536, 1)
        self.scales = nn.ModuleList(Scales(width, apart) for apart in (2, 3, 4))
        self.weigh = nn.Sequential(near(3 * 1536, 128, 1), nn.Tanh(), nn.Conv1d(128, 1536, 1))
        self.out = nn.Sequential(nn.BatchNorm1d(3072), nn.Linear(3072, 192))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, kept = self.into(x), []
        for scale in self.scales:
            y = scale(y)
            kept.append(y)
        y = F.relu(self.joined(torch.cat(kept, 1)))
        mean, spread = y.mean(2, keepdim=True), y.std(2, keepdim=True)
        seen = torch.cat((y, mean.expand_as(y), spread.expand_as(y)), 1)
        weights = self.weigh(seen).softmax(2)
        mean = (weights * y).sum(2)
        spread = ((weights * y.square()).sum(2) - mean.square()).clamp(min=1e-4).sqrt()
        return self.out(torch.cat((mean, spread), 1))


def who_speaks(batch: int, frames: int, *, speakers: int = 7205) -> Step:
    """ECAPA-TDNN with a margin between the angles of speakers."""
    model = nn.ModuleDict({"body": Speaker(1024), "out": nn.Linear(192, speakers)}).cuda()
    x = torch.randn(batch, 80, frames, device="cuda")
    labels = torch.randint(0, speakers, (batch,), device="cuda")
    is_wanted = F.one_hot(labels, speakers).bool()

    def loss() -> torch.Tensor:
        weight = F.normalize(model["out"].weight)
        cosine = F.linear(F.normalize(model["body"](x)), weight).float()
        sine = (1 - cosine.square()).clamp(1e-6, 1).sqrt()
        moved = cosine * torch.cos(torch.tensor(0.2)) - sine * torch.sin(torch.tensor(0.2))
        return F.cross_entropy(30 * torch.where(is_wanted, moved, cosine), labels)

    return training(model, loss)


class Pair(nn.Module):
    """Attention whose scores know how far apart two atoms are and what bonds lie between."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norms = heads, nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.three, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.after = layers_of(width, width, width, act=nn.GELU)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        three = self.three(self.norms[0](x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = three.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(v.dtype), dropout_p=0.1)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.after(self.norms[1](x))


def paths_of_bonds(batch: int, atoms: int, *, width: int = 768, heads: int = 32) -> Step:
    """Graphormer: degrees, shortest ways, and the bonds along them."""
    parts = {
        "atoms": nn.Embedding(512, width),
        "degrees": nn.Embedding(64, width),
        "far": nn.Embedding(64, heads),
        "bonds": nn.Embedding(128, heads),
        "along": nn.Embedding(5, heads * heads),
        "layers": nn.ModuleList(Pair(width, heads) for _ in range(12)),
        "out": layers_of(width, width, 1, act=nn.GELU),
    }
    model = nn.ModuleDict(parts).cuda()
    kinds = torch.randint(0, 512, (batch, atoms, 9), device="cuda")
    degrees = torch.randint(0, 64, (batch, atoms), device="cuda")
    far = torch.randint(0, 64, (batch, atoms, atoms), device="cuda")
    bonds = torch.randint(0, 128, (batch, atoms, atoms, 5, 3), device="cuda")
    wanted = torch.randn(batch, device="cuda")

    def loss() -> torch.Tensor:
        x = model["atoms"](kinds).sum(2) + model["degrees"](degrees)
        way = model["bonds"](bonds).mean(4).movedim(3, 0).flatten(1, 3)
        way = torch.bmm(way, model["along"].weight.unflatten(1, (heads, heads)))
        way = way.unflatten(1, far.shape).sum(0) / (far + 1)[..., None]
        bias = (model["far"](far) + way).permute(0, 3, 1, 2)
        for layer in model["layers"]:
            x = layer(x, bias)
        return F.l1_loss(model["out"](x[:, 0])[:, 0].float(), wanted)

    return training(model, loss)


class Vectors(nn.Module):
    """PaiNN's: messages of numbers and of vectors, then each node mixes its own."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width, self.told = width, layers_of(width, width, 3 * width, act=nn.SiLU)
        self.far, self.mix = nn.Linear(20, 3 * width), nn.Linear(width, 2 * width, bias=False)
        self.both = layers_of(2 * width, width, 3 * width, act=nn.SiLU)

    def forward(self, x: Any, v: Any, one: Any, other: Any, waves: Any, turns: Any) -> Any:
        parts = (self.told(x)[one] * self.far(waves)).chunk(3, -1)
        along = v[one] * parts[0][:, None] + turns[..., None] * parts[1][:, None]
        x = x.index_add(0, other, parts[2])
        v = v.index_add(0, other, along)
        left, right = self.mix(v).chunk(2, -1)
        size = (left.square().sum(1) + 1e-8).sqrt()
        a, b, c = self.both(torch.cat((x, size), -1)).chunk(3, -1)
        return x + a * (left * right).sum(1) + b, v + c[:, None] * right


def forces_of_vectors(atoms: int, pairs: int, *, width: int = 128, layers: int = 4) -> Step:
    """PaiNN: energies and the forces that follow from them, a gradient of gradients, fp32."""
    parts = {
        "kinds": nn.Embedding(100, width),
        "layers": nn.ModuleList(Vectors(width) for _ in range(layers)),
        "out": layers_of(width, width // 2, 1, act=nn.SiLU),
    }
    model = nn.ModuleDict(parts).cuda()
    kinds = torch.randint(0, 100, (atoms,), device="cuda")
    one, other = torch.randint(0, atoms, (2, pairs), device="cuda")
    places = torch.randn(atoms, 3, device="cuda").requires_grad_()
    pulls = torch.randn(atoms, 3, device="cuda")
    pitch = torch.arange(1, 21, device="cuda") * torch.pi / 5

    def loss() -> torch.Tensor:
        apart = places[other] - places[one]
        far = (apart.square().sum(-1, keepdim=True) + 1e-6).sqrt()
        waves, turns = torch.sin(far * pitch) / far, apart / far
        x = model["kinds"](kinds)
        v = torch.zeros(atoms, 3, width, device="cuda")
        for layer in model["layers"]:
            x, v = layer(x, v, one, other, waves, turns)
        energy = model["out"](x).sum()
        (slope,) = torch.autograd.grad(energy, places, create_graph=True)
        return F.mse_loss(-slope, pulls) + 1e-4 * energy.square()

    return training(model, loss, autocast=False)


class Around(nn.Module):
    """PointMLP's: a point's neighbours, made alike by their spread; residual layers, the most."""

    def __init__(self, inside: int, outside: int, near: int) -> None:
        super().__init__()
        self.near, self.spread = near, nn.Parameter(torch.ones(2, 1, 1, 1, inside + 3))
        self.into = nn.Sequential(
            nn.Conv1d(2 * inside + 3, outside, 1), nn.BatchNorm1d(outside), nn.ReLU()
        )
        self.before, self.after = (
            nn.ModuleList(self.residual(outside) for _ in range(2)) for _ in range(2)
        )

    @staticmethod
    def residual(width: int) -> nn.Sequential:
        first = nn.Conv1d(width, width, 1), nn.BatchNorm1d(width), nn.ReLU()
        return nn.Sequential(*first, nn.Conv1d(width, width, 1), nn.BatchNorm1d(width))

    def forward(self, places: torch.Tensor, x: torch.Tensor, kept: torch.Tensor) -> Any:
        rows = torch.arange(len(x), device=x.device)[:, None]
        centre, middle = places[rows, kept], x[rows, kept]
        found = torch.cdist(centre, places).topk(self.near, largest=False).indices
        each = torch.cat((x[rows[..., None], found], places[rows[..., None], found]), -1)
        off = each - torch.cat((middle, centre), -1)[:, :, None]
        off = off / (off.flatten(1).std(1)[:, None, None, None] + 1e-5)
        scale, shift = self.spread
        both = torch.cat(
            (scale * off + shift, middle[:, :, None].expand(-1, -1, self.near, -1)), -1
        )
        y = self.into(both.flatten(0, 1).transpose(1, 2))
        for part in self.before:
            y = F.relu(y + part(y))
        y = y.amax(2).unflatten(0, kept.shape).transpose(1, 2)
        for part in self.after:
            y = F.relu(y + part(y))
        return centre, y.transpose(1, 2)


def points_around(batch: int, points: int, *, near: int = 24) -> Step:
    """PointMLP on clouds whose kept points were chosen before; smoothed labels, SGD, TF32."""
    torch.set_float32_matmul_precision("high")
    widths = (64, 128, 256, 512, 1024)
    levels = nn.ModuleList(Around(a, b, near) for a, b in zip(widths, widths[1:]))
    model = nn.ModuleDict({"into": nn.Linear(3, 64), "levels": levels})
    model["out"] = layers_of(1024, 512, 256, 40)
    model = model.cuda()
    places = torch.randn(batch, points, 3, device="cuda")
    chosen = [
        torch.rand(batch, points >> i, device="cuda").argsort(1)[:, : points >> (i + 1)]
        for i in range(4)
    ]
    labels = torch.randint(0, 40, (batch,), device="cuda")

    def loss() -> torch.Tensor:
        where, y = places, model["into"](places)
        for level, kept in zip(model["levels"], chosen):
            where, y = level(where, y, kept)
        return F.cross_entropy(model["out"](y.amax(1)), labels, label_smoothing=0.2)

    return training_step(loss, model.parameters(), optimizer="sgd")
