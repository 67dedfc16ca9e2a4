"""Steps of ninth.py that are written here: robots, what is bought, experts, weather."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from ninth_others import layers_of
from torch import nn
from unseen import Step, training

TABLES = (1_000_000, 400_000, 100_000, 50_000, *[10_000] * 8, *[500] * 12)


class Moved(nn.Module):
    """A residual block of one dimension that is scaled and shifted by what is told."""

    def __init__(self, inside: int, outside: int, told: int) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Sequential(
                nn.Conv1d(size, outside, 5, padding=2), nn.GroupNorm(8, outside), nn.Mish()
            )
            for size in (inside, outside)
        )
        self.told = nn.Sequential(nn.Mish(), nn.Linear(told, 2 * outside))
        self.beside = nn.Conv1d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
        scale, shift = self.told(told)[..., None].chunk(2, 1)
        return self.second(scale * self.first(x) + shift) + self.beside(x)


class Moves(nn.Module):
    """The U-Net of a diffusion policy: noise of moves, told by what is seen."""

    def __init__(self, told: int, widths: Sequence[int] = (256, 512, 1024)) -> None:
        super().__init__()
        pairs = list(zip((10, *widths), widths))
        self.down = nn.ModuleList(
            nn.ModuleList((Moved(a, b, told), Moved(b, b, told), nn.Conv1d(b, b, 3, 2, 1)))
            for a, b in pairs
        )
        self.middle = nn.ModuleList(Moved(widths[-1], widths[-1], told) for _ in range(2))
        self.up = nn.ModuleList(
            nn.ModuleList(
                (nn.ConvTranspose1d(b, b, 4, 2, 1), Moved(2 * b, b, told), Moved(b, a, told))
            )
            for a, b in ((widths[0], widths[0]), *zip(widths, widths[1:]))
        )
        self.out = nn.Conv1d(widths[0], 10, 1)

    def forward(self, x: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
        kept = []
        for first, second, smaller in self.down:
            x = second(first(x, told), told)
            kept.append(x)
            x = smaller(x)
        for part in self.middle:
            x = part(x, told)
        for larger, first, second in reversed(self.up):
            x = second(first(torch.cat((larger(x), kept.pop()), 1), told), told)
        return self.out(x)


def robot_moves(batch: int, length: int) -> Step:
    """A diffusion policy: two cameras by ResNets with group norm, an average of the weights."""
    from torchvision.models import resnet18

    cameras = nn.ModuleList(
        resnet18(num_classes=128, norm_layer=lambda width: nn.GroupNorm(width // 16, width))
        for _ in range(2)
    )
    model = nn.ModuleDict({"seen": cameras, "moves": Moves(2 * 128 + 10 + 64)}).cuda()
    average = [parameter.detach().clone() for parameter in model.parameters()]
    pictures = torch.randn(2, batch, 3, 128, 128, device="cuda")
    joints = torch.randn(batch, 10, device="cuda")
    wanted = torch.randn(batch, 10, length, device="cuda")
    waves = torch.exp(torch.linspace(0, -9, 32, device="cuda"))

    def loss() -> torch.Tensor:
        seen = [camera(picture) for camera, picture in zip(model["seen"], pictures)]
        when = torch.randint(0, 100, (batch,), device="cuda")
        angles = when[:, None] * waves
        noise, share = torch.randn_like(wanted), (when[:, None, None] + 1) / 101
        mixed = (1 - share).sqrt() * wanted + share.sqrt() * noise
        told = torch.cat((*seen, joints, angles.sin(), angles.cos()), -1)
        return F.mse_loss(model["moves"](mixed, told).float(), noise)

    update = training(model, loss)

    def step() -> torch.Tensor:
        found = update()
        with torch.no_grad():
            torch._foreach_lerp_(average, list(model.parameters()), 0.001)
        return found

    return step


def several_tasks(batch: int, *, width: int = 32, experts: int = 6, tasks: int = 4) -> Step:
    """MMoE: shared tables and experts, a gate and a tower for each task, in TF32."""
    torch.set_float32_matmul_precision("high")
    inside = width * len(TABLES)
    parts = {
        "tables": nn.ModuleList(nn.Embedding(rows, width) for rows in TABLES),
        "experts": nn.ModuleList(layers_of(inside, 1024, 512) for _ in range(experts)),
        "gates": nn.ModuleList(nn.Linear(inside, experts) for _ in range(tasks)),
        "towers": nn.ModuleList(layers_of(512, 256, 64, 1) for _ in range(tasks)),
    }
    model = nn.ModuleDict(parts).cuda()
    names = torch.stack([torch.randint(0, rows, (batch,), device="cuda") for rows in TABLES])
    labels = torch.randint(0, 2, (tasks, batch), device="cuda").float()

    def loss() -> torch.Tensor:
        x = torch.cat([table(name) for table, name in zip(model["tables"], names)], -1)
        found = torch.stack([F.relu(expert(x)) for expert in model["experts"]], 1)
        total = torch.zeros((), device="cuda")
        for gate, tower, label in zip(model["gates"], model["towers"], labels):
            y = (gate(x).softmax(-1)[..., None] * found).sum(1)
            total = total + F.binary_cross_entropy_with_logits(tower(y)[:, 0], label)
        return total

    return training(model, loss, autocast=False)


class SoftExperts(nn.Module):
    """Every slot of an expert is a mean of all words, every word a mean of all slots."""

    def __init__(self, width: int, experts: int, slots: int) -> None:
        super().__init__()
        self.slots = nn.Parameter(0.02 * torch.randn(width, experts * slots))
        self.up = nn.Parameter(0.02 * torch.randn(experts, width, 4 * width))
        self.down = nn.Parameter(0.02 * torch.randn(experts, 4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = x @ self.slots
        into = torch.einsum("bns,bnw->bsw", scores.softmax(1).to(x.dtype), x)
        into = into.unflatten(1, (len(self.up), -1))
        inner = F.gelu(torch.einsum("bepw,ewv->bepv", into, self.up))
        out = torch.einsum("bepv,evw->bepw", inner, self.down).flatten(1, 2)
        return torch.einsum("bns,bsw->bnw", scores.softmax(2).to(out.dtype), out)


class Mixed(nn.Module):
    def __init__(self, width: int, heads: int, after: nn.Module) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.looks, self.after = nn.MultiheadAttention(width, heads, batch_first=True), after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norms[0](x)
        x = x + self.looks(y, y, y, need_weights=False)[0]
        return x + self.after(self.norms[1](x))


def soft_experts(batch: int, *, width: int = 512, layers: int = 8) -> Step:
    """A vision transformer, half of whose layers have 32 experts."""
    experts = [SoftExperts(width, 32, 4) for _ in range(layers // 2)]
    plain = [layers_of(width, 4 * width, width, act=nn.GELU) for _ in range(layers // 2)]
    body = nn.Sequential(*(Mixed(width, 8, after) for after in (*plain, *experts)))
    parts = {"into": nn.Conv2d(3, width, 16, 16), "body": body, "out": nn.Linear(width, 1000)}
    model = nn.ModuleDict(parts).cuda()
    place = nn.Parameter(torch.zeros(1, 256, width, device="cuda"))
    x = torch.randn(batch, 3, 256, 256, device="cuda")
    labels = torch.randint(0, 1000, (batch,), device="cuda")

    def loss() -> torch.Tensor:
        y = model["body"](model["into"](x).flatten(2).transpose(1, 2) + place)
        return F.cross_entropy(model["out"](y.mean(1)).float(), labels)

    return training(model, loss)


class Unit(nn.Module):
    """HSTU's: SiLU of scores in place of a softmax, and a gate of what comes out."""

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads, self.before, self.after = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.four, self.out = nn.Linear(width, 4 * width), nn.Linear(width, width)
        self.near = nn.Parameter(torch.zeros(2 * length - 1))
        place = torch.arange(length)
        self.register_buffer("away", place[:, None] - place + length - 1)
        self.register_buffer("past", (place[:, None] >= place).float() / length)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, q, k, v = F.silu(self.four(self.before(x))).chunk(4, -1)
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in (q, k, v))
        scores = F.silu(q @ k.transpose(2, 3) + self.near[self.away]) * self.past
        y = (scores.to(v.dtype) @ v).transpose(1, 2).flatten(2)
        return x + self.out(self.after(y) * gate)


def told_by_units(
    batch: int, length: int, *, things: int = 500_000, wrong: int = 256, width: int = 256
) -> Step:
    """HSTU: what was bought, what comes next among some that are wrong."""
    units = nn.Sequential(*(Unit(width, 4, length) for _ in range(6)))
    model = nn.ModuleDict({"things": nn.Embedding(things, width), "units": units}).cuda()
    x = torch.randint(0, things, (batch, length + 1), device="cuda")

    def loss() -> torch.Tensor:
        y = F.normalize(model["units"](model["things"](x[:, :-1])).float(), dim=-1)
        others = torch.randint(0, things, (batch, wrong), device="cuda")
        good = F.normalize(model["things"](x[:, 1:]), dim=-1)
        bad = F.normalize(model["things"](others), dim=-1)
        found = torch.cat(((y * good).sum(-1, keepdim=True), y @ bad.transpose(1, 2)), -1)
        return -(20 * found).log_softmax(-1)[..., 0].mean()

    return training(model, loss)


class Waves(nn.Module):
    """AFNO's: blocks of a network of complex numbers for all waves, the small ones dropped."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        size = width // blocks
        self.first, self.second = (
            nn.Parameter(0.02 * torch.randn(2, blocks, size, size)) for _ in range(2)
        )
        self.biases = nn.Parameter(torch.zeros(2, 2, blocks, size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        waves = torch.fft.rfft2(x.float(), dim=(1, 2), norm="ortho")
        real, turned = (
            part.unflatten(-1, self.first.shape[1:3]) for part in (waves.real, waves.imag)
        )
        for (a, b), bias, act in (
            (self.first, self.biases[0], F.relu),
            (self.second, self.biases[1], F.softshrink),
        ):
            one, other = (
                torch.einsum("hwkbi,bio->hwkbo", real, a)
                - torch.einsum("hwkbi,bio->hwkbo", turned, b),
                torch.einsum("hwkbi,bio->hwkbo", turned, a)
                + torch.einsum("hwkbi,bio->hwkbo", real, b),
            )
            more = {"lambd": 0.01} if act is F.softshrink else {}
            real, turned = act(one + bias[0], **more), act(other + bias[1], **more)
        waves = torch.complex(real, turned).flatten(-2)
        return torch.fft.irfft2(waves, x.shape[1:3], dim=(1, 2), norm="ortho") + x


class Weather(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.waves, self.after = Waves(width, 8), layers_of(width, 4 * width, width, act=nn.GELU)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.waves(self.norms[0](x)) + x
        return y + self.after(self.norms[1](y))


def weather_in_blocks(batch: int, height: int, width: int) -> Step:
    """FourCastNet: patches of weather, eight blocks, in TF32."""
    torch.set_float32_matmul_precision("high")
    body = nn.Sequential(*(Weather(512) for _ in range(8)))
    parts = {"into": nn.Conv2d(20, 512, 4, 4), "body": body, "out": nn.Linear(512, 20 * 16)}
    model = nn.ModuleDict(parts).cuda()
    x, wanted = (torch.randn(batch, 20, height, width, device="cuda") for _ in range(2))

    def loss() -> torch.Tensor:
        y = model["out"](model["body"](model["into"](x).permute(0, 2, 3, 1)))
        y = F.pixel_shuffle(y.permute(0, 3, 1, 2), 4)
        return F.mse_loss(y, wanted)

    return training(model, loss, autocast=False)
