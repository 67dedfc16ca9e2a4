"""Steps whose sizes are drawn: edges, lengths, cells, crops, and what is picked by chance."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from vramcast_zoo.suites.training import training_step

Step = Callable[[], torch.Tensor]


def edges_within(*, clouds: int = 16, points: int = 256, radius: float = 0.2) -> Step:
    """Atoms are drawn in every step; those within a radius exchange messages."""
    width = 64
    embed, says = nn.Linear(3, width).cuda(), nn.Linear(width, 1).cuda()
    messages = nn.Sequential(nn.Linear(2 * width + 1, width), nn.SiLU(), nn.Linear(width, width))
    messages = messages.cuda()

    def loss() -> torch.Tensor:
        atoms = torch.rand(clouds, points, 3, device="cuda")
        apart = torch.cdist(atoms, atoms)
        cloud, one, other = ((apart < radius) & (apart > 0)).nonzero(as_tuple=True)
        far = apart[cloud, one, other, None]
        first, second = cloud * points + one, cloud * points + other
        x = embed(atoms.flatten(0, 1))
        for _ in range(3):
            sent = messages(torch.cat([x[first], x[second], far], -1))
            x = x + torch.zeros_like(x).index_add(0, first, sent)
        return F.mse_loss(says(x).view(clouds, points).sum(1), atoms.sum((1, 2)))

    return training_step(loss, nn.ModuleList([embed, says, messages]).parameters())


def drawn_lengths(*, batch_size: int = 64, length: int = 256, width: int = 256) -> Step:
    """Ragged batches without padding: a mask packs them, and each text has its own mean."""
    table = nn.Embedding(5000, width).cuda()
    body = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)).cuda()
    says = nn.Linear(width, 10).cuda()

    def loss() -> torch.Tensor:
        lengths = torch.randint(8, length + 1, (batch_size,), device="cuda")
        texts = torch.randint(0, 5000, (batch_size, length), device="cuda")
        there = torch.arange(length, device="cuda") < lengths[:, None]
        x = body(table(texts[there]))
        owner = torch.arange(batch_size, device="cuda").repeat_interleave(lengths)
        mean = x.new_zeros(batch_size, width).index_add(0, owner, x) / lengths[:, None]
        return F.cross_entropy(says(mean), texts[:, 0] % 10)

    return training_step(loss, nn.ModuleList([table, body, says]).parameters(), autocast="bf16")


def sparse_volume(*, points: int = 20_000, side: int = 40, width: int = 48) -> Step:
    """A submanifold convolution: the cells that are there, and the neighbours each of them has."""
    weights = nn.ParameterList([torch.randn(27, a, width) / 16 for a in (4, width)]).cuda()
    says = nn.Linear(width, 5).cuda()
    shifts = torch.cartesian_prod(*[torch.arange(-1, 2)] * 3).cuda()
    steps = torch.tensor([side * side, side, 1], device="cuda")

    def neighbours(cells: torch.Tensor, keys: torch.Tensor) -> list[tuple[torch.Tensor, ...]]:
        found = []
        for shift in shifts:
            moved = cells + shift
            inside = ((moved >= 0) & (moved < side)).all(1)
            at = torch.searchsorted(keys, (moved * steps).sum(1)).clamp(max=len(keys) - 1)
            here = inside & (keys[at] == (moved * steps).sum(1))
            found.append((here.nonzero()[:, 0], at[here]))
        return found

    def loss() -> torch.Tensor:
        cloud = torch.randn(points, 3, device="cuda").mul_(side / 6).add_(side / 2)
        cells = cloud.floor().clamp(0, side - 1).long()
        keys, owner = torch.unique((cells * steps).sum(1), return_inverse=True)
        cells = torch.stack([keys // side**2, keys // side % side, keys % side], 1)
        values = torch.cat([cloud, cloud.norm(dim=1, keepdim=True)], 1)
        x = values.new_zeros(len(keys), 4).index_add(0, owner, values)
        for weight in weights:
            out = x.new_zeros(len(keys), width)
            for part, (to, where) in zip(weight, neighbours(cells, keys), strict=True):
                out = out.index_add(0, to, x[where] @ part)
            x = F.relu(out)
        return F.cross_entropy(says(x)[owner], cells[owner].sum(1) % 5)

    return training_step(loss, [*weights, *says.parameters()])


def crops_of_chance(*, batch_size: int = 32, size: int = 96) -> Step:
    """Crops, erased boxes and mixed pictures, whose sizes the host reads from the GPU."""
    net = nn.Sequential(
        nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1),
        nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    ).cuda()  # fmt: skip
    pictures = torch.rand(batch_size, 3, size, size, device="cuda")
    labels = torch.randint(0, 10, (batch_size,), device="cuda")

    def loss() -> torch.Tensor:
        side = int(torch.randint(size // 2, size + 1, (), device="cuda"))
        top, left = torch.randint(0, size - side + 1, (2,), device="cuda").tolist()
        x = pictures[:, :, top : top + side, left : left + side].clone()
        erased = torch.rand(batch_size, device="cuda") < 0.25
        x[erased, :, : side // 3, : side // 3] = torch.rand(3, 1, 1, device="cuda")
        other = torch.randperm(batch_size, device="cuda")
        share = torch.rand(batch_size, 1, 1, 1, device="cuda").clamp(0.5)
        seen = net(share * x + (1 - share) * x[other])
        both = (
            F.cross_entropy(seen, labels, reduction="none"),
            F.cross_entropy(seen, labels[other], reduction="none"),
        )
        share = share.flatten()
        return (share * both[0] + (1 - share) * both[1]).mean()

    return training_step(loss, net.parameters(), optimizer="sgd")


def few_of_the_words(*, batch_size: int = 48, length: int = 128, width: int = 256) -> Step:
    """Words fall out, and the softmax goes over the distinct ones and some that are drawn."""
    words, drawn = 40_000, 2048
    table, out = nn.Embedding(words, width).cuda(), nn.Embedding(words, width).cuda()
    body = nn.GRU(width, width, batch_first=True).cuda()

    def loss() -> torch.Tensor:
        rare = torch.rand(batch_size, length + 1, device="cuda")
        texts = (rare.pow(4) * words).long()
        kept = torch.rand(batch_size, length, 1, device="cuda") > 0.1
        x, _ = body(table(texts[:, :-1]) * kept)
        candidates = torch.cat([texts[:, 1:].flatten(), torch.randint(0, words, (drawn,),
                                                                      device="cuda")])  # fmt: skip
        distinct, at = torch.unique(candidates, return_inverse=True)
        return F.cross_entropy(x.flatten(0, 1) @ out(distinct).T, at[: batch_size * length])

    return training_step(loss, nn.ModuleList([table, out, body]).parameters())


def groups_found(*, batch_size: int = 4096, width: int = 256, groups: int = 64) -> Step:
    """Features are put into groups by k-means within the step, and pulled to their middles."""
    net = nn.Sequential(nn.Linear(128, width), nn.ReLU(), nn.Linear(width, width)).cuda()
    seen = torch.randn(batch_size, 128, device="cuda")

    def loss() -> torch.Tensor:
        x = F.normalize(net(seen), dim=1)
        with torch.no_grad():
            middles = x[torch.randperm(batch_size, device="cuda")[:groups]]
            for _ in range(6):
                owner = torch.cdist(x, middles).argmin(1)
                sizes = torch.bincount(owner, minlength=groups).clamp(min=1)
                middles = torch.zeros_like(middles).index_add_(0, owner, x) / sizes[:, None]
        return F.cross_entropy(x @ middles.T / 0.1, owner)

    return training_step(loss, net.parameters())


def played_and_kept(*, players: int = 256, length: int = 64, width: int = 128) -> Step:
    """PPO: players act by chance, games end by chance, advantages go back in time, four epochs."""
    body = nn.Sequential(nn.Linear(16, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()).cuda()
    acts, judges = nn.Linear(width, 6).cuda(), nn.Linear(width, 1).cuda()
    nets = nn.ModuleList([body, acts, judges])
    update = torch.optim.Adam(nets.parameters(), lr=3e-4, eps=1e-5)
    moves = torch.randn(6, 16, device="cuda")
    seen = torch.zeros(length, players, 16, device="cuda")
    done, chosen, gains, worth, likely = torch.zeros(5, length, players, device="cuda")

    def play() -> None:
        now = torch.randn(players, 16, device="cuda")
        for at in range(length):
            x = body(now)
            choice = torch.distributions.Categorical(logits=acts(x))
            action = choice.sample()
            seen[at], chosen[at], worth[at] = now, action.float(), judges(x)[:, 0]
            likely[at] = choice.log_prob(action)
            now = now + 0.1 * moves[action]
            over = torch.rand(players, device="cuda") < 0.02
            gains[at], done[at] = -now.square().mean(1), over.float()
            now[over] = torch.randn(int(over.sum()), 16, device="cuda")

    def step() -> torch.Tensor:
        with torch.no_grad():
            play()
            better, last = torch.zeros_like(gains), torch.zeros(players, device="cuda")
            for at in reversed(range(length - 1)):
                goes_on = 1 - done[at]
                apart = gains[at] + 0.99 * worth[at + 1] * goes_on - worth[at]
                last = apart + 0.95 * 0.99 * goes_on * last
                better[at] = last
        flat = [t.flatten(0, 1) for t in (seen, chosen, likely, better, better + worth)]
        for _ in range(4):
            for at in torch.randperm(length * players, device="cuda").chunk(4):
                x, action, before, gain, goal = (t[at] for t in flat)
                y = body(x)
                choice = torch.distributions.Categorical(logits=acts(y))
                ratio = (choice.log_prob(action) - before).exp()
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                loss = -torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
                loss = loss + 0.5 * F.mse_loss(judges(y)[:, 0], goal)
                loss = loss - 0.01 * choice.entropy().mean()
                update.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(nets.parameters(), 0.5)
                update.step()
        return loss.detach()

    return step


def particles_drawn(*, batch_size: int = 64, particles: int = 512, length: int = 24) -> Step:
    """A particle filter: noise, weights, and particles that are drawn again by their weights."""
    width = 64
    moves = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 4)).cuda()
    sees = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 2)).cuda()
    seen = torch.randn(length, batch_size, 1, 2, device="cuda")

    def loss() -> torch.Tensor:
        x = torch.randn(batch_size, particles, 4, device="cuda")
        total = torch.zeros((), device="cuda")
        even = torch.arange(particles, device="cuda") / particles
        for now in seen:
            x = x + moves(x) + 0.1 * torch.randn_like(x)
            weights = -(sees(x) - now).square().sum(-1)
            total = total - weights.logsumexp(1).mean()
            shares = weights.detach().softmax(1).cumsum(1).contiguous()
            wanted = even + torch.rand(batch_size, 1, device="cuda") / particles
            at = torch.searchsorted(shares, wanted).clamp(max=particles - 1)
            x = x.gather(1, at[..., None].expand(-1, -1, 4))
        return total / length

    return training_step(loss, [*moves.parameters(), *sees.parameters()])
