"""Networks that papers made known and that no other row has: for pictures, plans and sounds."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from vramcast_zoo.suites.training import training_step
from vramcast_zoo.suites.wide.everyday import lines_of, pictures_of

Step = Callable[[], torch.Tensor]


def handwriting(*, batch_size: int = 32, length: int = 300, mixtures: int = 20) -> Step:
    """Strokes of a pen from a mixture of pairs of Gaussians, whose numbers an LSTM says."""
    cells = nn.LSTM(3, 400, 2, batch_first=True).cuda()
    says = nn.Linear(400, 1 + 6 * mixtures).cuda()
    strokes = torch.randn(batch_size, length + 1, 3, device="cuda")
    strokes[..., 0] = (strokes[..., 0] > 2).float()

    def loss() -> torch.Tensor:
        hidden, _ = cells(strokes[:, :-1])
        end, *parts = says(hidden).split([1] + [mixtures] * 6, -1)
        weight, mean_x, mean_y, wide_x, wide_y, tilt = parts
        lifted, dx, dy = strokes[:, 1:].split(1, -1)
        x, y = (dx - mean_x) / wide_x.exp(), (dy - mean_y) / wide_y.exp()
        rho = tilt.tanh() * 0.95
        left = 1 - rho.square()
        far = x.square() + y.square() - 2 * rho * x * y
        log_part = -far / (2 * left) - wide_x - wide_y - 0.5 * left.log() - math.log(2 * math.pi)
        likely = torch.logsumexp(F.log_softmax(weight, -1) + log_part, -1)
        return F.binary_cross_entropy_with_logits(end, lifted) - likely.mean()

    return training_step(loss, [*cells.parameters(), *says.parameters()], clip=10.0)


def neural_process(*, batch_size: int = 32, known: int = 200, asked: int = 800) -> Step:
    """Functions from a few of their points: attention to them, and a latent of the whole."""
    width = 128
    deep = nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, width)).cuda()
    latent = nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, 2 * width)).cuda()
    places = nn.Linear(1, width).cuda()
    looks = nn.MultiheadAttention(width, 8, batch_first=True).cuda()
    says = nn.Sequential(
        nn.Linear(2 * width + 1, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2)
    ).cuda()
    x = torch.rand(batch_size, known + asked, 1, device="cuda")
    y = torch.sin(6 * x)

    def spread(points: torch.Tensor) -> torch.distributions.Normal:
        mean, raw = latent(points).mean(1).chunk(2, -1)
        return torch.distributions.Normal(mean, 0.1 + 0.9 * raw.sigmoid())

    def loss() -> torch.Tensor:
        points = torch.cat([x, y], -1)
        few, whole = spread(points[:, :known]), spread(points)
        z = whole.rsample()[:, None].expand(-1, asked, -1)
        found, _ = looks(
            places(x[:, known:]), places(x[:, :known]), deep(points[:, :known]), need_weights=False
        )
        mean, raw = says(torch.cat([found, z, x[:, known:]], -1)).chunk(2, -1)
        likely = torch.distributions.Normal(mean, 0.1 + 0.9 * F.softplus(raw))
        apart = torch.distributions.kl_divergence(whole, few).sum(-1).mean()
        return apart - likely.log_prob(y[:, known:]).sum(1).mean()

    nets = nn.ModuleList([deep, latent, places, looks, says])
    return training_step(loss, nets.parameters())


def slots(*, batch_size: int = 32, size: int = 64, parts: int = 7, rounds: int = 3) -> Step:
    """Slot attention: slots compete for pixels, a GRU cell renews them, each is drawn by itself."""
    width = 64
    sees = nn.Sequential(
        nn.Conv2d(3, width, 5, padding=2), nn.ReLU(), nn.Conv2d(width, width, 5, padding=2),
        nn.ReLU(), nn.Conv2d(width, width, 5, 2, 2), nn.ReLU(),
    ).cuda()  # fmt: skip
    keys, values, asks = (nn.Linear(width, width, bias=False).cuda() for _ in range(3))
    renews, norms = nn.GRUCell(width, width).cuda(), nn.ModuleList()
    norms.extend([nn.LayerNorm(width).cuda() for _ in range(2)])
    draws = nn.Sequential(
        nn.ConvTranspose2d(width, 64, 5, 2, 2, 1), nn.ReLU(),
        nn.ConvTranspose2d(64, 64, 5, 2, 2, 1), nn.ReLU(),
        nn.ConvTranspose2d(64, 32, 5, 2, 2, 1), nn.ReLU(), nn.Conv2d(32, 4, 3, padding=1),
    ).cuda()  # fmt: skip
    mean, place = (
        nn.Parameter(torch.randn(shape, device="cuda")) for shape in ((1, 1, width), (width, 8, 8))
    )
    images, _ = pictures_of(batch_size, size)

    def loss() -> torch.Tensor:
        seen = norms[0](sees(images).flatten(2).mT)
        k, v = keys(seen), values(seen)
        found = mean + 0.1 * torch.randn(batch_size, parts, width, device="cuda")
        for _ in range(rounds):
            scores = asks(norms[1](found)) @ k.mT * width**-0.5
            share = scores.softmax(1) + 1e-8
            gained = share / share.sum(-1, keepdim=True) @ v
            found = renews(gained.flatten(0, 1), found.flatten(0, 1)).view_as(found)
        drawn = draws(found.flatten(0, 1)[:, :, None, None] + place)
        colours, mask = drawn.view(batch_size, parts, 4, size, size).split([3, 1], 2)
        return F.mse_loss((mask.softmax(1) * colours).sum(1), images)

    nets = nn.ModuleList([sees, keys, values, asks, renews, norms, draws])
    return training_step(loss, [*nets.parameters(), mean, place])


class MaskedLines(nn.Conv2d):
    """Sees only pixels that come before."""

    def __init__(self, before: int, after: int, side: int, *, with_centre: bool) -> None:
        super().__init__(before, after, side, padding=side // 2)
        mask = torch.ones(side, side)
        mask[side // 2, side // 2 + with_centre :] = 0
        mask[side // 2 + 1 :] = 0
        self.register_buffer("mask", mask)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._conv_forward(x, self.weight * self.mask, self.bias)


def pixel_by_pixel(*, batch_size: int = 16, size: int = 32, depth: int = 5) -> Step:
    """PixelCNN: masked filters with gates, and a mixture of logistics for each colour."""
    width, mixtures = 120, 10
    enter = MaskedLines(3, width, 7, with_centre=False).cuda()
    middle = nn.ModuleList(
        [MaskedLines(2 * width, 2 * width, 3, with_centre=True) for _ in range(depth)]
    ).cuda()
    leave = nn.Conv2d(width, 9 * mixtures, 1).cuda()
    images, _ = pictures_of(batch_size, size)

    def loss() -> torch.Tensor:
        x = enter(images * 2 - 1)
        for layer in middle:
            made, gate = layer(F.elu(torch.cat([x, -x], 1))).chunk(2, 1)
            x = x + made.tanh() * gate.sigmoid()
        parts = leave(x).view(batch_size, 3, 3, mixtures, size, size)
        weight, mean, scale = parts.unbind(1)
        scale = scale.clamp(min=-7)
        centred = (images * 2 - 1).unsqueeze(2) - mean
        above, below = (centred + 1 / 255) * scale.neg().exp(), (centred - 1 / 255) * (-scale).exp()
        inside = above.sigmoid() - below.sigmoid()
        likely = torch.where(inside > 1e-5, inside.clamp(min=1e-12).log(), -below - scale)
        return -torch.logsumexp(likely + F.log_softmax(weight, 2), 2).sum((1, 2, 3)).mean()

    nets = nn.ModuleList([enter, middle, leave])
    return training_step(loss, nets.parameters())


def unrolled_plans(*, batch_size: int = 128, steps: int = 5, actions: int = 18) -> Step:
    """MuZero: a model of the game unrolled, gradients halved by hooks, values as two bins."""
    width, bins = 64, 601
    sees = nn.Sequential(lines_of(4, width, 2), lines_of(width, width, 2)).cuda()
    moves = nn.Sequential(
        nn.Conv2d(width + 1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width),
    ).cuda()  # fmt: skip
    heads = nn.ModuleList(
        [nn.Sequential(nn.Conv2d(width, 16, 1), nn.Flatten(), nn.Linear(16 * 144, n)) for n in
         (actions, bins, bins)]
    ).cuda()  # fmt: skip
    frames = torch.rand(batch_size, 4, 48, 48, device="cuda")
    played = torch.randint(0, actions, (steps, batch_size), device="cuda")
    values = torch.rand(2, steps, batch_size, device="cuda") * 100 - 50
    policies = torch.rand(steps, batch_size, actions, device="cuda").softmax(-1)

    def in_bins(value: torch.Tensor) -> torch.Tensor:
        small = value.sign() * ((value.abs() + 1).sqrt() - 1) + 0.001 * value
        place = (small.clamp(-300, 300) + 300).unsqueeze(-1)
        low, share = place.floor(), place.frac()
        out = torch.zeros(len(value), bins, device="cuda").scatter_(1, low.long(), 1 - share)
        return out.scatter_add_(1, (low.long() + 1).clamp(max=bins - 1), share)

    def loss() -> torch.Tensor:
        state, total = sees(frames), torch.zeros((), device="cuda")
        for at in range(steps):
            plane = (played[at] / actions)[:, None, None, None].expand(-1, 1, 12, 12)
            state = F.relu(moves(torch.cat([state, plane], 1)) + state)
            low, high = state.amin((1, 2, 3), keepdim=True), state.amax((1, 2, 3), keepdim=True)
            state = (state - low) / (high - low + 1e-5)
            state.register_hook(lambda gradient: gradient * 0.5)
            policy, value, reward = (head(state) for head in heads)
            total = total + F.cross_entropy(policy, policies[at])
            total = total + 0.25 * F.cross_entropy(value, in_bins(values[0, at]))
            total = total + F.cross_entropy(reward, in_bins(values[1, at]))
        return total / steps

    nets = nn.ModuleList([sees, moves, heads])
    return training_step(loss, nets.parameters(), optimizer="sgd")


def stereo(*, batch_size: int = 2, height: int = 96, wide: int = 192, shifts: int = 24) -> Step:
    """Depth from two pictures: a volume of shifted features, 3-d filters, a soft minimum."""
    sees = nn.Sequential(lines_of(3, 32, 2), lines_of(32, 32), lines_of(32, 32, 2)).cuda()
    matches = nn.Sequential(
        nn.Conv3d(64, 32, 3, padding=1), nn.BatchNorm3d(32), nn.ReLU(),
        nn.Conv3d(32, 64, 3, 2, 1), nn.BatchNorm3d(64), nn.ReLU(),
        nn.ConvTranspose3d(64, 32, 3, 2, 1, 1), nn.BatchNorm3d(32), nn.ReLU(),
        nn.Conv3d(32, 1, 3, padding=1),
    ).cuda()  # fmt: skip
    left, right = (torch.rand(batch_size, 3, height, wide, device="cuda") for _ in range(2))
    wanted = torch.rand(batch_size, height, wide, device="cuda") * 4 * shifts

    def loss() -> torch.Tensor:
        one, two = sees(left), sees(right)
        volume = one.new_zeros(batch_size, 64, shifts, *one.shape[2:])
        for shift in range(shifts):
            volume[:, :32, shift, :, shift:] = one[..., shift:]
            volume[:, 32:, shift, :, shift:] = two[..., : wide // 4 - shift]
        size = (4 * shifts, height, wide)
        cost = F.interpolate(matches(volume), size, mode="trilinear").squeeze(1)
        each = torch.arange(4 * shifts, device="cuda", dtype=torch.float32)
        found = torch.einsum("bdhw,d->bhw", (-cost).softmax(1), each)
        return F.smooth_l1_loss(found, wanted)

    return training_step(loss, [*sees.parameters(), *matches.parameters()])


def centres(*, batch_size: int = 16, size: int = 192, objects: int = 12) -> Step:
    """CenterNet: a heat map with one peak for each object, sizes gathered at the peaks."""
    from torchvision.models import resnet18

    body = nn.Sequential(*list(resnet18(weights=None).children())[:-2]).cuda()
    ups = nn.Sequential(*[
        nn.Sequential(nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU())
        for a, b in ((512, 256), (256, 128), (128, 64))
    ]).cuda()  # fmt: skip
    heads = nn.ModuleList([
        nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, n, 1))
        for n in (80, 2, 2)
    ]).cuda()  # fmt: skip
    side = size // 4
    images, _ = pictures_of(batch_size, size)
    heat = torch.rand(batch_size, 80, side, side, device="cuda").pow(8)
    place = torch.randint(0, side * side, (batch_size, objects), device="cuda")
    heat.flatten(2).scatter_(2, place[:, None].expand(-1, 80, -1), 1.0)
    boxes = torch.rand(2, batch_size, objects, 2, device="cuda")

    def loss() -> torch.Tensor:
        x = ups(body(images))
        found, *sizes = (head(x) for head in heads)
        found = found.sigmoid().clamp(1e-4, 1 - 1e-4)
        peak = heat.eq(1).float()
        right = found.log() * (1 - found).pow(2) * peak
        wrong = (1 - found).log() * found.pow(2) * (1 - heat).pow(4) * (1 - peak)
        total = -(right + wrong).sum() / peak.sum()
        for made, wanted in zip(sizes, boxes):
            near = made.flatten(2).mT.gather(1, place.unsqueeze(-1).expand(-1, -1, 2))
            total = total + F.l1_loss(near, wanted)
        return total

    nets = nn.ModuleList([body, ups, heads])
    return training_step(loss, nets.parameters(), autocast="fp16", scale_loss=True)


def painted(*, size: int = 256) -> Step:
    """Style transfer: the picture itself is learnt, by products of features, with L-BFGS."""
    from torchvision.models import vgg11

    layers = vgg11(weights=None).features[:16].cuda().eval().requires_grad_(False)
    picture = torch.rand(1, 3, size, size, device="cuda")
    style = torch.rand(1, 3, size, size, device="cuda")
    canvas = nn.Parameter(picture.clone())
    update = torch.optim.LBFGS([canvas], max_iter=5, history_size=10)

    def features(x: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for layer in layers:
            x = layer(x)
            if isinstance(layer, nn.Conv2d):
                found.append(x)
        return found

    def gram(x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(2)
        return flat @ flat.mT / flat.numel()

    with torch.no_grad():
        wanted, styles = features(picture)[-2], [gram(x) for x in features(style)]

    def closure() -> torch.Tensor:
        update.zero_grad()
        found = features(canvas)
        loss = F.mse_loss(found[-2], wanted)
        loss = loss + 1e4 * sum(F.mse_loss(gram(x), y) for x, y in zip(found, styles))
        rough = canvas.diff(dim=2).abs().mean() + canvas.diff(dim=3).abs().mean()
        loss = loss + 1e-3 * rough
        loss.backward()
        return loss

    def step() -> torch.Tensor:
        return update.step(closure).detach()

    return step
