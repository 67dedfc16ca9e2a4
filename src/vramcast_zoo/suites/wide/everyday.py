"""What people write in plain torch on any day: pictures, sounds and boxes."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from vramcast_zoo.suites.training import training_step

Step = Callable[[], torch.Tensor]


def lines_of(i: int, o: int, stride: int = 1, size: int = 3) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(i, o, size, stride, size // 2, bias=False), nn.BatchNorm2d(o), nn.SiLU()
    )


def pictures_of(batch_size: int, size: int, classes: int = 10) -> tuple[torch.Tensor, torch.Tensor]:
    images = torch.rand(batch_size, 3, size, size, device="cuda")
    return images, torch.randint(0, classes, (batch_size,), device="cuda")


def mean_flow(*, batch_size: int = 32, size: int = 32, width: int = 64) -> Step:
    """One-step generation: the mean velocity, whose goal is a product with a Jacobian."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.times = nn.Linear(2, width)
            self.enter = nn.Conv2d(3, width, 3, padding=1)
            self.layers = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(4))
            self.norms = nn.ModuleList(nn.GroupNorm(8, width) for _ in range(4))
            self.leave = nn.Conv2d(width, 3, 3, padding=1)

        def forward(self, x: torch.Tensor, r: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            h = self.enter(x) + self.times(torch.stack([r, t], -1))[:, :, None, None]
            for norm, layer in zip(self.norms, self.layers):
                h = h + layer(F.silu(norm(h)))
            return self.leave(h)

    net = Net().cuda()
    images = torch.rand(batch_size, 3, size, size, device="cuda")

    def loss() -> torch.Tensor:
        noise = torch.randn_like(images)
        t, r = torch.rand(2, batch_size, device="cuda").sort(0, descending=True).values
        at = torch.lerp(images, noise, t.view(-1, 1, 1, 1))
        speed = noise - images
        made, slope = torch.func.jvp(
            net, (at, r, t), (speed, torch.zeros_like(r), torch.ones_like(t))
        )
        goal = (speed - (t - r).view(-1, 1, 1, 1) * slope).detach()
        return F.mse_loss(made, goal)

    return training_step(loss, net.parameters())


def energies(*, batch_size: int = 64, size: int = 32, width: int = 64, rounds: int = 10) -> Step:
    """An energy-based model: pictures are found by Langevin's walk from a buffer, then judged."""
    sn = nn.utils.parametrizations.spectral_norm
    net = nn.Sequential(
        sn(nn.Conv2d(3, width, 3, 2, 1)), nn.SiLU(), sn(nn.Conv2d(width, 2 * width, 3, 2, 1)),
        nn.SiLU(), sn(nn.Conv2d(2 * width, 4 * width, 3, 2, 1)), nn.SiLU(), nn.Flatten(),
        nn.Linear(4 * width * (size // 8) ** 2, 1),
    ).cuda()  # fmt: skip
    buffer = torch.rand(4096, 3, size, size, device="cuda")
    real = torch.rand(batch_size, 3, size, size, device="cuda")

    def loss() -> torch.Tensor:
        which = torch.randint(0, len(buffer), (batch_size,), device="cuda")
        made = buffer[which].requires_grad_()
        for _ in range(rounds):
            (slope,) = torch.autograd.grad(net(made).sum(), made)
            made = (made - 10 * slope.clamp(-0.03, 0.03) + 0.005 * torch.randn_like(made)).clamp(
                0, 1
            )
            made = made.detach().requires_grad_()
        buffer[which] = made.detach()
        low, high = net(real), net(made.detach())
        return (low - high).mean() + 0.1 * (low.square() + high.square()).mean()

    return training_step(loss, net.parameters())


def living_cells(
    *, batch_size: int = 8, size: int = 64, states: int = 16, rounds: int = 40
) -> Step:
    """Neural cellular automata: fixed filters, a small rule, cells that wake at random."""
    rule = nn.Sequential(nn.Conv2d(3 * states, 128, 1), nn.ReLU(), nn.Conv2d(128, states, 1)).cuda()
    edge = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]], device="cuda") / 8
    spot = torch.tensor([[0.0, 0, 0], [0, 1, 0], [0, 0, 0]], device="cuda")
    look = torch.stack([spot, edge, edge.T])[:, None].repeat(states, 1, 1, 1)
    goal = torch.rand(batch_size, 4, size, size, device="cuda")
    seed = torch.zeros(batch_size, states, size, size, device="cuda")
    seed[:, 3:, size // 2, size // 2] = 1

    def loss() -> torch.Tensor:
        x = seed
        for _ in range(rounds):
            alive = F.max_pool2d(x[:, 3:4], 3, 1, 1) > 0.1
            seen = F.conv2d(F.pad(x, (1, 1, 1, 1), "circular"), look, groups=states)
            wakes = torch.rand_like(x[:, :1]) < 0.5
            x = (x + rule(seen) * wakes) * (alive & (F.max_pool2d(x[:, 3:4], 3, 1, 1) > 0.1))
        return F.mse_loss(x[:, :4], goal)

    return training_step(loss, rule.parameters())


def boxes_of_grids(*, batch_size: int = 16, size: int = 256, classes: int = 20) -> Step:
    """A detector as YOLO is: a neck of three levels, cells that are matched, and CIoU."""
    from torchvision.ops import complete_box_iou_loss

    c = [32, 64, 128, 256]
    stem = nn.Sequential(lines_of(3, c[0], 2), lines_of(c[0], c[1], 2))
    downs = nn.ModuleList(
        nn.Sequential(lines_of(i, o, 2), lines_of(o, o), lines_of(o, o, size=1))
        for i, o in ((c[1], c[1]), (c[1], c[2]), (c[2], c[3]))
    )
    ups = nn.ModuleList([lines_of(c[3] + c[2], c[2]), lines_of(c[2] + c[1], c[1])])
    heads = nn.ModuleList(nn.Conv2d(w, 4 + classes, 1) for w in (c[1], c[2], c[3]))
    model = nn.ModuleList([stem, downs, ups, heads]).cuda().to(memory_format=torch.channels_last)
    images = torch.rand(batch_size, 3, size, size, device="cuda")
    images = images.to(memory_format=torch.channels_last)
    truth = torch.rand(batch_size, 8, 4, device="cuda") * size / 2
    truth[..., 2:] += truth[..., :2] + 8
    kinds = torch.randint(0, classes, (batch_size, 8), device="cuda")

    def loss() -> torch.Tensor:
        x, seen = stem(images), []
        for down in downs:
            x = down(x)
            seen.append(x)
        mid = ups[0](torch.cat([F.interpolate(seen[2], scale_factor=2), seen[1]], 1))
        low = ups[1](torch.cat([F.interpolate(mid, scale_factor=2), seen[0]], 1))
        made = [head(y).flatten(2).mT for head, y in zip(heads, (low, mid, seen[2]))]
        steps = torch.cat(
            [torch.full((m.shape[1],), 8.0 * 2**i) for i, m in enumerate(made)]
        ).cuda()
        out = torch.cat(made, 1).float()
        spots = torch.cat([
            torch.cartesian_prod(*[torch.arange(size // s, device="cuda") * s + s / 2] * 2)
            for s in (8, 16, 32)
        ])  # fmt: skip
        apart = F.softplus(out[..., :4]) * steps[:, None]
        boxes = torch.cat([spots - apart[..., :2], spots + apart[..., 2:]], -1)
        far = torch.cdist(spots.expand(batch_size, -1, -1), truth.view(batch_size, 8, 2, 2).mean(2))
        near = far.topk(9, dim=1, largest=False).indices.flatten(1)
        which = near[..., None].expand(-1, -1, 4)
        wanted = truth.repeat(1, 9, 1)
        shape = complete_box_iou_loss(boxes.gather(1, which), wanted, reduction="mean")
        odds = torch.zeros_like(out[..., 4:])
        odds[torch.arange(batch_size, device="cuda")[:, None], near, kinds.repeat(1, 9)] = 1
        return shape + F.binary_cross_entropy_with_logits(out[..., 4:], odds)

    return training_step(
        loss, model.parameters(), autocast="fp16", scale_loss=True, optimizer="sgd"
    )


def filters_of_samples(*, batch_size: int = 16, size: int = 127, width: int = 96) -> Step:
    """A tracker: each sample's own exemplar is the filter, by groups; and mixed filters."""
    body = nn.Sequential(
        nn.Conv2d(3, width, 11, 2), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2),
        nn.Conv2d(width, width, 5, groups=2), nn.BatchNorm2d(width), nn.ReLU(),
    ).cuda()  # fmt: skip
    mixes = nn.Linear(width, 4).cuda()
    bank = nn.Parameter(0.05 * torch.randn(4, width, width, 3, 3, device="cuda"))
    small = torch.rand(batch_size, 3, size, size, device="cuda")
    large = torch.rand(batch_size, 3, 2 * size + 1, 2 * size + 1, device="cuda")

    def loss() -> torch.Tensor:
        z, x = body(small), body(large)
        share = mixes(x.mean((2, 3))).softmax(-1)
        filters = torch.einsum("bk,koihw->boihw", share, bank).flatten(0, 1)
        x = F.conv2d(x.flatten(0, 1)[None], filters, padding=1, groups=batch_size)
        there = F.conv2d(x, z.flatten(0, 1)[:, None], groups=batch_size * width)
        score = there.view(batch_size, width, *there.shape[2:]).sum(1) * 1e-3
        return F.soft_margin_loss(score, torch.ones_like(score))

    return training_step(loss, [*body.parameters(), *mixes.parameters(), bank], optimizer="sgd")


def noisy_values(*, batch_size: int = 64, room: int = 20_000, atoms: int = 51) -> Step:
    """Rainbow: priorities drawn by sums on the GPU, noisy layers, values as distributions."""

    class Noisy(nn.Linear):
        def __init__(self, i: int, o: int) -> None:
            super().__init__(i, o)
            self.spread = nn.Parameter(torch.full((o, i), 0.01))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            a, b = (
                torch.randn(self.in_features, device=x.device),
                torch.randn(self.out_features, device=x.device),
            )
            noise = torch.outer(b.sign() * b.abs().sqrt(), a.sign() * a.abs().sqrt())
            return F.linear(x, self.weight + self.spread * noise, self.bias)

    def make() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
            nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), Noisy(3136, 512), nn.ReLU(),
            Noisy(512, 6 * atoms), nn.Unflatten(1, (6, atoms)),
        ).cuda()  # fmt: skip

    online, slow = make(), make().requires_grad_(False)
    frames = torch.randint(0, 255, (room, 4, 84, 84), dtype=torch.uint8, device="cuda")
    weight = torch.rand(room, device="cuda")
    acts = torch.randint(0, 6, (room,), device="cuda")
    support = torch.linspace(-10, 10, atoms, device="cuda")

    def loss() -> torch.Tensor:
        sums = weight.cumsum(0)
        which = torch.searchsorted(sums, torch.rand(batch_size, device="cuda") * sums[-1])
        which = which.clamp(max=room - 2)
        now, then = frames[which].float() / 255, frames[which + 1].float() / 255
        with torch.no_grad():
            best = (online(then).softmax(-1) * support).sum(-1).argmax(-1)
            rows = torch.arange(batch_size, device="cuda")
            odds = slow(then)[rows, best].softmax(-1)
            at = (0.5 + 0.99 * support).clamp(-10, 10).expand(batch_size, -1)
            place = (at + 10) / (20 / (atoms - 1))
            low, high = place.floor().long(), place.ceil().long()
            goal = torch.zeros_like(odds)
            goal.scatter_add_(1, low, odds * (high - place)).scatter_add_(
                1, high, odds * (place - low)
            )
        made = online(now)[rows, acts[which]].log_softmax(-1)
        each = -(goal * made).sum(-1)
        weight[which] = each.detach().abs() ** 0.6
        return each.mean()

    return training_step(loss, online.parameters())


def smooth_paths(*, batch_size: int = 8, size: int = 64, width: int = 128, every: int = 1) -> Step:
    """StyleGAN's penalties: R1 on what is real, and the length of paths on what is made."""
    maps = nn.Sequential(nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Linear(width, width)).cuda()

    class Maker(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Parameter(torch.randn(1, width, 8, 8))
            self.layers = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))
            self.styles = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
            self.leave = nn.Conv2d(width, 3, 1)

        def forward(self, w: torch.Tensor) -> torch.Tensor:
            x = self.first.expand(len(w), -1, -1, -1)
            for layer, style in zip(self.layers, self.styles):
                x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
                x = layer(x * (1 + style(w)[:, :, None, None]))
                x = F.leaky_relu(x + 0.1 * torch.randn_like(x[:, :1]), 0.2)
            return self.leave(x).tanh()

    makes = Maker().cuda()
    judge = nn.Sequential(
        nn.Conv2d(3, width, 3, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(width, width, 3, 2, 1),
        nn.LeakyReLU(0.2), nn.Conv2d(width, width, 3, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(),
        nn.Linear(width * (size // 8) ** 2, 1),
    ).cuda()  # fmt: skip
    up = torch.optim.Adam([*maps.parameters(), *makes.parameters()], lr=1e-3, betas=(0.0, 0.99))
    down = torch.optim.Adam(judge.parameters(), lr=1e-3, betas=(0.0, 0.99))
    real = torch.rand(batch_size, 3, size, size, device="cuda")
    length = torch.zeros((), device="cuda")

    def step() -> torch.Tensor:
        fake = makes(maps(torch.randn(batch_size, width, device="cuda")))
        x = real.detach().requires_grad_()
        good = judge(x)
        (slope,) = torch.autograd.grad(good.sum(), x, create_graph=True)
        loss = F.softplus(judge(fake.detach())).mean() + F.softplus(-good).mean()
        down.zero_grad(set_to_none=True)
        (loss + 5 * slope.square().sum((1, 2, 3)).mean()).backward()
        down.step()
        w = maps(torch.randn(batch_size, width, device="cuda"))
        fake = makes(w)
        noise = torch.randn_like(fake) / size
        (path,) = torch.autograd.grad((fake * noise).sum(), w, create_graph=True)
        far = path.square().sum(-1).sqrt()
        length.lerp_(far.mean().detach(), 0.01)
        made = F.softplus(-judge(fake)).mean()
        up.zero_grad(set_to_none=True)
        (made + 2 * (far - length).square().mean()).backward()
        up.step()
        return loss.detach() + made.detach()

    return step


def mixed_by_waves(*, kind: str = "global", batch_size: int = 16, size: int = 96, width: int = 256):
    """Tokens mixed in Fourier space: learnt global filters, or no weights at all as in FNet."""
    side = size // 8

    class Mix(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(width)
            self.filters = nn.Parameter(0.02 * torch.randn(side, side // 2 + 1, width, 2))
            self.feed = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(),
                                      nn.Linear(4 * width, width))  # fmt: skip

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.norm(x)
            if kind == "global":
                y = torch.fft.rfft2(y, dim=(1, 2), norm="ortho")
                y = y * torch.view_as_complex(self.filters)
                y = torch.fft.irfft2(y, s=(side, side), dim=(1, 2), norm="ortho")
            else:
                y = torch.fft.fft2(y.flatten(1, 2), dim=(-1, -2)).real.view_as(x)
            x = x + y
            return x + self.feed(x)

    enter = nn.Conv2d(3, width, 8, 8)
    body, leave = nn.Sequential(*(Mix() for _ in range(4))), nn.Linear(width, 10)
    every = nn.ModuleList([enter, body, leave]).cuda()
    images, labels = pictures_of(batch_size, size)

    def loss() -> torch.Tensor:
        return F.cross_entropy(leave(body(enter(images).permute(0, 2, 3, 1)).mean((1, 2))), labels)

    return training_step(loss, every.parameters())


def dilated_sound(*, batch_size: int = 4, samples: int = 8000, width: int = 64) -> Step:
    """WaveNet: gated causal lines of growing reach, skips, and classes of loudness."""
    front = nn.utils.parametrizations.weight_norm(nn.Conv1d(256, width, 1))
    gates = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=2**i) for i in range(8))
    skips = nn.ModuleList(nn.Conv1d(width, 128, 1) for _ in range(8))
    stays = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(8))
    leave = nn.Sequential(nn.ReLU(), nn.Conv1d(128, 256, 1), nn.ReLU(), nn.Conv1d(256, 256, 1))
    every = nn.ModuleList([front, gates, skips, stays, leave]).cuda()
    sound = torch.randint(0, 256, (batch_size, samples + 1), device="cuda")

    def loss() -> torch.Tensor:
        x = front(F.one_hot(sound[:, :-1], 256).float().mT)
        total: torch.Tensor | int = 0
        for i, (gate, skip, stay) in enumerate(zip(gates, skips, stays)):
            a, b = gate(F.pad(x, (2**i, 0))).chunk(2, 1)
            y = a.tanh() * b.sigmoid()
            total = total + skip(y)
            x = x + stay(y)
        return F.cross_entropy(leave(total), sound[:, 1:])

    return training_step(loss, every.parameters())


def policy_in_waves(*, batch_size: int = 64, horizon: int = 16, width: int = 128) -> Step:
    """Diffusion policy: actions as lines of time, conditioned by what a small camera net sees."""

    class Block(nn.Module):
        def __init__(self, i: int, o: int) -> None:
            super().__init__()
            self.one = nn.Sequential(nn.Conv1d(i, o, 5, padding=2), nn.GroupNorm(8, o), nn.Mish())
            self.two = nn.Sequential(nn.Conv1d(o, o, 5, padding=2), nn.GroupNorm(8, o), nn.Mish())
            self.film, self.skip = nn.Linear(256, 2 * o), nn.Conv1d(i, o, 1)

        def forward(self, x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
            scale, shift = self.film(F.mish(c))[..., None].chunk(2, 1)
            return self.two(self.one(x) * (1 + scale) + shift) + self.skip(x)

    sees = nn.Sequential(
        nn.Conv2d(3, 32, 5, 2), nn.GroupNorm(4, 32), nn.ReLU(), nn.Conv2d(32, 64, 3, 2),
        nn.GroupNorm(8, 64), nn.ReLU(), nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(256, 256),
    )  # fmt: skip
    downs = nn.ModuleList([Block(7, width), Block(width, 2 * width)])
    less = nn.Conv1d(width, width, 3, 2, 1)
    more = nn.ConvTranspose1d(2 * width, width, 4, 2, 1)
    up, leave = Block(2 * width, width), nn.Conv1d(width, 7, 1)
    times = nn.Embedding(100, 256)
    every = nn.ModuleList([sees, downs, less, more, up, leave, times]).cuda()
    frames = torch.rand(batch_size, 3, 84, 84, device="cuda")
    acts = torch.randn(batch_size, 7, horizon, device="cuda")
    kept = torch.linspace(1, 0.02, 100, device="cuda")

    def loss() -> torch.Tensor:
        t = torch.randint(0, 100, (batch_size,), device="cuda")
        noise, share = torch.randn_like(acts), kept[t][:, None, None]
        c = sees(frames) + times(t)
        a = downs[0](share.sqrt() * acts + (1 - share).sqrt() * noise, c)
        b = downs[1](less(a), c)
        return F.mse_loss(leave(up(torch.cat([more(b), a], 1), c)), noise)

    return training_step(loss, every.parameters())
