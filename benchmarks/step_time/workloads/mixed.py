"""Steps of fields and settings that no set before had, like those of varied.py: predicted and
committed, then measured. A set has its predictions in SET.jsonl, and SET.md compares.

    python benchmarks/step_time/simulated.py OUT.jsonl .../mixed.py:step name=NAME
    python benchmarks/step_time/recording/record.py --out OUT --step .../mixed.py:step name=NAME

They need torch, torchvision, transformers, timm and diffusers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from models import FUSED, LAST, decoder, of_timm, of_transformers
from torch import nn
from unseen import BF16, Step, training


def larger_pictures(batch: int, size: int, *, width: int = 128, blocks: int = 16) -> Step:
    """Super-resolution: residual convolutions in fp32, pixels from channels at the end."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 0.1 * self.other(F.relu(self.one(x)))

    up = [nn.Conv2d(width, 4 * width, 3, padding=1), nn.PixelShuffle(2)]
    model = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        *(Block() for _ in range(blocks)),
        *up,
        nn.Conv2d(width, 3, 3, padding=1),
    ).cuda()
    x = torch.rand(batch, 3, size, size, device="cuda")
    wanted = torch.rand(batch, 3, 2 * size, 2 * size, device="cuda")
    return training(model, lambda: F.l1_loss(model(x), wanted), autocast=False)


def autoencoder_of_latents(batch: int, size: int) -> Step:
    """What latent diffusion encodes pictures with."""
    from diffusers import AutoencoderKL

    wide, down, up = (128, 256, 512), ["DownEncoderBlock2D"] * 3, ["UpDecoderBlock2D"] * 3
    model = AutoencoderKL(
        block_out_channels=wide, down_block_types=down, up_block_types=up, layers_per_block=2
    ).cuda()
    x = torch.randn(batch, 3, size, size, device="cuda")

    def loss() -> torch.Tensor:
        hidden = model.encode(x).latent_dist
        return F.mse_loss(model.decode(hidden.sample()).sample.float(), x) + hidden.kl().mean()

    return training(model, loss)


class Modulated(nn.Module):
    """As of StyleGAN 2: each sample has filters of its own, in one convolution in groups."""

    def __init__(self, inside: int, outside: int, style: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outside, inside, 3, 3) * 0.02)
        self.scale, self.strength = nn.Linear(style, inside), nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor, style: torch.Tensor) -> torch.Tensor:
        batch, inside, height, width = x.shape
        weight = self.weight[None] * self.scale(style)[:, None, :, None, None]
        weight = weight * (weight.square().sum((2, 3, 4), keepdim=True) + 1e-8).rsqrt()
        y = F.conv2d(
            x.reshape(1, batch * inside, height, width), weight.flatten(0, 1), None, 1, 1, 1, batch
        )
        y = y.view(batch, -1, height, width)
        y = y + self.strength * torch.randn(batch, 1, height, width, device=x.device)
        return F.leaky_relu(y, 0.2)


def styles(batch: int, *, style: int = 512) -> Step:
    widths = (512, 512, 256, 128, 64)
    layers = nn.ModuleList(Modulated(a, b, style) for a, b in zip(widths, widths[1:]))
    colours = nn.Conv2d(widths[-1], 3, 1)
    mapping = nn.Sequential(nn.Linear(style, style), nn.LeakyReLU(0.2), nn.Linear(style, style))
    start = nn.Parameter(torch.randn(1, widths[0], 16, 16))
    model = nn.ModuleDict({"layers": layers, "colours": colours, "mapping": mapping})
    model.register_parameter("start", start)
    model.cuda()
    wanted = torch.randn(batch, 3, 256, 256, device="cuda")

    def loss() -> torch.Tensor:
        found = model["mapping"](torch.randn(batch, style, device="cuda"))
        y = model.start.expand(batch, -1, -1, -1)
        for layer in model["layers"]:
            y = layer(F.interpolate(y, scale_factor=2.0, mode="bilinear"), found)
        return F.mse_loss(model["colours"](y), wanted)

    return training(model, loss, autocast=False)


def recognition(batch: int, frames: int, *, width: int = 512, layers: int = 3) -> Step:
    """Speech: LSTMs in both directions over spectra, and CTC."""
    cells = nn.LSTM(80, width, layers, batch_first=True, bidirectional=True, dropout=0.1)
    model = nn.ModuleDict({"cells": cells, "out": nn.Linear(2 * width, 64)}).cuda()
    x = torch.randn(batch, frames, 80, device="cuda")
    labels = torch.randint(1, 64, (batch, 40), device="cuda")
    lengths = torch.full((batch,), frames), torch.full((batch,), 40)

    def loss() -> torch.Tensor:
        y = model["out"](model["cells"](x)[0]).log_softmax(-1).transpose(0, 1)
        return F.ctc_loss(y, labels, *lengths)

    return training(model, loss, autocast=False)


class Waves(nn.Module):
    """A layer of a Fourier neural operator."""

    def __init__(self, width: int, modes: int) -> None:
        super().__init__()
        self.modes, scale = modes, 1 / width**2
        self.low, self.high = (
            nn.Parameter(scale * torch.rand(width, width, modes, modes, dtype=torch.cfloat))
            for _ in range(2)
        )
        self.beside = nn.Conv2d(width, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        m, found = self.modes, torch.fft.rfft2(x)
        mixed = torch.zeros_like(found)
        mixed[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", found[:, :, :m, :m], self.low)
        mixed[:, :, -m:, :m] = torch.einsum("bixy,ioxy->boxy", found[:, :, -m:, :m], self.high)
        return F.gelu(torch.fft.irfft2(mixed, s=x.shape[-2:]) + self.beside(x))


def fourier(batch: int, size: int, *, width: int = 64, modes: int = 24) -> Step:
    model = nn.Sequential(
        nn.Conv2d(3, width, 1),
        *(Waves(width, modes) for _ in range(4)),
        nn.Conv2d(width, 128, 1),
        nn.GELU(),
        nn.Conv2d(128, 1, 1),
    ).cuda()
    x, y = (torch.randn(batch, count, size, size, device="cuda") for count in (3, 1))
    return training(model, lambda: F.mse_loss(model(x), y), autocast=False)


def hash_grid(number: int, *, levels: int = 12, size: int = 1 << 19) -> Step:
    """Instant-NGP without its kernels: corners of cells are looked up in tables by their hash."""
    tables = nn.Parameter(torch.rand(levels, size, 2) * 1e-4)
    head = nn.Sequential(nn.Linear(2 * levels, 64), nn.ReLU(), nn.Linear(64, 4))
    model = nn.ModuleDict({"head": head})
    model.register_parameter("tables", tables)
    model.cuda()
    places = torch.rand(number, 3, device="cuda")
    wanted = torch.rand(number, 4, device="cuda")
    corners = torch.tensor([[i >> 2 & 1, i >> 1 & 1, i & 1] for i in range(8)], device="cuda")
    primes = torch.tensor([1, 2654435761, 805459861], device="cuda")

    def loss() -> torch.Tensor:
        found = []
        for level in range(levels):
            scaled = places * 16 * 1.4**level
            cell = scaled.floor()
            inside = (scaled - cell)[:, None]
            named = (cell.long()[:, None] + corners) * primes
            named = (named[..., 0] ^ named[..., 1] ^ named[..., 2]) % size
            shares = torch.where(corners.bool(), inside, 1 - inside).prod(-1)
            found.append((model.tables[level][named] * shares[..., None]).sum(1))
        return F.mse_loss(model["head"](torch.cat(found, 1)), wanted)

    return training(model, loss, autocast=False)


def depth(batch: int, size: int) -> Step:
    """How far away each pixel is: DPT, a ViT whose stages are joined by convolutions."""
    from transformers import DPTConfig, DPTForDepthEstimation

    config = DPTConfig(image_size=size, hidden_size=768, num_attention_heads=12)
    config.num_hidden_layers, config.backbone_out_indices = 12, [2, 5, 8, 11]
    model = DPTForDepthEstimation(config).cuda()
    x = torch.randn(batch, 3, size, size, device="cuda")
    wanted = torch.rand(batch, size, size, device="cuda")

    def loss() -> torch.Tensor:
        return F.l1_loss(model(x).predicted_depth.float(), wanted)

    return training(model, loss)


def columns(batch: int, number: int, *, width: int = 192, layers: int = 3) -> Step:
    """FT-Transformer: each column of a table is a token."""
    layer = nn.TransformerEncoderLayer(width, 8, 512, 0.1, F.gelu, batch_first=True)
    parts = {
        "body": nn.TransformerEncoder(layer, layers),
        "norm": nn.LayerNorm(width),
        "head": nn.Linear(width, 1),
    }
    model = nn.ModuleDict(parts)
    for name, sizes in (("weight", (number, width)), ("bias", (number, width))):
        model.register_parameter(name, nn.Parameter(torch.randn(*sizes) * 0.1))
    model.register_parameter("whole", nn.Parameter(torch.zeros(1, 1, width)))
    model.cuda()
    x, y = torch.randn(batch, number, device="cuda"), torch.randn(batch, device="cuda")

    def loss() -> torch.Tensor:
        tokens = x[..., None] * model.weight + model.bias
        tokens = torch.cat((model.whole.expand(batch, -1, -1), tokens), 1)
        found = model["head"](model["norm"](model["body"](tokens)[:, 0]))
        return F.mse_loss(found.squeeze(1).float(), y)

    return training(model, loss)


class Aggregated(nn.Module):
    """Means, largest values and deviations of what neighbours send, as of PNA."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.send, self.take = nn.Linear(2 * width, width), nn.Linear(4 * width, width)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: torch.Tensor, start: torch.Tensor, end: torch.Tensor) -> torch.Tensor:
        sent = F.relu(self.send(torch.cat((x[start], x[end]), 1)))
        rows, nothing = end[:, None].expand_as(sent), torch.zeros_like(x)
        mean = nothing.scatter_reduce(0, rows, sent, "mean", include_self=False)
        squares = nothing.scatter_reduce(0, rows, sent.square(), "mean", include_self=False)
        most = nothing.scatter_reduce(0, rows, sent, "amax", include_self=False)
        apart = (squares - mean.square()).clamp_min(1e-5).sqrt()
        return x + self.norm(self.take(torch.cat((x, mean, most, apart), 1)))


def neighbours(nodes: int, edges: int, *, width: int = 96, layers: int = 4) -> Step:
    model = nn.ModuleList(Aggregated(width) for _ in range(layers)).cuda()
    x = torch.randn(nodes, width, device="cuda")
    start, end = (torch.randint(0, nodes, (edges,), device="cuda") for _ in range(2))

    def loss() -> torch.Tensor:
        y = x
        for layer in model:
            y = layer(y, start, end)
        return y.square().mean()

    return training(model, loss, autocast=False)


# ------------------------------------------------------------------------ compiled
class Adaptive(nn.Module):
    """A block of a diffusion transformer, scaled and shifted by what it is told."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width, elementwise_affine=False) for _ in range(2))
        self.told, self.heads = nn.Linear(width, 6 * width), heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
        a, b, c, d, e, f = self.told(F.silu(told))[:, None].chunk(6, -1)
        y = self.norms[0](x) * (1 + a) + b
        q, k, v = self.qkv(y).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + c * self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + d * self.inner(self.norms[1](x) * (1 + e) + f)


def denoiser(batch: int, length: int, layers: int, *, width: int = 768) -> Step:
    model = nn.ModuleList(Adaptive(width, 12) for _ in range(layers)).cuda()

    def run(x: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
        for layer in model:
            x = layer(x, told)
        return x

    compiled = torch.compile(run)
    x, told = (torch.randn(*s, device="cuda") for s in ((batch, length, width), (batch, width)))
    return training(model, lambda: F.mse_loss(compiled(x, told).float(), x))


def compiled_text(model: str, config: dict[str, Any], batch: int, length: int, **how: Any) -> Step:
    """Of transformers, in fp32 or in bf16 as `how` says."""
    import transformers

    is_short = how.pop("is_short", False)
    made = getattr(transformers, f"{model}Config")(**config)
    kind = next(k for k in ("ForCausalLM", "LMHeadModel") if hasattr(transformers, model + k))
    net = getattr(transformers, model + kind)(made).to("cuda", BF16 if is_short else torch.float32)
    compiled = torch.compile(net, **how)
    x = torch.randint(0, made.vocab_size, (batch, length), device="cuda")
    loss = lambda: compiled(input_ids=x, labels=x, use_cache=False).loss  # noqa: E731
    return training(net, loss, autocast=False, fused=True)


def compiled_timm(
    name: str, batch: int, *, last: bool = False, size: int = 224, **sizes: Any
) -> Step:
    """A class of timm, with sizes of its own."""
    from timm import models

    layout = torch.channels_last if last else torch.contiguous_format
    model = getattr(models, name)(**sizes).cuda().to(memory_format=layout)
    compiled = torch.compile(model)
    x = torch.randn(batch, 3, size, size, device="cuda").to(memory_format=layout)
    labels = torch.randint(0, 1000, (batch,), device="cuda")
    return training(model, lambda: F.cross_entropy(compiled(x).float(), labels))


class Snake(nn.Module):
    """The activation of neural codecs: a line with waves."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.ones(1, width, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + (self.rate * x).sin().square() / (self.rate + 1e-9)


def compiled_codec(batch: int, length: int, *, width: int = 64) -> Step:
    """Sound through dilated convolutions, in fp32."""
    layers: list[nn.Module] = [nn.Conv1d(1, width, 7, padding=3)]
    for dilation in (1, 3, 9, 1, 3, 9):
        layers += [
            Snake(width),
            nn.Conv1d(width, width, 7, padding=3 * dilation, dilation=dilation),
        ]
    model = nn.Sequential(*layers, Snake(width), nn.Conv1d(width, 1, 7, padding=3)).cuda()
    compiled = torch.compile(model)
    x = torch.randn(batch, 1, length, device="cuda")
    return training(model, lambda: F.l1_loss(compiled(x), x), autocast=False)


LLAMA = decoder(2048, 8192, 12, 32, 8, 128_256, tie_word_embeddings=True)
SMALL_GPT = {"n_embd": 1024, "n_layer": 3, "n_head": 16, "vocab_size": 32_000}
DEBERTA = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "relative_attention": True,
    "position_buckets": 256,
    "pos_att_type": ["p2c", "c2p"],
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "max_position_embeddings": 512,
    "vocab_size": 64_000,
    "type_vocab_size": 0,
}
SETS: dict[str, dict[str, Callable[[], Step]]] = {
    "mixed": {
        "efficientnet_rw": lambda: of_timm("efficientnetv2_rw_s", 192, 288, **LAST),
        "eva": lambda: of_timm("eva02_base_patch14_224", 128),
        "larger_pictures": lambda: larger_pictures(16, 96),
        "autoencoder_of_latents": lambda: autoencoder_of_latents(8, 256),
        "styles": lambda: styles(16),
        "recognition": lambda: recognition(64, 400),
        "fourier": lambda: fourier(32, 128),
        "hash_grid": lambda: hash_grid(1 << 19),
        "llama_1b_long": lambda: of_transformers("LlamaForCausalLM", LLAMA, 3, 4096, FUSED),
        "deberta": lambda: of_transformers("DebertaV2ForMaskedLM", DEBERTA, 40, 512),
        "depth": lambda: depth(48, 384),
        "columns": lambda: columns(8192, 28),
        "neighbours": lambda: neighbours(40_000, 600_000),
    },
    "mixed_compiled": {
        "llama_compiled": lambda: compiled_text(
            "Llama", decoder(2048, 5632, 3, 16, 4, 32_000), 4, 2048, is_short=True
        ),
        "gpt_compiled_fp32": lambda: compiled_text("GPT2", SMALL_GPT, 8, 1024),
        "denoiser": lambda: denoiser(128, 256, 4),
        "mixer": lambda: compiled_timm("MlpMixer", 256, num_blocks=3, embed_dim=768),
        "convnext_compiled": lambda: compiled_timm("ConvNeXt", 128, last=True, depths=(1, 1, 3, 1)),
        "codec": lambda: compiled_codec(16, 1 << 16),
    },
}


def step(*, name: str) -> Step:
    for steps in SETS.values():
        if name in steps:
            return steps[name]()
    raise ValueError(f"no step is called {name!r}")
