"""Two more sets of steps like those of mixed.py: predicted and committed, then measured.

python benchmarks/step_time/simulated.py OUT.jsonl .../mixed_later.py:step name=NAME
python benchmarks/step_time/recording/record.py --out OUT --step .../mixed_later.py:step name=NAME
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from mixed import compiled_text, compiled_timm
from models import FUSED, LAST, PLAIN, decoder, of_timm, of_transformers
from torch import nn
from unseen import Step, training


class Mixture(nn.Module):
    """HiFi-GAN's: residual blocks with three lengths of filters, dilated, and their mean."""

    def __init__(self, width: int) -> None:
        super().__init__()
        lengths, dilations = (3, 7, 11), (1, 3, 5)
        self.blocks = nn.ModuleList(
            nn.ModuleList(nn.Conv1d(width, width, k, padding="same", dilation=d) for d in dilations)
            for k in lengths
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total: Any = 0
        for block in self.blocks:
            y = x
            for layer in block:
                y = y + layer(F.leaky_relu(y, 0.1))
            total = total + y
        return total / len(self.blocks)


def vocoder(batch: int, frames: int, *, width: int = 512) -> Step:
    layers: list[nn.Module] = [nn.Conv1d(80, width, 7, padding=3)]
    for kernel, stride in ((16, 8), (16, 8), (4, 2)):
        up = nn.ConvTranspose1d(width, width // 2, kernel, stride, (kernel - stride) // 2)
        layers += [nn.LeakyReLU(0.1), up, Mixture(width // 2)]
        width //= 2
    model = nn.Sequential(*layers, nn.Conv1d(width, 1, 7, padding=3), nn.Tanh()).cuda()
    x = torch.randn(batch, 80, frames, device="cuda")
    wanted = torch.rand(batch, 1, 128 * frames, device="cuda")
    return training(model, lambda: F.l1_loss(model(x).float(), wanted))


def recommender(batch: int, tables: int, rows: int, *, width: int = 64) -> Step:
    """DLRM: numbers and bags of names, products of all pairs, layers above."""

    def layers(*sizes: int) -> nn.Sequential:
        pairs = zip(sizes, sizes[1:])
        return nn.Sequential(*(m for a, b in pairs for m in (nn.Linear(a, b), nn.ReLU())))

    of_pairs = tables * (tables + 1) // 2
    bags = (nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
    parts = {
        "below": layers(13, 512, 256, width),
        "bags": nn.ModuleList(bags),
        "above": layers(of_pairs + width, 1024, 1024, 512, 256),
        "out": nn.Linear(256, 1),
    }
    model = nn.ModuleDict(parts).cuda()
    x = torch.randn(batch, 13, device="cuda")
    names = [torch.randint(0, rows, (batch, 8), device="cuda") for _ in range(tables)]
    wanted = torch.randint(0, 2, (batch,), device="cuda").float()
    down, right = torch.tril_indices(tables + 1, tables + 1, -1, device="cuda")

    def loss() -> torch.Tensor:
        below = model["below"](x)
        seen = [bag(index) for bag, index in zip(model["bags"], names)]
        all_of = torch.stack([below, *seen], 1)
        pairs = (all_of @ all_of.transpose(1, 2))[:, down, right]
        found = model["out"](model["above"](torch.cat((below, pairs), 1)))
        return F.binary_cross_entropy_with_logits(found.squeeze(1), wanted)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> torch.Tensor:
        found = loss()
        found.backward()
        optimizer.step()
        optimizer.zero_grad()
        return found.detach()

    return step


def recurrent(kind: str, batch: int, length: int, width: int, layers: int) -> Step:
    """A language model of words with a table for both ends, in fp32."""
    parts = {
        "table": nn.Embedding(20_000, width),
        "body": getattr(nn, kind)(width, width, layers, batch_first=True, dropout=0.2),
        "out": nn.Linear(width, 20_000),
    }
    model = nn.ModuleDict(parts).cuda()
    x = torch.randint(0, 20_000, (batch, length), device="cuda")

    def loss() -> torch.Tensor:
        y = model["out"](model["body"](model["table"](x))[0])
        return F.cross_entropy(y.flatten(0, 1), x.flatten())

    return training(model, loss, autocast=False)


class Noised(nn.Module):
    """Of a U-Net that denoises: group norm, SiLU, convolutions, the time added."""

    def __init__(self, inside: int, outside: int, told: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(32, width) for width in (inside, outside))
        self.one = nn.Conv2d(inside, outside, 3, padding=1)
        self.other = nn.Conv2d(outside, outside, 3, padding=1)
        self.beside, self.told = nn.Conv2d(inside, outside, 1), nn.Linear(told, outside)

    def forward(self, x: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
        y = self.one(F.silu(self.norms[0](x))) + self.told(told)[:, :, None, None]
        return self.beside(x) + self.other(F.silu(self.norms[1](y)))


def scores(batch: int, size: int, *, width: int = 128, compiled: bool = False) -> Step:
    widths = (width, 2 * width, 2 * width, 4 * width)
    down = [Noised(a, b, 512) for a, b in zip((width, *widths), widths)]
    up = [Noised(a + b, b, 512) for a, b in zip((4 * width, *widths[:0:-1]), widths[::-1])]
    ends = [nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)]
    lists = {"down": down, "up": up, "ends": ends}
    model = nn.ModuleDict({name: nn.ModuleList(each) for name, each in lists.items()}).cuda()
    x, told = (torch.randn(*s, device="cuda") for s in ((batch, 3, size, size), (batch, 512)))

    def found(x: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
        y, kept = model["ends"][0](x), []
        for layer in model["down"]:
            y = layer(y, told)
            kept.append(y)
            y = F.avg_pool2d(y, 2)
        for layer in model["up"]:
            y = F.interpolate(y, scale_factor=2)
            y = layer(torch.cat((y, kept.pop()), 1), told)
        return model["ends"][1](y)

    run = torch.compile(found) if compiled else found
    return training(model, lambda: F.mse_loss(run(x, told).float(), x))


SMALL_VIT = {"depth": 4, "embed_dim": 768, "num_heads": 12}
STAGES = {"embed_dim": 96, "depths": (2, 2, 2, 2), "num_heads": (3, 6, 12, 24)}
BIGCODE = {"n_embd": 1024, "n_layer": 12, "n_head": 16, "vocab_size": 49_152}
SETS: dict[str, dict[str, Callable[[], Step]]] = {
    "mixed_third": {
        "dla_last": lambda: of_timm("dla60", 160, **LAST),
        "repvgg_fp32": lambda: of_timm("repvgg_b0", 128, **PLAIN),
        "res2net": lambda: of_timm("res2net50_26w_4s", 128),
        "twins": lambda: of_timm("twins_svt_small", 320),
        "xcit": lambda: of_timm("xcit_small_12_p16_224", 256),
        "edgenext_last": lambda: of_timm("edgenext_base", 288, 256, **LAST),
        "nfnet": lambda: of_timm("eca_nfnet_l0", 224),
        "cspdarknet_fp32": lambda: of_timm("cspdarknet53", 64, 256, **PLAIN),
        "bigcode": lambda: of_transformers("GPTBigCodeForCausalLM", BIGCODE, 24, 1024),
        "nemotron": lambda: of_transformers(
            "NemotronForCausalLM", decoder(1536, 6144, 12, 12, 4, 64_000), 12, 2048, FUSED
        ),
        "vocoder": lambda: vocoder(32, 128),
        "recommender": lambda: recommender(65_536, 26, 500_000),
        "words": lambda: recurrent("LSTM", 256, 64, 1024, 2),
        "vit_compiled": lambda: compiled_timm("VisionTransformer", 192, **SMALL_VIT),
        "mistral_compiled": lambda: compiled_text(
            "Mistral", decoder(2048, 7168, 3, 16, 4, 32_000), 6, 1024, is_short=True
        ),
        "scores_compiled": lambda: scores(160, 64, compiled=True),
    },
    "mixed_fourth": {
        "resnest_fp32": lambda: of_timm("resnest50d", 64, **PLAIN),
        "resnetaa_last": lambda: of_timm("resnetaa50", 160, **LAST),
        "vovnet": lambda: of_timm("ese_vovnet39b", 160),
        "convnextv2_last": lambda: of_timm("convnextv2_tiny", 128, **LAST),
        "davit": lambda: of_timm("davit_tiny", 160),
        "focalnet": lambda: of_timm("focalnet_tiny_srf", 128),
        "efficientvit": lambda: of_timm("efficientvit_b2", 256),
        "inception_next_fp32": lambda: of_timm("inception_next_tiny", 96, **PLAIN),
        "caformer": lambda: of_timm("caformer_s18", 128),
        "starcoder": lambda: of_transformers(
            "Starcoder2ForCausalLM", decoder(1024, 4096, 12, 16, 4, 49_152), 24, 1024
        ),
        "olmo": lambda: of_transformers(
            "OlmoForCausalLM", decoder(1280, 5120, 14, 10, 10, 50_304), 10, 2048, FUSED
        ),
        "scores": lambda: scores(96, 64),
        "phrases": lambda: recurrent("GRU", 192, 96, 768, 3),
        "swin_compiled": lambda: compiled_timm("SwinTransformer", 160, **STAGES),
        "metaformer_compiled": lambda: compiled_timm("MetaFormer", 128, depths=(2, 2, 4, 2)),
        "granite_compiled": lambda: compiled_text(
            "Granite", decoder(2048, 5632, 3, 32, 8, 49_152), 4, 2048, is_short=True
        ),
    },
}


def step(*, name: str) -> Step:
    for steps in SETS.values():
        if name in steps:
            return steps[name]()
    raise ValueError(f"no step is called {name!r}")
