"""Points, rays, meshes, graphs and warps in plain torch: sorting, gathering, scattering."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from vramcast_zoo.suites.training import training_step

Step = Callable[[], torch.Tensor]


def _between(*widths: int, act: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i, o in zip(widths, widths[1:]):
        layers += [nn.Linear(i, o), act()]
    return nn.Sequential(*layers[:-1])


def fine_rays(*, rays: int = 4096, coarse: int = 64, fine: int = 128, width: int = 256) -> Step:
    """NeRF with two networks: where the first sees something, the second looks closer."""
    nets = nn.ModuleList(_between(63, *(width,) * 6, 4) for _ in range(2)).cuda()
    origin = torch.randn(rays, 3, device="cuda")
    way = F.normalize(torch.randn(rays, 3, device="cuda"), dim=1)
    color = torch.rand(rays, 3, device="cuda")
    powers = 2.0 ** torch.arange(10, device="cuda")

    def look(net: nn.Module, depth: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        at = origin[:, None] + way[:, None] * depth[..., None]
        waves = (at[..., None] * powers).flatten(2)
        made = net(torch.cat([at, waves.sin(), waves.cos()], -1))
        gaps = F.pad(depth[:, 1:] - depth[:, :-1], (0, 1), value=1e3)
        opaque = 1 - torch.exp(-F.relu(made[..., 3]) * gaps)
        clear = torch.cumprod(F.pad(1 - opaque + 1e-10, (1, 0), value=1.0), 1)[:, :-1]
        share = opaque * clear
        return (share[..., None] * made[..., :3].sigmoid()).sum(1), share

    def closer(depth: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
        middle = (depth[:, 1:] + depth[:, :-1]) / 2
        share = share[:, 1:-1] + 1e-5
        steps = F.pad(torch.cumsum(share / share.sum(1, keepdim=True), 1), (1, 0))
        drawn = torch.rand(rays, fine, device="cuda")
        above = torch.searchsorted(steps, drawn, right=True).clamp(1, steps.shape[1] - 1)
        low, high = (torch.gather(steps, 1, i) for i in (above - 1, above))
        start, end = (torch.gather(middle, 1, i) for i in (above - 1, above))
        new = start + (drawn - low) / (high - low).clamp(min=1e-5) * (end - start)
        return torch.sort(torch.cat([depth, new], 1), 1).values

    def loss() -> torch.Tensor:
        depth = torch.linspace(2, 6, coarse, device="cuda").expand(rays, coarse)
        depth = depth + torch.rand_like(depth) * 4 / coarse
        seen, share = look(nets[0], depth)
        better, _ = look(nets[1], closer(depth, share.detach()))
        return F.mse_loss(seen, color) + F.mse_loss(better, color)

    return training_step(loss, nets.parameters())


def splats(*, points: int = 200_000, tiles: int = 256, kept: int = 512) -> Step:
    """Gaussians sorted by depth and blended in tiles of 16 x 16 pixels."""
    place = nn.Parameter(torch.randn(points, 3, device="cuda"))
    size = nn.Parameter(torch.rand(points, 3, device="cuda"))
    turn = nn.Parameter(torch.randn(points, 4, device="cuda"))
    color = nn.Parameter(torch.rand(points, 3, device="cuda"))
    opaque = nn.Parameter(torch.zeros(points, device="cuda"))
    image = torch.rand(tiles, 256, 3, device="cuda")
    corner = torch.rand(tiles, 1, 2, device="cuda") * 2 - 1
    ticks = torch.arange(16, device="cuda") / 160
    pixels = corner + torch.cartesian_prod(ticks, ticks)

    def covariance() -> torch.Tensor:
        w, x, y, z = F.normalize(turn, dim=1).unbind(1)
        rows = [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)]
        rows += [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)]
        half = torch.stack(rows, 1).view(-1, 2, 3) * size.exp()[:, None]
        return half @ half.transpose(1, 2) + 0.3 * torch.eye(2, device="cuda")

    def loss() -> torch.Tensor:
        order = torch.argsort(place[:, 2].detach())
        at, spread = place[order, :2], torch.linalg.inv(covariance())[order]
        far = torch.cdist(corner[:, 0], at.detach())
        near = far.topk(kept, largest=False).indices.sort(1).values
        off = pixels[:, :, None] - at[near][:, None]
        shape = spread[near][:, None]
        power = (off[..., None, :] @ shape @ off[..., None]).flatten(3).squeeze(3)
        seen = torch.exp(-power / 2) * opaque[order][near].sigmoid()[:, None]
        clear = torch.cumprod(1 - seen.clamp(max=0.99), 2)
        share = seen * F.pad(clear[..., :-1], (1, 0), value=1.0)
        return F.l1_loss(share @ color[order][near].sigmoid(), image)

    return training_step(loss, [place, size, turn, color, opaque], clip=0)


def hash_grid(*, points: int = 262_144, levels: int = 12, slots: int = 2**19) -> Step:
    """Instant-NGP: corners of cells looked up in tables by a hash, and a small network."""
    tables = nn.Parameter(1e-4 * torch.randn(levels, slots, 2, device="cuda"))
    net = _between(2 * levels, 64, 64, 4).cuda()
    at = torch.rand(points, 3, device="cuda")
    wanted = torch.rand(points, 4, device="cuda")
    corners = torch.cartesian_prod(*(torch.arange(2, device="cuda"),) * 3)
    primes = torch.tensor([1, 2654435761, 805459861], device="cuda")

    def loss() -> torch.Tensor:
        found = []
        for level in range(levels):
            scaled = at * (16 * 1.45**level)
            cell = scaled.floor().long()
            inside = (scaled - cell)[:, None]
            mixed = (cell[:, None] + corners) * primes
            slot = (mixed[..., 0] ^ mixed[..., 1] ^ mixed[..., 2]) % slots
            weight = torch.where(corners.bool(), inside, 1 - inside).prod(2)
            found.append((weight[..., None] * tables[level][slot]).sum(1))
        with torch.autocast("cuda", torch.float16):
            made = net(torch.cat(found, 1))
        return F.huber_loss(made.float(), wanted)

    return training_step(loss, [tables, *net.parameters()], scale_loss=True, clip=0)


def point_transformer(
    *, batch_size: int = 8, points: int = 2048, neighbours: int = 16, width: int = 64
) -> Step:
    """Attention to the nearest points, which are found by distances; half of them go on."""
    first, head = nn.Linear(6, width).cuda(), nn.Linear(4 * width, 40).cuda()
    stages = nn.ModuleList()
    for w in (width, 2 * width, 4 * width):
        parts = {"qkv": nn.Linear(w, 3 * w), "where": _between(3, w, w), "mix": _between(w, w, w)}
        stages.append(
            nn.ModuleDict({**parts, "down": nn.Linear(w, 2 * w), "norm": nn.LayerNorm(w)})
        )
    stages.cuda()
    cloud = torch.randn(batch_size, points, 6, device="cuda")
    labels = torch.randint(0, 40, (batch_size,), device="cuda")
    batch = torch.arange(batch_size, device="cuda")[:, None]

    def loss() -> torch.Tensor:
        place, x = cloud[..., :3], first(cloud)
        for number, stage in enumerate(stages):
            near = torch.cdist(place, place).topk(neighbours, largest=False).indices
            q, k, v = stage["qkv"](x).chunk(3, -1)
            k, v = (t[batch[..., None], near] for t in (k, v))
            where = stage["where"](place[:, :, None] - place[batch[..., None], near])
            share = stage["mix"](q[:, :, None] - k + where).softmax(2)
            x = stage["norm"](x + (share * (v + where)).sum(2))
            if number < 2:
                some = torch.randperm(x.shape[1], device="cuda")[: x.shape[1] // 2]
                place, x = place[:, some], F.relu(stage["down"](x[:, some]))
        return F.cross_entropy(head(x.amax(1)), labels)

    return training_step(loss, [*first.parameters(), *stages.parameters(), *head.parameters()])


def graph_attention(*, nodes: int = 50_000, edges: int = 600_000, heads: int = 4) -> Step:
    """A softmax over the edges of every node, by scatter_reduce and index_add."""
    widths = (128, 256, 256)
    lines = nn.ModuleList(nn.Linear(i, o) for i, o in zip(widths, widths[1:])).cuda()
    looks = nn.ParameterList(torch.randn(2, heads, w // heads) for w in widths[1:]).cuda()
    head = nn.Linear(widths[-1], 40).cuda()
    x = torch.randn(nodes, widths[0], device="cuda")
    source, target = torch.randint(0, nodes, (2, edges), device="cuda")
    labels = torch.randint(0, 40, (nodes,), device="cuda")
    known = torch.rand(nodes, device="cuda") < 0.5

    def attend(h: torch.Tensor, look: torch.Tensor) -> torch.Tensor:
        here, there = (h * look[0]).sum(-1), (h * look[1]).sum(-1)
        score = F.leaky_relu(here[source] + there[target], 0.2)
        where = target[:, None].expand_as(score)
        most = score.new_full((nodes, heads), -1e9).scatter_reduce(0, where, score, "amax")
        score = (score - most.detach()[target]).exp()
        total = torch.zeros_like(most).scatter_add(0, where, score)
        share = F.dropout(score / (total[target] + 1e-16), 0.1)
        return torch.zeros_like(h).index_add(0, target, share[..., None] * h[source])

    def loss() -> torch.Tensor:
        h = x
        for line, look in zip(lines, looks):
            h = F.elu(attend(line(h).view(nodes, heads, -1), look).flatten(1))
        return F.cross_entropy(head(h)[known], labels[known])

    every = nn.ModuleList([lines, looks, head])
    return training_step(loss, every.parameters())


def capsules(*, batch_size: int = 64, rounds: int = 3) -> Step:
    """Routing by agreement between 1,152 small capsules and ten large ones, and a decoder."""
    first, second = nn.Conv2d(1, 256, 9).cuda(), nn.Conv2d(256, 256, 9, 2).cuda()
    turns = nn.Parameter(0.01 * torch.randn(1152, 10, 16, 8, device="cuda"))
    decoder = _between(160, 512, 1024, 784).cuda()
    images = torch.rand(batch_size, 1, 28, 28, device="cuda")
    labels = torch.randint(0, 10, (batch_size,), device="cuda")

    def squash(x: torch.Tensor) -> torch.Tensor:
        long = x.square().sum(-1, keepdim=True)
        return long / (1 + long) * x / (long + 1e-8).sqrt()

    def loss() -> torch.Tensor:
        small = squash(second(F.relu(first(images))).view(batch_size, 8, 1152).transpose(1, 2))
        votes = torch.einsum("ncij,bnj->bnci", turns, small)
        logits = torch.zeros(batch_size, 1152, 10, 1, device="cuda")
        for number in range(rounds):
            made = squash((logits.softmax(2) * votes).sum(1, keepdim=True))
            if number < rounds - 1:
                logits = logits + (votes * made).sum(-1, keepdim=True)
        made = made.squeeze(1)
        long, truth = made.norm(dim=-1), F.one_hot(labels, 10).float()
        margin = truth * F.relu(0.9 - long) ** 2 + 0.5 * (1 - truth) * F.relu(long - 0.1) ** 2
        again = decoder((made * truth[..., None]).flatten(1)).sigmoid()
        return margin.sum(1).mean() + 5e-4 * F.mse_loss(again, images.flatten(1), reduction="sum")

    weights = [*first.parameters(), *second.parameters(), turns, *decoder.parameters()]
    return training_step(loss, weights)


def bent_filters(*, batch_size: int = 8, size: int = 128, width: int = 64) -> Step:
    """Deformable convolutions of torchvision, with masks, after a spatial transformer."""
    from torchvision.ops import DeformConv2d

    where = nn.Sequential(nn.Conv2d(3, 16, 7, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten())
    turn = nn.Linear(256, 6)
    first = nn.Conv2d(3, width, 3, padding=1)
    offsets = nn.ModuleList(nn.Conv2d(width, 27, 3, padding=1) for _ in range(3))
    bent = nn.ModuleList(DeformConv2d(width, width, 3, padding=1) for _ in range(3))
    norms = nn.ModuleList(nn.GroupNorm(8, width) for _ in range(3))
    head = nn.Conv2d(width, 5, 1)
    every = nn.ModuleList([where, turn, first, offsets, bent, norms, head]).cuda()
    images = torch.randn(batch_size, 3, size, size, device="cuda")
    labels = torch.randint(0, 5, (batch_size, size, size), device="cuda")

    def loss() -> torch.Tensor:
        grid = F.affine_grid(turn(where(images)).view(-1, 2, 3), images.shape, align_corners=False)
        x = first(F.grid_sample(images, grid, padding_mode="reflection", align_corners=False))
        for offset, bend, norm in zip(offsets, bent, norms):
            at, mask = offset(x).split([18, 9], 1)
            x = x + F.relu(norm(bend(x, at, mask.sigmoid())))
        return F.cross_entropy(head(x), labels, label_smoothing=0.1)

    return training_step(loss, every.parameters())


def graph_by_products(*, nodes: int = 100_000, edges: int = 1_000_000, width: int = 128) -> Step:
    """Products with a sparse matrix, whose edges are dropped anew in every step."""
    layers = nn.ModuleList(nn.Linear(width, width) for _ in range(4)).cuda()
    norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(4)).cuda()
    x = torch.randn(nodes, width, device="cuda")
    ends = torch.randint(0, nodes, (2, edges), device="cuda")
    labels = torch.randint(0, width, (nodes,), device="cuda")

    def loss() -> torch.Tensor:
        kept = ends[:, torch.rand(edges, device="cuda") < 0.8]
        degree = torch.bincount(kept[0], minlength=nodes).clamp(min=1).float()
        values = degree.rsqrt()[kept[0]] * degree.rsqrt()[kept[1]]
        matrix = torch.sparse_coo_tensor(kept, values, (nodes, nodes)).coalesce()
        h = x
        for layer, norm in zip(layers, norms):
            h = h + F.relu(norm(torch.sparse.mm(matrix, layer(h))))
        return F.cross_entropy(h, labels)

    return training_step(loss, [*layers.parameters(), *norms.parameters()])
