"""The second set of steps like those of mixed.py: predicted and committed, then measured.

python benchmarks/step_time/simulated.py OUT.jsonl .../mixed_second.py:step name=NAME
python benchmarks/step_time/recording/record.py --out OUT --step .../mixed_second.py:step name=NAME
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from models import FUSED, LAST, PLAIN, decoder, of_timm, of_transformers
from torch import nn
from unseen import Step, training


class Residual(nn.Module):
    """Of volumes: two convolutions with instance norm, as of nnU-Net."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.one = nn.Conv3d(inside, outside, 3, stride, 1, bias=False)
        self.other = nn.Conv3d(outside, outside, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.InstanceNorm3d(outside, affine=True) for _ in range(2))
        self.beside = nn.Conv3d(inside, outside, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.leaky_relu(self.norms[0](self.one(x)), 0.01)
        return F.leaky_relu(self.norms[1](self.other(y)) + self.beside(x), 0.01)


def organs(batch: int, size: int) -> Step:
    """Segmentation of volumes: residual stages, transposed convolutions back up."""
    widths = (32, 64, 128, 256)
    down = [Residual(a, b, 1 if a == 1 else 2) for a, b in zip((1, *widths), widths)]
    up = [nn.ConvTranspose3d(a, b, 2, 2) for a, b in zip(widths[:0:-1], widths[-2::-1])]
    join = [Residual(2 * width, width, 1) for width in widths[-2::-1]]
    lists = {"down": down, "up": up, "join": join, "out": [nn.Conv3d(widths[0], 4, 1)]}
    model = nn.ModuleDict({name: nn.ModuleList(each) for name, each in lists.items()}).cuda()
    x = torch.randn(batch, 1, size, size, size, device="cuda")
    labels = torch.randint(0, 4, (batch, size, size, size), device="cuda")

    def loss() -> torch.Tensor:
        y, kept = x, []
        for layer in model["down"]:
            y = layer(y)
            kept.append(y)
        for up, join, other in zip(model["up"], model["join"], kept[-2::-1]):
            y = join(torch.cat((up(y), other), 1))
        return F.cross_entropy(model["out"][0](y).float(), labels)

    return training(model, loss)


class Cycle(nn.Module):
    """CycleGAN's generator: reflected borders, instance norm, nine residual blocks."""

    def __init__(self, width: int) -> None:
        super().__init__()
        wide = 4 * width

        def block() -> nn.Sequential:
            parts = [nn.ReflectionPad2d(1), nn.Conv2d(wide, wide, 3), nn.InstanceNorm2d(wide)]
            again = [nn.ReflectionPad2d(1), nn.Conv2d(wide, wide, 3), nn.InstanceNorm2d(wide)]
            return nn.Sequential(*parts, nn.ReLU(True), *again)

        def level(layer: nn.Module, channels: int) -> list[nn.Module]:
            return [layer, nn.InstanceNorm2d(channels), nn.ReLU(True)]

        self.down = nn.Sequential(
            nn.ReflectionPad2d(3),
            *level(nn.Conv2d(3, width, 7), width),
            *level(nn.Conv2d(width, 2 * width, 3, 2, 1), 2 * width),
            *level(nn.Conv2d(2 * width, wide, 3, 2, 1), wide),
        )
        self.blocks = nn.ModuleList(block() for _ in range(9))
        self.up = nn.Sequential(
            *level(nn.ConvTranspose2d(wide, 2 * width, 3, 2, 1, 1), 2 * width),
            *level(nn.ConvTranspose2d(2 * width, width, 3, 2, 1, 1), width),
            nn.ReflectionPad2d(3),
            nn.Conv2d(width, 3, 7),
            nn.Tanh(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.down(x)
        for block in self.blocks:
            x = x + block(x)
        return self.up(x)


def cycles(batch: int, size: int) -> Step:
    model = Cycle(64).cuda()
    x, wanted = (torch.rand(batch, 3, size, size, device="cuda") for _ in range(2))
    return training(model, lambda: F.l1_loss(model(x), wanted), autocast=False)


def point_net(batch: int, number: int) -> Step:
    """Points one by one, then the largest of each feature."""
    layers: list[nn.Module] = []
    for inside, outside in zip((3, 64, 128, 256, 1024), (64, 128, 256, 1024)):
        layers += [nn.Conv1d(inside, outside, 1), nn.BatchNorm1d(outside), nn.ReLU()]
    head = nn.Sequential(nn.Linear(1024, 512), nn.ReLU(), nn.Dropout(0.3), nn.Linear(512, 40))
    model = nn.ModuleDict({"each": nn.Sequential(*layers), "head": head}).cuda()
    x = torch.randn(batch, 3, number, device="cuda")
    labels = torch.randint(0, 40, (batch,), device="cuda")
    loss = lambda: F.cross_entropy(model["head"](model["each"](x).amax(2)), labels)  # noqa: E731
    return training(model, loss, autocast=False)


class Gated(nn.Module):
    """A gated graph convolution that keeps features of edges."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(width, width) for _ in range(5))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(2))

    def forward(
        self, x: torch.Tensor, e: torch.Tensor, start: torch.Tensor, end: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        a, b, c, d, f = self.parts
        seen = a(x)[end] + b(x)[start] + c(e)
        gate = seen.sigmoid()
        sums = torch.zeros_like(x).index_add(0, end, gate * d(x)[start])
        all_of = torch.zeros_like(x).index_add(0, end, gate)
        new = F.relu(self.norms[0](f(x) + sums / (all_of + 1e-6)))
        return x + new, e + F.relu(self.norms[1](seen))


def gated_graph(nodes: int, edges: int, *, width: int = 128, layers: int = 4) -> Step:
    model = nn.ModuleList(Gated(width) for _ in range(layers)).cuda()
    x, e = torch.randn(nodes, width, device="cuda"), torch.randn(edges, width, device="cuda")
    start, end = (torch.randint(0, nodes, (edges,), device="cuda") for _ in range(2))

    def loss() -> torch.Tensor:
        y, of_edges = x, e
        for layer in model:
            y, of_edges = layer(y, of_edges, start, end)
        return y.square().mean() + of_edges.square().mean()

    return training(model, loss, autocast=False)


def translation(batch: int, length: int, *, width: int = 512, words: int = 32_000) -> Step:
    """nn.Transformer with padding and a causal mask."""
    parts = {
        "body": nn.Transformer(width, 8, 6, 6, 2048, 0.1, batch_first=True),
        "table": nn.Embedding(words, width),
        "out": nn.Linear(width, words),
    }
    model = nn.ModuleDict(parts).cuda()
    x = torch.randint(1, words, (batch, length), device="cuda")
    padding = torch.zeros(batch, length, dtype=torch.bool, device="cuda")
    causal = nn.Transformer.generate_square_subsequent_mask(length, device="cuda")

    def loss() -> torch.Tensor:
        y = model["body"](
            model["table"](x),
            model["table"](x),
            tgt_mask=causal,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return F.cross_entropy(model["out"](y).flatten(0, 1).float(), x.flatten())

    return training(model, loss)


def wide_table(batch: int, columns: int, *, width: int = 768) -> Step:
    """A residual network of a table, in fp32."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(width)
            self.layers = nn.Sequential(
                nn.Linear(width, 2 * width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(2 * width, width)
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.layers(self.norm(x))

    model = nn.Sequential(
        nn.Linear(columns, width), *(Block() for _ in range(4)), nn.ReLU(), nn.Linear(width, 1)
    ).cuda()
    x, y = torch.randn(batch, columns, device="cuda"), torch.randn(batch, device="cuda")
    return training(model, lambda: F.mse_loss(model(x).squeeze(1), y), autocast=False)


def spectra(batch: int) -> Step:
    """Sounds as pictures: the Audio Spectrogram Transformer."""
    from transformers import ASTConfig, ASTForAudioClassification

    model = ASTForAudioClassification(ASTConfig(num_labels=527, max_length=512)).cuda()
    x = torch.randn(batch, 512, 128, device="cuda")
    labels = torch.randint(0, 527, (batch,), device="cuda")
    return training(model, lambda: F.cross_entropy(model(x).logits.float(), labels))


GEMMA = decoder(1024, 4096, 10, 8, 4, 64_000, head_dim=128)
STEPS: dict[str, Callable[[], Step]] = {
    "pvt": lambda: of_timm("pvt_v2_b2", 256),
    "coatnet": lambda: of_timm("coatnet_0_rw_224", 128),
    "mobilevit_last": lambda: of_timm("mobilevit_s", 192, 256, **LAST),
    "regnet_z_fp32": lambda: of_timm("regnety_032", 96, **PLAIN),
    "llama_amp": lambda: of_transformers(
        "LlamaForCausalLM", decoder(768, 2048, 12, 12, 4, 32_000), 40, 1024
    ),
    "gemma2": lambda: of_transformers(
        "Gemma2ForCausalLM", GEMMA | {"attn_implementation": "eager"}, 12, 1024, FUSED
    ),
    "spectra": lambda: spectra(48),
    "organs": lambda: organs(2, 128),
    "cycles": lambda: cycles(4, 256),
    "point_net": lambda: point_net(64, 4096),
    "gated_graph": lambda: gated_graph(60_000, 600_000),
    "translation": lambda: translation(256, 160),
    "wide_table": lambda: wide_table(65_536, 100),
}


def step(*, name: str) -> Step:
    return STEPS[name]()
