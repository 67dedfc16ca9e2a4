"""Flow, warps, long filters, fixed points, queues and worlds, in plain torch and torchvision."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from vramcast_zoo.suites.training import training_step

Step = Callable[[], torch.Tensor]


def optical_flow(*, name: str = "raft_small", batch_size: int = 2, autocast: str = "") -> Step:
    """All pairs of two pictures, looked up in twelve rounds; every round is in the loss."""
    import torchvision

    model = torchvision.models.get_model(name, weights=None).cuda().train()
    pair = [torch.rand(batch_size, 3, 256, 320, device="cuda") * 2 - 1 for _ in range(2)]
    truth = torch.randn(batch_size, 2, 256, 320, device="cuda")

    def loss() -> torch.Tensor:
        made = model(*pair)
        return sum(0.8 ** (len(made) - i) * F.l1_loss(m, truth) for i, m in enumerate(made))

    return training_step(loss, model.parameters(), autocast=autocast)


def finer_pictures(*, batch_size: int = 8, size: int = 64, width: int = 64) -> Step:
    """Super-resolution by shuffled pixels, judged by what a frozen network sees and its style."""
    import torchvision

    seen = torchvision.models.vgg16(weights=None).features[:16].cuda().requires_grad_(False)
    layers: list[nn.Module] = [nn.Conv2d(3, width, 9, padding=4, padding_mode="reflect")]
    for _ in range(8):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.InstanceNorm2d(width), nn.PReLU()]
    for _ in range(2):
        layers += [nn.Conv2d(width, 4 * width, 3, padding=1), nn.PixelShuffle(2), nn.PReLU()]
    model = nn.Sequential(*layers, nn.Conv2d(width, 3, 9, padding=4)).cuda()
    small = torch.rand(batch_size, 3, size, size, device="cuda")
    large = torch.rand(batch_size, 3, 4 * size, 4 * size, device="cuda")

    def style(x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(2)
        return flat @ flat.mT / flat[0].numel()

    def loss() -> torch.Tensor:
        made = model(small)
        with torch.no_grad():
            truth = seen(large)
        found = seen(made)
        rough = (made[..., 1:] - made[..., :-1]).abs().mean()
        return F.mse_loss(found, truth) + F.l1_loss(style(found), style(truth)) + 1e-3 * rough

    return training_step(loss, model.parameters(), optimizer="adamw-fused")


def long_filters(*, batch_size: int = 4, length: int = 4096, width: int = 512, depth: int = 4):
    """Hyena: filters as long as the text, made by a network and applied in Fourier space."""
    embed = nn.Embedding(8000, width).cuda()
    blocks = nn.ModuleList()
    for _ in range(depth):
        shape = nn.Sequential(nn.Linear(33, 64), nn.SiLU(), nn.Linear(64, width))
        short = nn.Conv1d(3 * width, 3 * width, 3, padding=2, groups=3 * width)
        parts = {"into": nn.Linear(width, 3 * width), "short": short, "shape": shape}
        blocks.append(nn.ModuleDict({**parts, "out": nn.Linear(width, width)}))
    blocks.cuda()
    tokens = torch.randint(0, 8000, (batch_size, length + 1), device="cuda")
    ticks = torch.linspace(0, 1, length, device="cuda")[:, None]
    waves = ticks * 6.283 * torch.arange(1, 17, device="cuda")
    place = torch.cat([ticks, waves.sin(), waves.cos()], 1)

    def mix(x: torch.Tensor, block: nn.ModuleDict) -> torch.Tensor:
        a, b, v = block["short"](block["into"](x).mT)[..., :length].chunk(3, 1)
        filter_ = (block["shape"](place) * torch.exp(-4 * ticks)).mT
        spectrum = torch.fft.rfft(filter_.float(), n=2 * length)
        made = torch.fft.irfft(
            torch.fft.rfft((b * v).float(), n=2 * length) * spectrum, n=2 * length
        )
        return block["out"]((a * made[..., :length]).mT)

    def loss() -> torch.Tensor:
        x = embed(tokens[:, :-1])
        for block in blocks:
            x = x + mix(F.layer_norm(x, (width,)), block)
        return F.cross_entropy((x @ embed.weight.mT).flatten(0, 1), tokens[:, 1:].flatten())

    return training_step(loss, [*embed.parameters(), *blocks.parameters()])


def fixed_point(*, batch_size: int = 64, width: int = 48, size: int = 32, rounds: int = 12) -> Step:
    """A deep equilibrium: Anderson's mixing finds it, a hook solves for its gradient."""
    first = nn.Conv2d(3, width, 3, padding=1).cuda()
    inner, outer = (nn.Conv2d(width, width, 3, padding=1, bias=False).cuda() for _ in range(2))
    norms = nn.ModuleList(nn.GroupNorm(8, width) for _ in range(3)).cuda()
    head = nn.Linear(width, 10).cuda()
    images = torch.randn(batch_size, 3, size, size, device="cuda")
    labels = torch.randint(0, 10, (batch_size,), device="cuda")

    def f(z: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return norms[2](F.relu(z + norms[1](x + outer(norms[0](F.relu(inner(z)))))))

    def solve(g: Callable[[torch.Tensor], torch.Tensor], start: torch.Tensor) -> torch.Tensor:
        last = 5
        size_of = start[0].numel()
        xs, fs = (start.new_zeros(batch_size, last, size_of) for _ in range(2))
        left = start.new_zeros(batch_size, last + 1, last + 1)
        right = start.new_zeros(batch_size, last + 1, 1)
        left[:, 0, 1:] = left[:, 1:, 0] = 1
        right[:, 0] = 1
        xs[:, 0], fs[:, 0] = start.flatten(1), g(start).flatten(1)
        xs[:, 1], fs[:, 1] = fs[:, 0], g(fs[:, 0].view_as(start)).flatten(1)
        for k in range(2, rounds):
            n = min(k, last)
            gap = fs[:, :n] - xs[:, :n]
            near = 1e-4 * torch.eye(n, device=start.device)
            left[:, 1 : n + 1, 1 : n + 1] = gap @ gap.mT + near
            share = torch.linalg.solve(left[:, : n + 1, : n + 1], right[:, : n + 1])[:, 1:, 0]
            xs[:, k % last] = (share[:, None] @ fs[:, :n])[:, 0]
            fs[:, k % last] = g(xs[:, k % last].view_as(start)).flatten(1)
        return fs[:, (rounds - 1) % last].view_as(start)

    def loss() -> torch.Tensor:
        x = first(images)
        with torch.no_grad():
            z = solve(lambda z: f(z, x), torch.zeros_like(x))
        z = f(z, x)
        at = z.detach().requires_grad_()
        again = f(at, x.detach())

        def implicit(slope: torch.Tensor) -> torch.Tensor:
            def back(y: torch.Tensor) -> torch.Tensor:
                return torch.autograd.grad(again, at, y, retain_graph=True)[0] + slope

            return solve(back, slope)

        z.register_hook(implicit)
        return F.cross_entropy(head(z.mean((2, 3))), labels)

    every = nn.ModuleList([first, inner, outer, norms, head])
    return training_step(loss, every.parameters())


def queue_of_keys(*, batch_size: int = 64, size: int = 128, room: int = 65_536) -> Step:
    """MoCo: a slow copy makes keys for a queue, whose order is shuffled; hard pairs count more."""
    import torchvision

    model = torchvision.models.resnet50(num_classes=128).cuda()
    slow = copy.deepcopy(model).requires_grad_(False)
    queue = F.normalize(torch.randn(128, room, device="cuda"), dim=0)
    place = torch.zeros(1, dtype=torch.long, device="cuda")
    views = [torch.randn(batch_size, 3, size, size, device="cuda") for _ in range(2)]
    labels = torch.randint(0, 16, (batch_size,), device="cuda")

    def mined(made: torch.Tensor) -> torch.Tensor:
        far = torch.cdist(made, made)
        same = labels[:, None] == labels
        worst = far.masked_fill(~same, 0).amax(1)
        near = far.masked_fill(same, 1e9).topk(4, largest=False).values.mean(1)
        lost = F.relu(worst - near + 0.3)
        return lost[lost > 0].mean()

    def loss() -> torch.Tensor:
        made = F.normalize(model(views[0]))
        with torch.no_grad():
            for old, new in zip(slow.parameters(), model.parameters()):
                old.mul_(0.999).add_(new, alpha=0.001)
            order = torch.randperm(batch_size, device="cuda")
            keys = F.normalize(slow(views[1][order]))[torch.argsort(order)]
        right = torch.einsum("nc,nc->n", made, keys)[:, None]
        logits = torch.cat([right, made @ queue.clone()], 1) / 0.07
        start = int(place)
        queue[:, start : start + batch_size] = keys.T
        place[0] = (start + batch_size) % room
        truth = torch.zeros(batch_size, dtype=torch.long, device="cuda")
        return F.cross_entropy(logits, truth) + mined(made)

    return training_step(loss, model.parameters(), optimizer="sgd")


def dreams(*, batch_size: int = 16, length: int = 32, width: int = 512, horizon: int = 15) -> Step:
    """A world model learns from frames; an actor learns in what it imagines."""
    encode = nn.Sequential(nn.Conv2d(3, 48, 4, 2), nn.SiLU(), nn.Conv2d(48, 96, 4, 2), nn.SiLU())
    encode = nn.Sequential(encode, nn.Conv2d(96, 192, 4, 2), nn.SiLU(), nn.Flatten()).cuda()
    decode = nn.Sequential(
        nn.Linear(width + 1024, 192 * 36), nn.Unflatten(1, (192, 6, 6)),
        nn.ConvTranspose2d(192, 96, 4, 2), nn.SiLU(), nn.ConvTranspose2d(96, 48, 5, 2), nn.SiLU(),
        nn.ConvTranspose2d(48, 3, 4, 2),
    ).cuda()  # fmt: skip
    cell, into = nn.GRUCell(width, width).cuda(), nn.Linear(1024 + 6, width).cuda()
    prior, posterior = nn.Linear(width, 1024).cuda(), nn.Linear(width + 192 * 36, 1024).cuda()
    reward, value = (nn.Linear(width + 1024, 1).cuda() for _ in range(2))
    actor = nn.Linear(width + 1024, 6).cuda()
    world = nn.ModuleList([encode, decode, cell, into, prior, posterior, reward])
    updates = [torch.optim.Adam(m.parameters()) for m in (world, actor, value)]
    frames = torch.rand(batch_size, length, 3, 64, 64, device="cuda")
    acts = F.one_hot(torch.randint(0, 6, (batch_size, length), device="cuda"), 6).float()
    got = torch.randn(batch_size, length, device="cuda")

    def draw(logits: torch.Tensor) -> torch.Tensor:
        odds = logits.view(-1, 32, 32).softmax(-1)
        drawn = torch.distributions.OneHotCategorical(odds).sample()
        return (drawn + odds - odds.detach()).flatten(1)

    def learn_world() -> tuple[torch.Tensor, torch.Tensor]:
        seen = encode(frames.flatten(0, 1)).view(batch_size, length, -1)
        memory, state = frames.new_zeros(batch_size, width), frames.new_zeros(batch_size, 1024)
        states, gaps = [], []
        for t in range(length):
            memory = cell(F.silu(into(torch.cat([state, acts[:, t]], -1))), memory)
            guess, known = prior(memory), posterior(torch.cat([memory, seen[:, t]], -1))
            state = draw(known)
            states.append(torch.cat([memory, state], -1))
            odds = [x.view(-1, 32, 32).log_softmax(-1) for x in (guess, known)]
            gaps.append(F.kl_div(*odds, reduction="batchmean", log_target=True))
        every = torch.stack(states, 1).flatten(0, 1)
        again = F.mse_loss(decode(every), frames.flatten(0, 1))
        loss = again + F.mse_loss(reward(every).squeeze(1), got.flatten()) + sum(gaps) / length
        updates[0].zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(world.parameters(), 100.0)
        updates[0].step()
        return loss.detach(), every.detach()

    def step() -> torch.Tensor:
        loss, here = learn_world()
        path, logs = [here], []
        for _ in range(horizon):
            spread = torch.distributions.Categorical(logits=actor(path[-1].detach()))
            act = spread.sample()
            logs.append(spread.log_prob(act))
            with torch.no_grad():
                memory, state = path[-1].split([width, 1024], -1)
                moved = torch.cat([state, F.one_hot(act, 6).float()], -1)
                memory = cell(F.silu(into(moved)), memory)
                path.append(torch.cat([memory, draw(prior(memory))], -1))
        every = torch.stack(path)
        worth = value(every).squeeze(-1)
        with torch.no_grad():
            gains, total = reward(every).squeeze(-1), worth[-1]
            goals = []
            for t in reversed(range(horizon)):
                total = gains[t] + 0.99 * (0.05 * worth[t + 1] + 0.95 * total)
                goals.insert(0, total)
        goal = torch.stack(goals)
        better = (goal - worth[:-1]).detach()
        for update, lost in zip(
            updates[1:], (-(torch.stack(logs) * better).mean(), F.mse_loss(worth[:-1], goal))
        ):
            update.zero_grad()
            lost.backward()
            update.step()
        return loss

    return step


def matched_volumes(*, batch_size: int = 2, size: int = 96, width: int = 16) -> Step:
    """VoxelMorph: a field that moves one volume onto another, integrated, compared in windows."""

    def line(i: int, o: int, stride: int = 1) -> nn.Sequential:
        return nn.Sequential(nn.Conv3d(i, o, 3, stride, 1), nn.LeakyReLU(0.2))

    w = width
    down = nn.ModuleList([line(2, w), line(w, 2 * w, 2), line(2 * w, 2 * w, 2)])
    up = nn.ModuleList([line(4 * w, 2 * w), line(3 * w, w)])
    head = nn.Conv3d(w, 3, 3, padding=1)
    every = nn.ModuleList([down, up, head]).cuda()
    pair = torch.rand(batch_size, 2, size, size, size, device="cuda")
    still = F.affine_grid(
        torch.eye(3, 4).repeat(batch_size, 1, 1), (batch_size, 1, *(size,) * 3)
    ).cuda()
    ones = torch.ones(1, 1, 9, 9, 9, device="cuda")

    def warp(x: torch.Tensor, field: torch.Tensor) -> torch.Tensor:
        return F.grid_sample(x, still + field.movedim(1, -1), align_corners=False)

    def correlation(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        sums = [F.conv3d(x, ones, padding=4) for x in (a, b, a * a, b * b, a * b)]
        cross = sums[4] - sums[0] * sums[1] / 729
        spread = (sums[2] - sums[0] ** 2 / 729) * (sums[3] - sums[1] ** 2 / 729)
        return (cross * cross / (spread + 1e-5)).mean()

    def loss() -> torch.Tensor:
        x, kept = pair, []
        for layer in down:
            x = layer(x)
            kept.append(x)
        x = up[0](torch.cat([F.interpolate(x, scale_factor=2), kept[1]], 1))
        x = up[1](torch.cat([F.interpolate(x, scale_factor=2, mode="trilinear"), kept[0]], 1))
        field = head(x) / 2**5
        for _ in range(5):
            field = field + warp(field, field)
        smooth = sum(field.diff(dim=d).square().mean() for d in (2, 3, 4))
        return smooth - correlation(warp(pair[:, :1], field), pair[:, 1:])

    return training_step(loss, every.parameters())


def contracted(*, batch_size: int = 128, width: int = 784, hidden: int = 128) -> Step:
    """An autoencoder whose Jacobian is in the loss, and an evaluation on torch's fast path."""
    encode = nn.Sequential(nn.Linear(width, 512), nn.Softplus(), nn.Linear(512, hidden)).cuda()
    decode = nn.Linear(hidden, width).cuda()
    layer = nn.TransformerEncoderLayer(hidden, 4, 512, batch_first=True)
    reader = nn.TransformerEncoder(layer, 4).cuda()
    x = torch.rand(batch_size, width, device="cuda")
    rows = torch.arange(64, device="cuda")
    padding = rows >= torch.linspace(16, 64, batch_size, device="cuda").long()[:, None]

    def loss() -> torch.Tensor:
        made = encode(x)
        jacobian = torch.func.vmap(torch.func.jacrev(encode))(x)
        reader.eval()
        with torch.inference_mode():
            text = made.detach()[:, None].repeat(1, 64, 1)
            read = reader(text, src_key_padding_mask=padding).abs().mean().item()
        reader.train()
        seen = reader(made[:, None].expand(-1, 64, -1), src_key_padding_mask=padding)
        again = F.mse_loss(decode(seen.mean(1)), x)
        return again + 1e-3 * jacobian.square().sum((1, 2)).mean() + 0 * read

    every = nn.ModuleList([encode, decode, reader])
    return training_step(loss, every.parameters())
