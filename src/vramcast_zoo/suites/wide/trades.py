"""What people train in trades that no other row is from: medicine, chemistry, physics, shops."""

from __future__ import annotations

import math
import os
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from vramcast_zoo.suites.training import training_step
from vramcast_zoo.suites.wide.everyday import lines_of

Step = Callable[[], torch.Tensor]


def survival(*, batch_size: int = 4096, columns: int = 64, width: int = 512) -> Step:
    """Cox's partial likelihood: every patient against all who were still there."""
    net = nn.Sequential(
        nn.Linear(columns, width), nn.BatchNorm1d(width), nn.ELU(), nn.Dropout(0.2),
        nn.Linear(width, width), nn.BatchNorm1d(width), nn.ELU(), nn.Linear(width, 1),
    ).cuda()  # fmt: skip
    x = torch.randn(batch_size, columns, device="cuda")
    until = torch.rand(batch_size, device="cuda")
    died = (torch.rand(batch_size, device="cuda") < 0.4).float()

    def loss() -> torch.Tensor:
        order = until.argsort(descending=True)
        risk = net(x)[order, 0]
        return -((risk - risk.logcumsumexp(0)) * died[order]).sum() / died.sum()

    return training_step(loss, net.parameters())


def triangles(*, length: int = 96, width: int = 64, blocks: int = 3) -> Step:
    """Pairs of residues of a protein: products and attention along triangles."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.middle = nn.LayerNorm(width), nn.LayerNorm(width)
            self.sides, self.gates = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
            self.out, self.gate = nn.Linear(width, width), nn.Linear(width, width)
            self.looks, self.bias = nn.Linear(width, 3 * width), nn.Linear(width, 4)
            self.says = nn.Linear(width, width)
            self.deep = nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.ReLU(),
                nn.Linear(4 * width, width),
            )  # fmt: skip

        def forward(self, pairs: torch.Tensor) -> torch.Tensor:
            x = self.norm(pairs)
            left, right = (self.sides(x) * self.gates(x).sigmoid()).chunk(2, -1)
            joined = torch.einsum("ikc,jkc->ijc", left, right)
            pairs = pairs + self.gate(x).sigmoid() * self.out(self.middle(joined))
            x = self.norm(pairs)
            q, k, v = self.looks(x).unflatten(-1, (12, -1)).transpose(1, 2).chunk(3, 1)
            bias = self.bias(x).permute(2, 0, 1)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None])
            pairs = pairs + self.says(y.transpose(1, 2).flatten(2))
            return pairs + self.deep(pairs)

    enter = nn.Linear(2 * width, width).cuda()
    stack = nn.ModuleList([Block() for _ in range(blocks)]).cuda()
    bins = nn.Linear(width, 64).cuda()
    chain = torch.randn(length, width, device="cuda")
    far = torch.randint(0, 64, (length, length), device="cuda")

    def loss() -> torch.Tensor:
        rows = chain[:, None].expand(-1, length, -1)
        pairs = enter(torch.cat([rows, rows.transpose(0, 1)], -1))
        for block in stack:
            pairs = block(pairs)
        told = bins(pairs + pairs.transpose(0, 1))
        return F.cross_entropy(told.flatten(0, 1).float(), far.flatten())

    nets = nn.ModuleList([enter, stack, bins])
    return training_step(loss, nets.parameters(), autocast="bf16")


def enlarged(*, batch_size: int = 8, size: int = 48, width: int = 64) -> Step:
    """Pictures four times as large, judged by a network with spectral norms."""
    from torch.nn.utils.parametrizations import spectral_norm

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(width, width, 3, padding=1)
            self.second = nn.Conv2d(width, width, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 0.1 * self.second(F.relu(self.first(x)))

    makes = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), *[Residual() for _ in range(8)],
        nn.Conv2d(width, 4 * width, 3, padding=1), nn.PixelShuffle(2),
        nn.Conv2d(width, 4 * width, 3, padding=1), nn.PixelShuffle(2),
        nn.Conv2d(width, 3, 3, padding=1),
    ).cuda()  # fmt: skip
    judges = nn.Sequential(
        spectral_norm(nn.Conv2d(3, 64, 4, 2, 1)), nn.LeakyReLU(0.2),
        spectral_norm(nn.Conv2d(64, 128, 4, 2, 1)), nn.LeakyReLU(0.2),
        spectral_norm(nn.Conv2d(128, 1, 3, padding=1)),
    ).cuda()  # fmt: skip
    large = torch.rand(batch_size, 3, 4 * size, 4 * size, device="cuda")
    updates = [torch.optim.Adam(net.parameters(), lr=1e-4) for net in (makes, judges)]

    def step() -> torch.Tensor:
        small = F.interpolate(large, scale_factor=0.25, mode="bicubic", antialias=True)
        made = makes(small)
        wrong = F.l1_loss(made, large) + 1e-3 * F.softplus(-judges(made)).mean()
        updates[0].zero_grad()
        wrong.backward()
        updates[0].step()
        updates[1].zero_grad()
        fooled = F.softplus(judges(made.detach())).mean() + F.softplus(-judges(large)).mean()
        fooled.backward()
        updates[1].step()
        return wrong.detach()

    return step


def read_lines(*, batch_size: int = 16, length: int = 256, letters: int = 80) -> Step:
    """Lines of text in pictures: columns of features, an LSTM in both directions, CTC."""
    body = nn.Sequential(
        lines_of(1, 64), nn.MaxPool2d(2), lines_of(64, 128), nn.MaxPool2d(2), lines_of(128, 256),
        nn.MaxPool2d((2, 1)), lines_of(256, 256), nn.MaxPool2d((2, 1)),
    ).cuda()  # fmt: skip
    cells = nn.LSTM(512, 256, 2, bidirectional=True, dropout=0.1).cuda()
    says = nn.Linear(512, letters).cuda()
    lines = torch.rand(batch_size, 1, 32, length, device="cuda")
    written = torch.randint(1, letters, (batch_size, 20), device="cuda")
    sizes = torch.full((batch_size,), length // 4), torch.full((batch_size,), 20)

    def loss() -> torch.Tensor:
        columns = body(lines).flatten(1, 2).permute(2, 0, 1)
        hidden, _ = cells(columns)
        return F.ctc_loss(says(hidden).log_softmax(-1), written, *sizes, zero_infinity=True)

    nets = nn.ModuleList([body, cells, says])
    return training_step(loss, nets.parameters(), clip=5.0)


def hourglasses(*, batch_size: int = 4, size: int = 128, stacks: int = 2, joints: int = 16) -> Step:
    """Poses: hourglasses one after another, each of which is told what it should see."""

    class Hourglass(nn.Module):
        def __init__(self, depth: int) -> None:
            super().__init__()
            self.beside, self.down, self.up = (lines_of(96, 96) for _ in range(3))
            self.inner = Hourglass(depth - 1) if depth > 1 else lines_of(96, 96)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.up(self.inner(self.down(F.max_pool2d(x, 2))))
            return self.beside(x) + F.interpolate(y, scale_factor=2)

    enter = nn.Sequential(lines_of(3, 64, 2, 7), lines_of(64, 96)).cuda()
    glasses = nn.ModuleList([Hourglass(4) for _ in range(stacks)]).cuda()
    maps = nn.ModuleList([nn.Conv2d(96, joints, 1) for _ in range(stacks)]).cuda()
    back = nn.ModuleList([nn.Conv2d(joints, 96, 1) for _ in range(stacks)]).cuda()
    images = torch.rand(batch_size, 3, size, size, device="cuda")
    at = torch.rand(batch_size, joints, 2, 1, 1, device="cuda") * size / 2
    grid = torch.stack(torch.meshgrid(*[torch.arange(size // 2, device="cuda")] * 2, indexing="ij"))

    def loss() -> torch.Tensor:
        wanted = (-(grid - at).square().sum(2) / 8).exp()
        x, total = enter(images), torch.zeros((), device="cuda")
        for glass, tells, returns in zip(glasses, maps, back):
            y = glass(x)
            seen = tells(y)
            total = total + F.mse_loss(seen, wanted)
            x = x + y + returns(seen)
        return total

    nets = nn.ModuleList([enter, glasses, maps, back])
    return training_step(loss, nets.parameters(), optimizer="sgd")


def circuits(*, batch_size: int = 64, qubits: int = 10, layers: int = 4) -> Step:
    """A quantum circuit as tensors of complex numbers: turns of qubits, and pairs that meet."""
    angles = nn.Parameter(torch.rand(layers, qubits, 3, device="cuda"))
    says = nn.Linear(qubits, 2).cuda()
    x = torch.rand(batch_size, qubits, device="cuda")
    labels = torch.randint(0, 2, (batch_size,), device="cuda")
    signs = 1 - 2 * ((torch.arange(2**qubits, device="cuda")[:, None] >> torch.arange(
        qubits, device="cuda")) & 1)  # fmt: skip

    def turn(angle: torch.Tensor) -> torch.Tensor:
        half, first, second = angle[..., 0] / 2, angle[..., 1], angle[..., 2]
        turned = torch.polar(half.sin(), first), torch.polar(half.sin(), second)
        kept = torch.polar(half.cos(), first * 0), torch.polar(half.cos(), first + second)
        rows = torch.stack([kept[0], -turned[1]], -1), torch.stack([turned[0], kept[1]], -1)
        return torch.stack(rows, -2)

    def loss() -> torch.Tensor:
        state = torch.zeros(batch_size, 2**qubits, dtype=torch.complex64, device="cuda")
        state[:, 0] = 1
        for layer in range(layers):
            for qubit in range(qubits):
                both = torch.stack([x[:, qubit], *angles[layer, qubit, 1:].expand(batch_size, 2).T])
                gates = turn(both.T if layer == 0 else angles[layer, qubit].expand(batch_size, 3))
                parts = state.view(batch_size, 2**qubit, 2, -1)
                state = torch.einsum("bij,bljr->blir", gates, parts).reshape(batch_size, -1)
            state = state * torch.where(signs[:, :-1] + signs[:, 1:] == -2, -1, 1).prod(1)
        seen = (state.abs().square() @ signs.float()) / math.sqrt(qubits)
        return F.cross_entropy(says(seen), labels)

    return training_step(loss, [angles, *says.parameters()])


def lattice(*, batch_size: int = 256, size: int = 16, couplings: int = 8) -> Step:
    """Fields on a lattice whose ends meet: a flow that draws them, judged by their action."""
    nets = nn.ModuleList([
        nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1, padding_mode="circular"), nn.LeakyReLU(),
            nn.Conv2d(32, 32, 3, padding=1, padding_mode="circular"), nn.LeakyReLU(),
            nn.Conv2d(32, 2, 3, padding=1, padding_mode="circular"), nn.Tanh(),
        )
        for _ in range(couplings)
    ]).cuda()  # fmt: skip
    places = torch.arange(size, device="cuda")
    even = ((places[:, None] + places) % 2).float()

    def loss() -> torch.Tensor:
        x = torch.randn(batch_size, size, size, device="cuda")
        log_likely = torch.distributions.Normal(0, 1).log_prob(x).sum((1, 2))
        for number, net in enumerate(nets):
            kept = even if number % 2 else 1 - even
            scale, shift = net((kept * x)[:, None]).unbind(1)
            log_likely = log_likely - ((1 - kept) * scale).sum((1, 2))
            x = kept * x + (1 - kept) * (x * scale.exp() + shift)
        near = sum(x * torch.roll(x, 1, dim) for dim in (1, 2))
        action = (x.square() * -2 + 4 * x.square() - 2 * near + 8 * x**4).sum((1, 2))
        return (log_likely + action).mean()

    return training_step(loss, nets.parameters())


def energies_kept(*, batch_size: int = 2048, steps: int = 5, width: int = 200) -> Step:
    """Motion that keeps its energy: a network says the energy, its gradients move the bodies."""
    energy = nn.Sequential(
        nn.Linear(8, width), nn.Softplus(), nn.Linear(width, width), nn.Softplus(),
        nn.Linear(width, 1),
    ).cuda()  # fmt: skip
    path = torch.randn(steps + 1, batch_size, 8, device="cuda")

    def slopes(state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        (found,) = torch.autograd.grad(energy(state).sum(), state, create_graph=True)
        return found.chunk(2, -1)

    def loss() -> torch.Tensor:
        state = path[0].clone().requires_grad_()
        total = torch.zeros((), device="cuda")
        for wanted in path[1:]:
            where, speed = state.chunk(2, -1)
            speed = speed - 0.05 * slopes(state)[0]
            where = where + 0.1 * slopes(torch.cat([where, speed], -1))[1]
            state = torch.cat([where, speed], -1)
            state = torch.cat([where, speed - 0.05 * slopes(state)[0]], -1)
            total = total + F.mse_loss(state, wanted)
        return total

    return training_step(loss, energy.parameters())


def oblivious_trees(*, batch_size: int = 1024, columns: int = 50, trees: int = 256) -> Step:
    """Tables by trees that ask the same everywhere at a depth, chosen by a sparse softmax."""
    depth, leaves = 5, 2**5

    class Trees(nn.Module):
        def __init__(self, inputs: int) -> None:
            super().__init__()
            self.choice = nn.Parameter(torch.rand(inputs, trees, depth))
            self.bounds = nn.Parameter(torch.rand(trees, depth))
            self.widths = nn.Parameter(torch.zeros(trees, depth))
            self.answers = nn.Parameter(torch.randn(trees, 3, leaves))
            bits = (torch.arange(leaves) >> torch.arange(depth)[:, None]) & 1
            self.register_buffer("codes", torch.stack([1 - bits, bits]).float())

        def sparse(self, x: torch.Tensor) -> torch.Tensor:
            ordered, _ = x.sort(0, descending=True)
            sums = ordered.cumsum(0) - 1
            ranks = torch.arange(1, len(x) + 1, device=x.device)[:, None, None]
            support = (ranks * ordered > sums).sum(0, keepdim=True)
            return (x - sums.gather(0, support - 1) / support).clamp(min=0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen = torch.einsum("bi,itd->btd", x, self.sparse(self.choice))
            level = (seen - self.bounds) * torch.exp(-self.widths)
            sides = (0.5 + 0.5 * torch.stack([-level, level], -1)).clamp(0, 1)
            reached = torch.einsum("btds,sdl->btdl", sides, self.codes).prod(-2)
            return torch.einsum("btl,tcl->btc", reached, self.answers).flatten(1)

    first, second = Trees(columns).cuda(), Trees(columns + 3 * trees).cuda()
    x = torch.randn(batch_size, columns, device="cuda")
    wanted = torch.randn(batch_size, device="cuda")

    def loss() -> torch.Tensor:
        y = first(x)
        return F.mse_loss((y + second(torch.cat([x, y], -1))).mean(-1), wanted)

    return training_step(loss, [*first.parameters(), *second.parameters()])


def patches_of_time(*, batch_size: int = 64, series: int = 21, length: int = 336) -> Step:
    """Forecasts of several series, each by itself: patches of time, and norms that are undone."""
    width, patch, stride, ahead = 128, 16, 8, 96
    count = (length - patch) // stride + 2
    enter, place = nn.Linear(patch, width).cuda(), nn.Parameter(torch.zeros(count, width).cuda())
    layer = nn.TransformerEncoderLayer(width, 8, 256, 0.2, "gelu", batch_first=True)
    body = nn.TransformerEncoder(layer, 3).cuda()
    says = nn.Linear(count * width, ahead).cuda()
    scale = nn.Parameter(torch.ones(series, 1, device="cuda"))
    past = torch.randn(batch_size, series, length, device="cuda")
    future = torch.randn(batch_size, series, ahead, device="cuda")

    def loss() -> torch.Tensor:
        mean, wide = past.mean(-1, keepdim=True), past.std(-1, keepdim=True, unbiased=False) + 1e-5
        x = F.pad((past - mean) / wide * scale, (0, stride), mode="replicate")
        x = x.unfold(-1, patch, stride).flatten(0, 1)
        y = says(body(enter(x) + place).flatten(1)).unflatten(0, (batch_size, series))
        return F.mse_loss(y / scale * wide + mean, future)

    nets = nn.ModuleList([enter, body, says])
    return training_step(loss, [*nets.parameters(), place, scale], autocast="bf16")


def two_towers(*, batch_size: int = 4096, things: int = 200_000, width: int = 64) -> Step:
    """People and things in one space: others of the batch are wrong, common ones count less."""
    tables = nn.ModuleList([nn.EmbeddingBag(things, width, mode="mean"),
                            nn.Embedding(things, width)]).cuda()  # fmt: skip
    towers = nn.ModuleList([
        nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, width)) for _ in range(2)
    ]).cuda()  # fmt: skip
    history = torch.randint(0, things, (batch_size, 30), device="cuda")
    bought = torch.randint(0, things, (batch_size,), device="cuda")
    common = torch.rand(things, device="cuda").log()

    def loss() -> torch.Tensor:
        people = F.normalize(towers[0](tables[0](history)), dim=-1)
        goods = F.normalize(towers[1](tables[1](bought)), dim=-1)
        scores = people @ goods.T / 0.05 - common[bought]
        same = bought[:, None] == bought
        same.fill_diagonal_(False)
        return F.cross_entropy(scores.masked_fill(same, -1e9), torch.arange(
            batch_size, device="cuda"))  # fmt: skip

    return training_step(loss, [*tables.parameters(), *towers.parameters()])


def repeatable_messages(*, nodes: int = 20_000, edges: int = 200_000, width: int = 64) -> Step:
    """A graph whose messages are added in the same order every time, with little for cuBLAS."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":16:8"
    torch.use_deterministic_algorithms(True)
    enter, message = nn.Embedding(nodes, width).cuda(), nn.Linear(2 * width, width).cuda()
    cell, says = nn.GRUCell(width, width).cuda(), nn.Linear(width, 8).cuda()
    source, target = torch.randint(0, nodes, (2, edges), device="cuda")
    asked = torch.randperm(nodes, device="cuda")[:2000]
    labels = torch.randint(0, 8, (2000,), device="cuda")

    def loss() -> torch.Tensor:
        x = enter.weight
        for _ in range(2):
            ends = torch.cat([x.index_select(0, source), x.index_select(0, target)], -1)
            sent = message(ends).relu()
            score = sent.mean(-1)
            total = torch.zeros(nodes, device="cuda").scatter_add(0, target, score.exp())
            sent = sent * (score.exp() / total.gather(0, target)).unsqueeze(-1)
            x = cell(torch.zeros_like(x).index_add_(0, target, sent), x)
        best = x.gather(1, x.argsort(-1)[:, :width])
        return F.cross_entropy(says(best[asked]), labels)

    nets = nn.ModuleList([enter, message, cell, says])
    return training_step(loss, nets.parameters())


def chosen_places(*, batch_size: int = 64, length: int = 256, width: int = 128) -> Step:
    """Rows written back to where they came from, in the same way every time."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True)
    enter = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width)).cuda()
    gate, says = nn.Linear(width, 1).cuda(), nn.Linear(width, width).cuda()
    x = torch.randn(batch_size, length, width, device="cuda")
    few = length // 4

    def loss() -> torch.Tensor:
        weight, places = gate(x).squeeze(-1).topk(few, dim=1)
        at = places.unsqueeze(-1).expand(-1, -1, width)
        routed = enter(x.gather(1, at)) * weight.sigmoid().unsqueeze(-1)
        y = x.scatter_add(1, at, routed)
        rows = torch.arange(0, length, 2, device="cuda")
        y = y.index_copy(1, rows, says(y.index_select(1, rows)))
        kept = torch.zeros_like(y).scatter(1, at, routed)
        return F.mse_loss(y + kept, x)

    return training_step(loss, nn.ModuleList([enter, gate, says]).parameters())
