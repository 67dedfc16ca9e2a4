"""Steps that turn on something rare: line by line solvers, sets of points, curves, beams."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, hessian, vmap
from torch.utils.checkpoint import checkpoint

from vramcast_zoo.suites.training import training_step
from vramcast_zoo.suites.wide.everyday import lines_of

Step = Callable[[], torch.Tensor]


def painted_long(*, size: int = 256, style_weight: float = 1e6) -> Step:
    """Style transfer with the weights of torch's tutorial: L-BFGS goes on in every step."""
    from torchvision.models import vgg11

    layers = vgg11(weights=None).features[:11].cuda().eval().requires_grad_(False)
    for layer in layers:
        if isinstance(layer, nn.Conv2d):  # features as large as those of trained weights
            nn.init.kaiming_normal_(layer.weight)
    content, style = torch.rand(2, 1, 3, size, size, device="cuda")
    canvas = nn.Parameter(content.clone())
    update = torch.optim.LBFGS([canvas])

    def features(x: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for layer in layers:
            x = layer(x) if not isinstance(layer, nn.ReLU) else F.relu(x)
            if isinstance(layer, nn.Conv2d):
                found.append(x)
        return found

    def gram(x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(0, 1).flatten(1)
        return flat @ flat.T / flat.numel()

    with torch.no_grad():
        wanted, styles = features(content)[-1], [gram(x) for x in features(style)]

    def closure() -> torch.Tensor:
        with torch.no_grad():
            canvas.clamp_(0, 1)
        update.zero_grad()
        found = features(canvas)
        loss = style_weight * sum(F.mse_loss(gram(x), y) for x, y in zip(found, styles))
        loss = loss + F.mse_loss(found[-1], wanted)
        loss.backward()
        return loss

    return lambda: update.step(closure).detach()


def laplacians(*, points: int = 4096, width: int = 128) -> Step:
    """A field whose Laplacian is known: the trace of a Hessian at every point, by vmap."""
    net = nn.Sequential(
        nn.Linear(3, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
    ).cuda()
    weights = dict(net.named_parameters())
    x = torch.rand(points, 3, device="cuda")
    charge = torch.randn(points, device="cuda")

    def field(own: dict[str, torch.Tensor], at: torch.Tensor) -> torch.Tensor:
        return functional_call(net, own, (at,)).squeeze()

    def laplacian(own: dict[str, torch.Tensor], at: torch.Tensor) -> torch.Tensor:
        return hessian(field, 1)(own, at).trace()

    def loss() -> torch.Tensor:
        return F.mse_loss(vmap(laplacian, (None, 0))(weights, x), charge)

    return training_step(loss, net.parameters())


def decays_learnt(*, batch_size: int = 512, width: int = 512, rounds: int = 8) -> Step:
    """Weight decays are learnt: conjugate gradients with products of the Hessian."""
    net = nn.Sequential(nn.Linear(128, width), nn.GELU(), nn.Linear(width, 10)).cuda()
    own = list(net.parameters())
    decays = [nn.Parameter(torch.full_like(p, -4.0)) for p in own]
    inner, outer = torch.optim.SGD(own, lr=0.01), torch.optim.Adam(decays, lr=1e-2)
    x = torch.randn(2, batch_size, 128, device="cuda")
    y = torch.randint(0, 10, (2, batch_size), device="cuda")

    def error() -> torch.Tensor:
        kept = sum((d.exp() * p.square()).sum() for d, p in zip(decays, own))
        return F.cross_entropy(net(x[0]), y[0]) + kept

    def dot(left: list[torch.Tensor], right: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack([(a * b).sum() for a, b in zip(left, right)]).sum()

    def step() -> torch.Tensor:
        inner.zero_grad()
        error().backward()
        inner.step()
        seen = F.cross_entropy(net(x[1]), y[1])
        rest = list(torch.autograd.grad(seen, own))
        slopes = torch.autograd.grad(error(), own, create_graph=True)
        way, found = rest, [torch.zeros_like(p) for p in own]
        size = dot(rest, rest)
        for _ in range(rounds):
            bent = torch.autograd.grad(slopes, own, way, retain_graph=True)
            rate = size / dot(way, bent)
            found = [f + rate * w for f, w in zip(found, way)]
            rest = [r - rate * b for r, b in zip(rest, bent)]
            size, before = dot(rest, rest), size
            way = [r + size / before * w for r, w in zip(rest, way)]
        for decay, slope in zip(decays, torch.autograd.grad(slopes, decays, found)):
            decay.grad = -slope
        outer.step()
        return seen.detach()

    return step


def pressures(*, size: int = 192, rounds: int = 20, width: int = 32) -> Step:
    """A network says sources on a grid; a compressed matrix is solved round by round."""
    net = nn.Sequential(lines_of(1, width), lines_of(width, width), nn.Conv2d(width, 1, 1)).cuda()
    count = size * size
    at = torch.arange(count).view(size, size)
    pairs = torch.cat([torch.stack([at[1:], at[:-1]]).flatten(1),
                       torch.stack([at[:, 1:], at[:, :-1]]).flatten(1)], 1)  # fmt: skip
    rows = torch.cat([pairs, pairs.flip(0), at.flatten().expand(2, -1)], 1)
    values = torch.cat([-torch.ones(2 * pairs.shape[1]), torch.full((count,), 4.01)])
    matrix = torch.sparse_coo_tensor(rows, values, (count, count)).to_sparse_csr().cuda()
    seen = torch.randn(1, 1, size, size, device="cuda")
    wanted = torch.randn(count, 1, device="cuda")

    def solved(goal: torch.Tensor) -> torch.Tensor:
        x, rest = torch.zeros_like(goal), goal
        way, norm = rest, rest.square().sum()
        for _ in range(rounds):
            moved = matrix @ way
            rate = norm / (way * moved).sum()
            x, rest = x + rate * way, rest - rate * moved
            norm, before = rest.square().sum(), norm
            way = rest + norm / before * way
        return x

    def loss() -> torch.Tensor:
        return F.mse_loss(solved(net(seen).view(count, 1)), wanted)

    return training_step(loss, net.parameters())


def organs(*, batch_size: int = 2, size: int = 64, width: int = 24) -> Step:
    """Organs in volumes: instance norms, checkpoints, losses at two depths, fp16 with a scaler."""

    def block(inputs: int, outputs: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for number in (inputs, outputs):
            layers.append(nn.Conv3d(number, outputs, 3, padding=1, bias=False))
            layers += [nn.InstanceNorm3d(outputs, affine=True), nn.LeakyReLU(0.01, True)]
        return nn.Sequential(*layers)

    downs = nn.ModuleList([block(1, width), block(width, 2 * width)]).cuda()
    middle = block(2 * width, 4 * width).cuda()
    wider = nn.ModuleList([nn.ConvTranspose3d(4 * width, 2 * width, 2, 2),
                           nn.ConvTranspose3d(2 * width, width, 2, 2)]).cuda()  # fmt: skip
    ups = nn.ModuleList([block(4 * width, 2 * width), block(2 * width, width)]).cuda()
    says = nn.ModuleList([nn.Conv3d(2 * width, 4, 1), nn.Conv3d(width, 4, 1)]).cuda()
    volumes = torch.randn(batch_size, 1, size, size, size, device="cuda")
    labels = torch.randint(0, 4, (batch_size, size, size, size), device="cuda")

    def judged(seen: torch.Tensor) -> torch.Tensor:
        small = F.interpolate(labels[:, None].float(), seen.shape[2:], mode="nearest")[:, 0].long()
        share, one = seen.float().softmax(1), F.one_hot(small, 4).movedim(-1, 1)
        both, sum_of = (share * one).sum((0, 2, 3, 4)), (share + one).sum((0, 2, 3, 4))
        return F.cross_entropy(seen, small) - ((2 * both + 1) / (sum_of + 1)).mean()

    def loss() -> torch.Tensor:
        x, kept = volumes, []
        for down in downs:
            kept.append(checkpoint(down, x, use_reentrant=False))
            x = F.max_pool3d(kept[-1], 2)
        x, total = middle(x), torch.zeros((), device="cuda")
        for widen, up, say in zip(wider, ups, says):
            x = up(torch.cat([widen(x), kept.pop()], 1))
            total = total + judged(say(x))
        return total

    nets = nn.ModuleList([downs, middle, wider, ups, says])
    return training_step(loss, nets.parameters(), autocast="fp16", scale_loss=True, clip=12.0)


def far_points(*, batch_size: int = 8, points: int = 1024) -> Step:
    """PointNet++: the farthest points one by one, their neighbours, and pools of each."""

    def far(xyz: torch.Tensor, count: int) -> torch.Tensor:
        near = torch.full(xyz.shape[:2], 1e10, device=xyz.device)
        last = torch.zeros(len(xyz), dtype=torch.long, device=xyz.device)
        found = []
        for _ in range(count):
            found.append(last)
            centre = xyz[torch.arange(len(xyz), device=xyz.device), last][:, None]
            near = torch.minimum(near, (xyz - centre).square().sum(-1))
            last = near.argmax(-1)
        return torch.stack(found, 1)

    def picked(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return x[torch.arange(len(x), device=x.device).view(-1, *[1] * (at.ndim - 1)), at]

    def layers(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 1), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 1), nn.BatchNorm2d(outputs), nn.ReLU(),
        )  # fmt: skip

    first, second, says = layers(3, 64).cuda(), layers(67, 128).cuda(), nn.Linear(128, 40).cuda()
    cloud = torch.rand(batch_size, points, 3, device="cuda")
    labels = torch.randint(0, 40, (batch_size,), device="cuda")

    def grouped(xyz: torch.Tensor, x: torch.Tensor | None, count: int) -> tuple[torch.Tensor, ...]:
        centres = picked(xyz, far(xyz, count))
        at = torch.cdist(centres, xyz).topk(32, largest=False).indices
        around = picked(xyz, at) - centres[:, :, None]
        return centres, around if x is None else torch.cat([around, picked(x, at)], -1)

    def loss() -> torch.Tensor:
        with torch.no_grad():
            centres, around = grouped(cloud, None, 256)
        x = first(around.permute(0, 3, 1, 2)).amax(-1).mT
        _, around = grouped(centres, x, 64)
        x = second(around.permute(0, 3, 1, 2)).amax(-1)
        return F.cross_entropy(says(x.amax(-1)), labels)

    return training_step(loss, nn.ModuleList([first, second, says]).parameters())


def warped_in_time(*, batch_size: int = 32, length: int = 96, width: int = 128) -> Step:
    """Soft dynamic time warping between series, one diagonal after the other."""
    net = nn.GRU(4, width, 2, batch_first=True).cuda()
    says = nn.Linear(width, 4).cuda()
    x, y = torch.randn(2, batch_size, length, 4, device="cuda")

    def loss() -> torch.Tensor:
        apart = torch.cdist(says(net(x)[0]), y).square()
        skewed = F.pad(apart, (0, length)).flatten(1)[:, : length * (2 * length - 1)]
        skewed = skewed.view(batch_size, length, 2 * length - 1)  # columns are diagonals
        never = torch.full((batch_size, length + 1), 1e6, device="cuda")
        before, last = never.clone(), never.clone()
        before[:, 0] = 0
        for number in range(2 * length - 1):
            three = torch.stack([before[:, :-1], last[:, :-1], last[:, 1:]])
            now = skewed[:, :, number] - torch.logsumexp(-three, 0)
            before, last = last, torch.cat([never[:, :1], now], 1)
        return last[:, -1].mean() / length

    return training_step(loss, [*net.parameters(), *says.parameters()])


def few_sums(*, batch_size: int = 4, frames: int = 8, size: int = 112) -> Step:
    """X3D: filters of single channels over space and time, squeezed, bfloat16 in channels last."""

    class Block(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            inner = 2 * outputs
            self.enter = nn.Sequential(nn.Conv3d(inputs, inner, 1, bias=False),
                                       nn.BatchNorm3d(inner), nn.ReLU())  # fmt: skip
            self.deep = nn.Sequential(
                nn.Conv3d(inner, inner, 3, (1, stride, stride), 1, groups=inner, bias=False),
                nn.BatchNorm3d(inner),
            )
            self.squeeze, self.widen = nn.Conv3d(inner, 8, 1), nn.Conv3d(8, inner, 1)
            self.out = nn.Sequential(nn.Conv3d(inner, outputs, 1, bias=False),
                                     nn.BatchNorm3d(outputs))  # fmt: skip
            self.beside = nn.Conv3d(inputs, outputs, 1, (1, stride, stride), bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.deep(self.enter(x))
            gate = self.widen(F.relu(self.squeeze(y.mean((2, 3, 4), keepdim=True)))).sigmoid()
            return F.relu(self.out(F.silu(y * gate)) + self.beside(x))

    net = nn.Sequential(
        nn.Conv3d(3, 24, (1, 3, 3), (1, 2, 2), (0, 1, 1)), Block(24, 24, 2), Block(24, 48, 2),
        Block(48, 96, 2), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(96, 50),
    ).cuda().to(memory_format=torch.channels_last_3d)  # fmt: skip
    clips = torch.rand(batch_size, 3, frames, size, size, device="cuda")
    clips = clips.to(memory_format=torch.channels_last_3d)
    labels = torch.randint(0, 50, (batch_size,), device="cuda")

    def loss() -> torch.Tensor:
        return F.cross_entropy(net(clips), labels, label_smoothing=0.1)

    return training_step(loss, net.parameters(), optimizer="sgd", autocast="bf16")


def beams_kept(*, batch_size: int = 8, length: int = 48, beams: int = 4) -> Step:
    """A T5 makes its own answers by beam search in transformers, and learns the best of them."""
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=8000, d_model=256, d_kv=32, d_ff=1024, num_layers=4, num_heads=8,
                      decoder_start_token_id=0, dropout_rate=0.0)  # fmt: skip
    model = T5ForConditionalGeneration(config).cuda()
    asked = torch.randint(2, 8000, (batch_size, length), device="cuda")
    update = torch.optim.Adafactor(model.parameters(), lr=1e-3)

    def step() -> torch.Tensor:
        model.eval()
        with torch.inference_mode():
            made = model.generate(
                asked, num_beams=beams, min_new_tokens=24, max_new_tokens=24, do_sample=False
            )
        model.train()
        loss = model(input_ids=asked, labels=made[:, 1:].clone()).loss
        update.zero_grad()
        loss.backward()
        update.step()
        return loss.detach()

    return step


def cells_of_points(*, points: int = 60_000, side: int = 48, width: int = 32) -> Step:
    """Points fall into cells: distinct cells, means and largest of each, then dense filters."""
    enter, again = nn.Linear(6, width).cuda(), nn.Linear(2 * width, width).cuda()
    body = nn.Sequential(
        nn.Conv3d(width, width, 3, padding=1), nn.BatchNorm3d(width), nn.ReLU(),
        nn.Conv3d(width, 8, 3, padding=1),
    ).cuda()  # fmt: skip
    xyz = torch.rand(points, 3, device="cuda")
    labels = torch.randint(0, 8, (points,), device="cuda")
    steps = torch.tensor([side * side, side, 1], device="cuda")

    def loss() -> torch.Tensor:
        where = ((xyz + 0.01 * torch.randn_like(xyz)).clamp(0, 0.999) * side).long()
        cells, at, counts = torch.unique(
            (where * steps).sum(-1), return_inverse=True, return_counts=True
        )
        spread = at[:, None].expand(-1, width)
        x = F.relu(enter(torch.cat([xyz, xyz * side - where], -1)))
        new = x.new_zeros(len(cells), width)
        mean = new.scatter_add(0, spread, x) / counts[:, None]
        most = new.scatter_reduce(0, spread, x, "amax", include_self=False)
        x = F.relu(again(torch.cat([mean, most], -1)))
        grid = x.new_zeros(side**3, width).index_copy(0, cells, x)
        seen = body(grid.T.reshape(1, width, side, side, side))
        return F.cross_entropy(seen.flatten(2)[0, :, cells][:, at].T, labels)

    return training_step(loss, nn.ModuleList([enter, again, body]).parameters())
