"""Steps of ninth.py that are written here: tables, graphs, series, sound, games, weather."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from unseen import Step, training


def layers_of(*widths: int, act: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Products with an activation after each, but not after the last one."""
    parts: list[nn.Module] = []
    for inside, outside in zip(widths, widths[1:]):
        parts += [nn.Linear(inside, outside), act()]
    return nn.Sequential(*parts[:-1])


def implicit_quantiles(batch: int, quantiles: int, *, moves: int = 18) -> Step:
    """IQN: frames of bytes, chances drawn and told as cosines, a network that follows slowly."""

    class Quantiles(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            first, second = nn.Conv2d(4, 32, 8, 4), nn.Conv2d(32, 64, 4, 2)
            seen = (first, nn.ReLU(), second, nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU())
            self.seen, self.chance = nn.Sequential(*seen, nn.Flatten()), nn.Linear(64, 3136)
            self.out = layers_of(3136, 512, moves)

        def forward(self, frames: torch.Tensor, chances: torch.Tensor) -> torch.Tensor:
            y = self.seen(frames.float() / 255)
            waves = torch.cos(torch.pi * torch.arange(64, device="cuda") * chances[..., None])
            return self.out(y[:, None] * F.relu(self.chance(waves)))

    model, slow = Quantiles().cuda(), Quantiles().cuda().requires_grad_(False)
    now, after = (
        torch.randint(0, 256, (batch, 4, 84, 84), dtype=torch.uint8, device="cuda")
        for _ in range(2)
    )
    move = torch.randint(0, moves, (batch, 1, 1), device="cuda")
    reward = torch.randn(batch, 1, device="cuda")

    def loss() -> torch.Tensor:
        chances, others = (torch.rand(batch, quantiles, device="cuda") for _ in range(2))
        with torch.no_grad():
            later = slow(after, others)
            best = later.mean(1).argmax(1)[:, None, None]
            wanted = reward + 0.99 * later.gather(2, best.expand(-1, quantiles, 1))[..., 0]
        found = model(now, chances).gather(2, move.expand(-1, quantiles, 1))[..., 0]
        off = wanted[:, None] - found[..., None]
        weight = (chances[..., None] - (off.detach() < 0).float()).abs()
        huber = F.huber_loss(
            found[..., None].expand_as(off), wanted[:, None].expand_as(off), reduction="none"
        )
        return (weight * huber).sum(1).mean()

    return training(model, loss, autocast=False)


def inverted_series(batch: int, length: int, ahead: int, *, variables: int = 137) -> Step:
    """iTransformer: each variable is a token, its past one row."""
    layer = nn.TransformerEncoderLayer(512, 8, 512, 0.1, "gelu", batch_first=True)
    parts = {
        "into": nn.Linear(length, 512),
        "body": nn.TransformerEncoder(layer, 4, enable_nested_tensor=False),
        "out": nn.Linear(512, ahead),
    }
    model = nn.ModuleDict(parts).cuda()
    x = torch.randn(batch, length, variables, device="cuda")
    wanted = torch.randn(batch, ahead, variables, device="cuda")

    def loss() -> torch.Tensor:
        mean = x.mean(1, keepdim=True).detach()
        spread = (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        y = model["body"](model["into"](((x - mean) / spread).transpose(1, 2)))
        return F.mse_loss(model["out"](y).transpose(1, 2) * spread + mean, wanted)

    return training(model, loss, autocast=False)


class Period(nn.Module):
    """Judges a wave as a picture whose rows are `period` long."""

    def __init__(self, period: int) -> None:
        super().__init__()
        self.period, widths = period, (1, 32, 128, 512, 1024)
        self.layers = nn.ModuleList(
            weight_norm(nn.Conv2d(a, b, (5, 1), (3, 1), (2, 0))) for a, b in zip(widths, widths[1:])
        )
        self.layers.append(weight_norm(nn.Conv2d(1024, 1024, (5, 1), 1, (2, 0))))
        self.out = weight_norm(nn.Conv2d(1024, 1, (3, 1), 1, (1, 0)))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        x = F.pad(x, (0, -x.shape[-1] % self.period), "reflect")
        y, seen = x.unflatten(-1, (-1, self.period)), []
        for layer in self.layers:
            y = F.leaky_relu(layer(y), 0.1)
            seen.append(y)
        return [*seen, self.out(y)]


class Vocos(nn.Module):
    """Spectra to waves: ConvNeXt's blocks of one dimension, then one inverse transform."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.into, self.norm = nn.Conv1d(100, width, 7, padding=3), nn.LayerNorm(width)
        self.near = nn.ModuleList(
            nn.Conv1d(width, width, 7, padding=3, groups=width) for _ in range(blocks)
        )
        self.after = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), layers_of(width, 3 * width, width, act=nn.GELU))
            for _ in range(blocks)
        )
        self.out = nn.Linear(width, 1026)
        self.register_buffer("window", torch.hann_window(1024))

    def forward(self, spectra: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.into(spectra).transpose(1, 2)).transpose(1, 2)
        for near, after in zip(self.near, self.after):
            y = y + after(near(y).transpose(1, 2)).transpose(1, 2)
        size, angle = self.out(y.transpose(1, 2)).transpose(1, 2).float().chunk(2, 1)
        waves = torch.polar(size.exp().clamp(max=100.0), angle)
        return torch.istft(waves, 1024, 256, window=self.window)[:, None]


def judged_sound(batch: int, length: int) -> Step:
    """Vocos against judges of five periods, in TF32: losses of what the judges saw, too."""
    torch.set_float32_matmul_precision("high")
    maker = Vocos(512, 8).cuda()
    judges = nn.ModuleList(Period(period) for period in (2, 3, 5, 7, 11)).cuda()
    optimizers = [torch.optim.AdamW(part.parameters(), 2e-4) for part in (judges, maker)]
    spectra = torch.randn(batch, 100, length // 256 + 1, device="cuda")
    real = torch.randn(batch, 1, length, device="cuda")

    def step() -> torch.Tensor:
        made = maker(spectra)
        first = torch.zeros((), device="cuda")
        for judge in judges:
            good, bad = judge(real)[-1], judge(made.detach())[-1]
            first = first + (1 - good).square().mean() + bad.square().mean()
        optimizers[0].zero_grad()
        first.backward()
        optimizers[0].step()
        second = 45 * F.l1_loss(made, real)
        for judge in judges:
            good, bad = judge(real), judge(made)
            second = second + (1 - bad[-1]).square().mean()
            for one, other in zip(good[:-1], bad[:-1]):
                second = second + 2 * F.l1_loss(other, one.detach())
        optimizers[1].zero_grad()
        second.backward()
        optimizers[1].step()
        return second.detach()

    return step


class Masked(nn.Linear):
    """A product of which only what comes earlier in an order is used."""

    def __init__(self, inside: torch.Tensor, outside: torch.Tensor, *, strict: bool) -> None:
        super().__init__(len(inside), len(outside))
        later = outside[:, None] > inside if strict else outside[:, None] >= inside
        self.register_buffer("used", later.float())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight * self.used, self.bias)


def masked_flow(batch: int, numbers: int, *, width: int = 1024, layers: int = 8) -> Step:
    """A masked autoregressive flow with batch norm between its layers, in TF32."""
    torch.set_float32_matmul_precision("high")
    order = torch.arange(numbers)
    hidden = torch.arange(width) % (numbers - 1)
    nets = nn.ModuleList(
        nn.Sequential(
            Masked(order, hidden, strict=False),
            nn.ReLU(),
            Masked(hidden, hidden, strict=False),
            nn.ReLU(),
            Masked(hidden, order.repeat(2), strict=True),
        )
        for _ in range(layers)
    )
    model = nn.ModuleDict({"nets": nets})
    model["norms"] = nn.ModuleList(nn.BatchNorm1d(numbers) for _ in range(layers))
    model = model.cuda()
    x = torch.randn(batch, numbers, device="cuda")

    def loss() -> torch.Tensor:
        y, total = x, torch.zeros(batch, device="cuda")
        for net, norm in zip(model["nets"], model["norms"]):
            shift, scale = net(y).chunk(2, -1)
            scale = torch.tanh(scale)
            y = norm((y - shift) * torch.exp(-scale)).flip(-1)
            total = total - scale.sum(-1)
        chance = torch.distributions.Normal(0.0, 1.0).log_prob(y).sum(-1)
        return -(chance + total).mean()

    return training(model, loss, autocast=False)


def meshes(nodes: int, edges: int, *, width: int = 128, layers: int = 8) -> Step:
    """MeshGraphNet: edges and nodes each have a network with a norm, in every round."""

    def network(inside: int) -> nn.Sequential:
        return nn.Sequential(layers_of(inside, width, width, width), nn.LayerNorm(width))

    parts = {
        "nodes": network(12),
        "edges": network(7),
        "of_edges": nn.ModuleList(network(3 * width) for _ in range(layers)),
        "of_nodes": nn.ModuleList(network(2 * width) for _ in range(layers)),
        "out": layers_of(width, width, width, 3),
    }
    model = nn.ModuleDict(parts).cuda()
    x, between = torch.randn(nodes, 12, device="cuda"), torch.randn(edges, 7, device="cuda")
    one, other = torch.randint(0, nodes, (2, edges), device="cuda")
    wanted = torch.randn(nodes, 3, device="cuda")

    def loss() -> torch.Tensor:
        y, e = model["nodes"](x), model["edges"](between)
        for of_edges, of_nodes in zip(model["of_edges"], model["of_nodes"]):
            e = e + of_edges(torch.cat((e, y[one], y[other]), -1))
            sums = torch.zeros_like(y).index_add_(0, other, e)
            y = y + of_nodes(torch.cat((y, sums), -1))
        return F.mse_loss(model["out"](y), wanted)

    return training(model, loss, autocast=False)


def pyramid_of_sound(batch: int, frames: int, letters: int, *, width: int = 512) -> Step:
    """Listen, attend and spell: LSTMs both ways, each of half the frames, a GRU that asks."""
    sizes = (160, 4 * width, 4 * width)
    parts = {
        "listen": nn.ModuleList(
            nn.LSTM(size, width, batch_first=True, bidirectional=True) for size in sizes
        ),
        "letters": nn.Embedding(64, width),
        "spell": nn.GRU(width, 2 * width, 2, batch_first=True),
        "out": layers_of(4 * width, width, 64),
    }
    model = nn.ModuleDict(parts).cuda()
    x = torch.randn(batch, frames, 80, device="cuda")
    told = torch.randint(0, 64, (batch, letters + 1), device="cuda")

    def loss() -> torch.Tensor:
        y = x
        for listen in model["listen"]:
            y = listen(y.reshape(batch, y.shape[1] // 2, -1))[0]
        asked = model["spell"](model["letters"](told[:, :-1]))[0]
        seen = F.scaled_dot_product_attention(asked, y, y)
        found = model["out"](torch.cat((asked, seen), -1))
        return F.cross_entropy(found.flatten(0, 1), told[:, 1:].flatten())

    return training(model, loss, autocast=False)


class Residue(nn.Module):
    """The gated residual network of a temporal fusion transformer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers, self.gate = (
            layers_of(width, width, width, act=nn.ELU),
            nn.Linear(width, 2 * width),
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + F.glu(self.gate(self.layers(x)), -1))


class Chosen(nn.Module):
    """Weighs some variables, each of which goes through a network of its own."""

    def __init__(self, number: int, width: int) -> None:
        super().__init__()
        self.into = nn.ModuleList(nn.Linear(1, width) for _ in range(number))
        self.each = nn.ModuleList(Residue(width) for _ in range(number))
        self.weigh = nn.Linear(number * width, number)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        all_of = [into(part[..., None]) for into, part in zip(self.into, x.unbind(-1))]
        weights = self.weigh(torch.cat(all_of, -1)).softmax(-1)
        y = torch.stack([each(part) for each, part in zip(self.each, all_of)], -1)
        return (y * weights[..., None, :]).sum(-1)


def quantiles_of_sales(batch: int, past: int, ahead: int, *, width: int = 128) -> Step:
    """A temporal fusion transformer: chosen variables, LSTMs, attention, three quantiles."""
    parts = {
        "past": Chosen(6, width),
        "known": Chosen(4, width),
        "reads": nn.LSTM(width, width, batch_first=True),
        "tells": nn.LSTM(width, width, batch_first=True),
        "before": Residue(width),
        "looks": nn.MultiheadAttention(width, 4, 0.1, batch_first=True),
        "after": Residue(width),
        "out": nn.Linear(width, 3),
    }
    model = nn.ModuleDict(parts).cuda()
    x, known = (
        torch.randn(batch, past, 6, device="cuda"),
        torch.randn(batch, ahead, 4, device="cuda"),
    )
    wanted = torch.randn(batch, ahead, 1, device="cuda")
    shares = torch.tensor([0.1, 0.5, 0.9], device="cuda")
    later = torch.ones(ahead, past + ahead, device="cuda").triu(past + 1).bool()

    def loss() -> torch.Tensor:
        read, state = model["reads"](model["past"](x))
        told, _ = model["tells"](model["known"](known), state)
        y = model["before"](torch.cat((read, told), 1))
        seen, _ = model["looks"](y[:, past:], y, y, attn_mask=later)
        off = wanted - model["out"](model["after"](y[:, past:] + seen))
        return torch.maximum(shares * off, (shares - 1) * off).mean()

    return training(model, loss, autocast=False)


def related_nodes(nodes: int, edges: int, kinds: int, *, width: int = 128) -> Step:
    """R-GCN: each relation's matrix is a mixture of eight."""
    layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
    bases = nn.ParameterList(0.05 * torch.randn(8, width, width) for _ in range(3))
    mixed = nn.ParameterList(torch.randn(kinds, 8) for _ in range(3))
    table = nn.Embedding(nodes, width)
    model = nn.ModuleList((layers, bases, mixed, table)).cuda()
    one, other = torch.randint(0, nodes, (2, edges), device="cuda")
    kind = torch.randint(0, kinds, (edges,), device="cuda")
    labels = torch.randint(0, width, (nodes,), device="cuda")
    degrees = torch.bincount(other, minlength=nodes).clamp(min=1)[:, None]

    def loss() -> torch.Tensor:
        y = table.weight
        for layer, basis, mix in zip(layers, bases, mixed):
            parts = torch.einsum("nw,bwv->nbv", y, basis)
            told = torch.einsum("ebv,eb->ev", parts[one], mix[kind])
            sums = torch.zeros_like(y).index_add(0, other, told.to(y.dtype))
            y = F.relu(layer(y) + sums / degrees)
        return F.cross_entropy(y.float(), labels)

    return training(model, loss)
