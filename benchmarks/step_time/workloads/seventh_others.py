"""Steps of seventh.py on graphs, tables, flows, sounds, and of diffusion."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from unseen import BF16, Step, training


class Equivariant(nn.Module):
    """EGNN's: messages of pairs and their distance; places move too."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.message = nn.Sequential(
            nn.Linear(2 * width + 1, width), nn.SiLU(), nn.Linear(width, width)
        )
        self.place = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))
        self.node = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(
        self, x: torch.Tensor, at: torch.Tensor, start: torch.Tensor, end: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        away = at[start] - at[end]
        far = away.square().sum(-1, keepdim=True)
        sent = F.silu(self.message(torch.cat((x[start], x[end], far), -1)))
        moved = away * self.place(sent)
        at = at + torch.zeros_like(at).index_add(0, end, moved) / 16
        total = x.new_zeros(len(x), sent.shape[1]).index_add(0, end, sent)
        return x + self.node(torch.cat((x, total), -1)), at


def equivariant(nodes: int, edges: int, *, width: int = 128, layers: int = 4) -> Step:
    parts = [Equivariant(width) for _ in range(layers)]
    model = nn.ModuleList([nn.Linear(16, width), *parts, nn.Linear(width, 1)]).cuda()
    x, at = torch.randn(nodes, 16, device="cuda"), torch.randn(nodes, 3, device="cuda")
    start, end = (torch.randint(0, nodes, (edges,), device="cuda") for _ in range(2))
    wanted = torch.randn(nodes, 1, device="cuda")

    def loss() -> torch.Tensor:
        y, place = model[0](x), at
        for layer in model[1:-1]:
            y, place = layer(y, place, start, end)
        return F.mse_loss(model[-1](y), wanted) + 0.01 * (place - at).square().mean()

    return training(model, loss, autocast=False)


def many_sums(nodes: int, edges: int, *, width: int = 64, layers: int = 4) -> Step:
    """PNA: mean, largest, smallest and spread of what edges bring, each scaled by degrees."""
    lists = {
        "before": [nn.Linear(2 * width, width) for _ in range(layers)],
        "after": [nn.Linear(13 * width, width) for _ in range(layers)],
        "norms": [nn.BatchNorm1d(width) for _ in range(layers)],
        "ends": [nn.Linear(100, width), nn.Linear(width, 47)],
    }
    model = nn.ModuleDict({name: nn.ModuleList(each) for name, each in lists.items()}).cuda()
    x = torch.randn(nodes, 100, device="cuda")
    start, end = (torch.randint(0, nodes, (edges,), device="cuda") for _ in range(2))
    labels = torch.randint(0, 47, (nodes,), device="cuda")
    wide = end[:, None].expand(edges, width)
    degree = torch.zeros(nodes, 1, device="cuda").index_add_(
        0, end, torch.ones(edges, 1, device="cuda")
    )
    scale = (degree + 1).log() / 2.5

    def loss() -> torch.Tensor:
        y = model["ends"][0](x)
        for before, after, norm in zip(model["before"], model["after"], model["norms"]):
            sent = before(torch.cat((y[start], y[end]), 1))
            none = sent.new_zeros(nodes, width)
            mean = none.scatter_reduce(0, wide, sent, "mean", include_self=False)
            square = none.scatter_reduce(0, wide, sent.square(), "mean", include_self=False)
            most = none.scatter_reduce(0, wide, sent, "amax", include_self=False)
            least = none.scatter_reduce(0, wide, sent, "amin", include_self=False)
            spread = (square - mean.square()).clamp(min=1e-5).sqrt()
            found = torch.cat((mean, most, least, spread), 1)
            y = y + norm(after(torch.cat((y, found, found * scale, found / scale), 1))).relu()
        return F.cross_entropy(model["ends"][1](y), labels)

    return training(model, loss, autocast=False)


class Crossed(nn.Module):
    """DCN-v2: tables, layers that multiply by what came in, and a deep network."""

    def __init__(self, tables: int, rows: int, width: int, numbers: int) -> None:
        super().__init__()
        wide = tables * width + numbers
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.cross = nn.ModuleList(nn.Linear(wide, wide) for _ in range(3))
        sizes = (wide, 1024, 1024, 512)
        deep = [m for a, b in zip(sizes, sizes[1:]) for m in (nn.Linear(a, b), nn.ReLU())]
        self.deep, self.out = nn.Sequential(*deep), nn.Linear(wide + 512, 1)

    def forward(self, kinds: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        each = [table(kinds[:, i]) for i, table in enumerate(self.tables)]
        first = y = torch.cat((*each, numbers), 1)
        for layer in self.cross:
            y = first * layer(y) + y
        return self.out(torch.cat((y, self.deep(first)), 1))


def crossed(batch: int, *, rows: int = 100_000) -> Step:
    model = Crossed(26, rows, 32, 13).cuda()
    kinds = torch.randint(0, rows, (batch, 26), device="cuda")
    numbers = torch.randn(batch, 13, device="cuda")
    labels = torch.randint(0, 2, (batch, 1), device="cuda").float()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)

    def step() -> torch.Tensor:
        loss = F.binary_cross_entropy_with_logits(model(kinds, numbers), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


class Modes(nn.Module):
    """Of a Fourier operator in three dimensions."""

    def __init__(self, width: int, modes: int) -> None:
        super().__init__()
        self.modes, self.beside = modes, nn.Conv3d(width, width, 1)
        sizes = (4, width, width, modes, modes, modes)
        self.weight = nn.Parameter(torch.randn(*sizes, dtype=torch.cfloat) / width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, z = self.modes, torch.fft.rfftn(x, dim=(2, 3, 4))
        y = torch.zeros_like(z)
        corners = [(a, b) for a in (slice(n), slice(-n, None)) for b in (slice(n), slice(-n, None))]
        for weight, (a, b) in zip(self.weight, corners):
            y[:, :, a, b, :n] = torch.einsum("bixyz,ioxyz->boxyz", z[:, :, a, b, :n], weight)
        return F.gelu(torch.fft.irfftn(y, x.shape[2:]) + self.beside(x))


def flows(batch: int, size: int, *, width: int = 20, modes: int = 8) -> Step:
    model = nn.Sequential(
        *(nn.Conv3d(13, width, 1), *(Modes(width, modes) for _ in range(4))),
        *(nn.Conv3d(width, 128, 1), nn.GELU(), nn.Conv3d(128, 1, 1)),
    ).cuda()
    x = torch.randn(batch, 13, size, size, 40, device="cuda")
    wanted = torch.randn(batch, 1, size, size, 40, device="cuda")

    def loss() -> torch.Tensor:
        far = (model(x) - wanted).flatten(1).norm(dim=1)
        return (far / wanted.flatten(1).norm(dim=1)).mean()

    return training(model, loss, autocast=False)


class Separated(nn.Module):
    """Conv-TasNet's: dilated, a filter for each channel, norms over all of a sound."""

    def __init__(self, width: int, inner: int, dilation: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv1d(width, inner, 1), nn.PReLU(), nn.GroupNorm(1, inner, 1e-8)),
            nn.Conv1d(inner, inner, 3, padding=dilation, dilation=dilation, groups=inner),
            *(nn.PReLU(), nn.GroupNorm(1, inner, 1e-8)),
        )
        self.more, self.kept = nn.Conv1d(inner, width, 1), nn.Conv1d(inner, width, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.layers(x)
        return x + self.more(y), self.kept(y)


def speakers_apart(batch: int, seconds: int) -> Step:
    parts: dict[str, nn.Module] = {
        "into": nn.Conv1d(1, 512, 16, 8, bias=False),
        "norm": nn.GroupNorm(1, 512, 1e-8),
        "narrow": nn.Conv1d(512, 128, 1),
        "body": nn.ModuleList(Separated(128, 512, 2**i) for _ in range(2) for i in range(8)),
        "masks": nn.Sequential(nn.PReLU(), nn.Conv1d(128, 2 * 512, 1), nn.Sigmoid()),
        "back": nn.ConvTranspose1d(512, 1, 16, 8, bias=False),
    }
    model = nn.ModuleDict(parts).cuda()
    x = torch.randn(batch, 1, 8000 * seconds, device="cuda")
    wanted = torch.randn(batch, 2, 8000 * seconds, device="cuda")

    def loss() -> torch.Tensor:
        seen = model["into"](x)
        y, total = model["narrow"](model["norm"](seen)), 0
        for layer in model["body"]:
            y, kept = layer(y)
            total = total + kept
        masks = model["masks"](total).unflatten(1, (2, 512))
        found = model["back"]((masks * seen[:, None]).flatten(0, 1)).view_as(wanted)
        along = (
            (found * wanted).sum(-1, keepdim=True) / wanted.square().sum(-1, keepdim=True) * wanted
        )
        ratio = along.square().sum(-1) / ((found - along).square().sum(-1) + 1e-8)
        return -10 * (ratio + 1e-8).log10().mean()

    return training(model, loss, autocast=False)


def read_lines(batch: int, width: int) -> Step:
    """CRNN: letters of lines of text by convolutions, an LSTM both ways and CTC."""
    layers: list[nn.Module] = []
    sizes = (
        (1, 64, 2),
        (64, 128, 2),
        (128, 256, 0),
        (256, 256, (2, 1)),
        (256, 512, 0),
        (512, 512, (2, 1)),
    )
    for a, b, pool in sizes:
        layers += [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True)]
        layers += [nn.MaxPool2d(pool)] if pool else []
    parts = {
        "eye": nn.Sequential(*layers, nn.Conv2d(512, 512, 2)),
        "lstm": nn.LSTM(512, 256, 2, bidirectional=True),
        "out": nn.Linear(512, 96),
    }
    model = nn.ModuleDict(parts).cuda()
    x = torch.randn(batch, 1, 32, width, device="cuda")
    moments = width // 4 - 1
    labels = torch.randint(1, 96, (batch, 24), device="cuda")
    lengths = [torch.full((batch,), n, dtype=torch.long) for n in (moments, 24)]

    def loss() -> torch.Tensor:
        y = model["eye"](x).squeeze(2).permute(2, 0, 1)
        y = model["out"](model["lstm"](y)[0]).log_softmax(-1)
        return F.ctc_loss(y, labels, *lengths)

    return training(model, loss, autocast=False)


def noise_of_pictures(batch: int, size: int) -> Step:
    """DDPM with diffusers' network of pictures, an average of the weights."""
    from diffusers import UNet2DModel

    sizes = {"sample_size": size, "layers_per_block": 2, "block_out_channels": (128, 256, 256, 512)}
    kinds = ("DownBlock2D", "DownBlock2D", "AttnDownBlock2D", "DownBlock2D")
    turned = tuple(kind.replace("Down", "Up") for kind in reversed(kinds))
    model = UNet2DModel(**sizes, down_block_types=kinds, up_block_types=turned).cuda()
    slow = [p.detach().clone() for p in model.parameters()]
    x = torch.randn(batch, 3, size, size, device="cuda")
    times = torch.randint(0, 1000, (batch,), device="cuda")
    kept = torch.rand(batch, 1, 1, 1, device="cuda")

    def loss() -> torch.Tensor:
        noise = torch.randn_like(x)
        torch._foreach_lerp_(slow, [p.detach() for p in model.parameters()], 1e-3)
        found = model(kept.sqrt() * x + (1 - kept).sqrt() * noise, times).sample
        return F.mse_loss(found.float(), noise)

    return training(model, loss)


def joint_words(batch: int, size: int, words: int) -> Step:
    """Stable Diffusion 3's transformer in bf16, trained as a flow."""
    from diffusers import SD3Transformer2DModel

    model = SD3Transformer2DModel(*(size, 2, 16, 8, 64, 16, 1024, 1024, 512, 16, size // 2)).to(
        "cuda", BF16
    )
    x, noise = (torch.randn(batch, 16, size, size, device="cuda", dtype=BF16) for _ in range(2))
    told = torch.randn(batch, words, 1024, device="cuda", dtype=BF16)
    pooled = torch.randn(batch, 512, device="cuda", dtype=BF16)
    times = torch.rand(batch, device="cuda", dtype=BF16)

    def loss() -> torch.Tensor:
        at = times[:, None, None, None]
        found = model((1 - at) * x + at * noise, told, pooled, 1000 * times).sample
        return F.mse_loss(found.float(), (noise - x).float())

    return training(model, loss, autocast=False, fused=True)


def heard_letters(batch: int, seconds: int) -> Step:
    """A Conformer of wav2vec 2.0 with relative places, trained by CTC."""
    from transformers import Wav2Vec2ConformerConfig, Wav2Vec2ConformerForCTC

    config = Wav2Vec2ConformerConfig(
        hidden_size=512,
        num_hidden_layers=8,
        num_attention_heads=8,
        intermediate_size=2048,
        layerdrop=0.0,
        mask_time_prob=0.0,
        position_embeddings_type="relative",
        vocab_size=32,
    )
    model = Wav2Vec2ConformerForCTC(config).cuda()
    x = torch.randn(batch, 16_000 * seconds, device="cuda")
    labels = torch.randint(1, 32, (batch, 60), device="cuda")
    return training(model, lambda: model(x, labels=labels).loss)


def taught(batch: int) -> Step:
    """A small vision transformer that learns from a larger network's answers too."""
    import timm

    model = timm.create_model("deit_tiny_distilled_patch16_224").cuda()
    teacher = timm.create_model("regnety_016").cuda().eval().requires_grad_(False)
    model.set_distilled_training(True)
    x = torch.randn(batch, 3, 224, 224, device="cuda")
    labels = torch.randint(0, 1000, (batch,), device="cuda")

    def loss() -> torch.Tensor:
        found, near = model(x)
        with torch.no_grad():
            told = teacher(x).argmax(-1)
        return 0.5 * F.cross_entropy(found, labels) + 0.5 * F.cross_entropy(near, told)

    return training(model, loss)
