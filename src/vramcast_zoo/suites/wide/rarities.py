"""What is rare: tasks against each other, learning through learning, caches, graphs of kinds."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from vramcast_zoo.suites.training import training_step

Step = Callable[[], torch.Tensor]


def _net(*widths: int, act: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i, o in zip(widths, widths[1:]):
        layers += [nn.Linear(i, o), act()]
    return nn.Sequential(*layers[:-1])


def tasks_in_conflict(*, batch_size: int = 32, size: int = 64, tasks: int = 4) -> Step:
    """Gradients of every task through one graph; where two disagree, one is turned."""
    body = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(64, 128, 3, 2, 1), nn.BatchNorm2d(128), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
    ).cuda()  # fmt: skip
    heads = nn.ModuleList(_net(512, 256, 10) for _ in range(tasks)).cuda()
    update = torch.optim.AdamW([*body.parameters(), *heads.parameters()])
    images = torch.rand(batch_size, 3, size, size, device="cuda")
    labels = torch.randint(0, 10, (tasks, batch_size), device="cuda")
    shared = list(body.parameters())

    def step() -> torch.Tensor:
        update.zero_grad()
        x = body(images)
        losses = [F.cross_entropy(head(x), y) for head, y in zip(heads, labels)]
        slopes = [
            nn.utils.parameters_to_vector(torch.autograd.grad(loss, shared, retain_graph=True))
            for loss in losses
        ]
        turned = []
        for slope in slopes:
            for other in slopes:
                against = torch.dot(slope, other).clamp(max=0) / other.square().sum()
                slope = slope - against * other
            turned.append(slope)
        torch.stack(losses).sum().backward()
        parts = torch.stack(turned).mean(0).split([p.numel() for p in shared])
        for p, part in zip(shared, parts):
            p.grad = part.view_as(p)
        update.step()
        return torch.stack(losses).mean().detach()

    return step


def learnt_data(*, images_each: int = 10, size: int = 32, inner: int = 4) -> Step:
    """Pictures that teach: gradients on them are compared with those of real ones."""
    lines = nn.Sequential(
        nn.Conv2d(3, 96, 3, padding=1), nn.InstanceNorm2d(96, affine=True), nn.ReLU(),
        nn.AvgPool2d(2), nn.Conv2d(96, 96, 3, padding=1), nn.InstanceNorm2d(96, affine=True),
        nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(96 * (size // 4) ** 2, 10),
    ).cuda()  # fmt: skip
    made = torch.randn(10 * images_each, 3, size, size, device="cuda", requires_grad=True)
    classes = torch.arange(10, device="cuda").repeat_interleave(images_each)
    real = torch.rand(256, 3, size, size, device="cuda")
    labels = torch.randint(0, 10, (256,), device="cuda")
    update = torch.optim.SGD([made], lr=0.1, momentum=0.5)
    weights = list(lines.parameters())

    def step() -> torch.Tensor:
        total = torch.zeros((), device="cuda")
        for _ in range(inner):
            truth = torch.autograd.grad(F.cross_entropy(lines(real), labels), weights)
            guess = torch.autograd.grad(
                F.cross_entropy(lines(made), classes), weights, create_graph=True
            )
            total = total + sum(
                1 - F.cosine_similarity(a.flatten(), b.flatten(), 0) for a, b in zip(truth, guess)
            )
        update.zero_grad()
        total.backward()
        update.step()
        return total.detach()

    return step


def few_components(*, batch_size: int = 2048, width: int = 300) -> Step:
    """A basis by random projections, the largest eigenvalues, and a rank that is asked for."""
    net = _net(64, 512, width, act=nn.GELU).cuda()
    x = torch.randn(batch_size, 64, device="cuda")

    def loss() -> torch.Tensor:
        made = net(x)
        u, s, v = torch.svd_lowrank(made, q=12, niter=2)
        with torch.no_grad():
            rank = torch.linalg.matrix_rank(made[:200])
            mean = torch.pca_lowrank(made, q=6)[1].mean()
        most = torch.linalg.norm(made[:128, :128], 2) + torch.linalg.norm(made, "nuc") * 1e-3
        low = (u * s) @ v.mT
        return F.mse_loss(low, made) + 1e-3 * most + 0 * (rank + mean)

    return training_step(loss, net.parameters())


def other_factors(*, batch_size: int = 16, width: int = 48) -> Step:
    """Eigenvalues that are complex, a pseudo-inverse, powers, and systems that are symmetric."""
    net = _net(32, 256, width * width, act=nn.Tanh).cuda()
    x = torch.randn(batch_size, 32, device="cuda")
    goal = torch.randn(batch_size, width, 3, device="cuda")

    def loss() -> torch.Tensor:
        made = net(x).view(-1, width, width) + torch.eye(width, device="cuda")
        radius = torch.linalg.eigvals(made).abs().amax(-1).mean()
        back = torch.linalg.pinv(made[:, :, : width // 2]) @ goal
        even = made + made.mT + 8 * torch.eye(width, device="cuda")
        solved = torch.linalg.solve(even, goal) + torch.linalg.matrix_power(made * 0.1, 5) @ goal
        return radius + back.square().mean() + solved.square().mean()

    return training_step(loss, net.parameters())


def csr_layers(*, nodes: int = 8000, links: int = 120_000, width: int = 192) -> Step:
    """A graph as a compressed matrix: products of it, and with weights that are sparse."""
    places = torch.randint(0, nodes, (2, links), device="cuda")
    values = torch.rand(links, device="cuda")
    grid = torch.sparse_coo_tensor(places, values, (nodes, nodes)).coalesce().to_sparse_csr()
    first, second = nn.Linear(64, width).cuda(), nn.Linear(width, 16).cuda()
    x = torch.randn(nodes, 64, device="cuda")
    labels = torch.randint(0, 16, (nodes,), device="cuda")

    def loss() -> torch.Tensor:
        h = F.relu(grid @ first(x))
        return F.cross_entropy(torch.addmm(second(h), grid, second(h)), labels)

    return training_step(loss, [*first.parameters(), *second.parameters()])


def own_loop(*, batch_size: int = 256, width: int = 512, most: int = 6) -> Step:
    """Control flow as an operator: a branch, a loop, and a scan of an associative rule."""
    from torch._higher_order_ops.associative_scan import associative_scan

    layer = nn.Linear(width, width).cuda()
    x = torch.randn(batch_size, 64, width, device="cuda")

    def both(a: tuple, b: tuple) -> tuple:
        return a[0] * b[0], b[0] * a[1] + b[1]

    def loss() -> torch.Tensor:
        made = layer(x)
        shares = torch.sigmoid(made)
        _, states = associative_scan(both, (shares, made), 1, combine_mode="generic")
        for _ in range(most):
            states = torch.cond(states.mean() > 1e9, lambda s: s * 2, lambda s: s.sin(), (states,))
        return F.mse_loss(states, x)

    return training_step(loss, layer.parameters())


def cached_words(
    *, batch_size: int = 8, prompt: int = 128, new: int = 24, width: int = 512
) -> Step:
    """Words are made one by one with a cache that grows, in inference mode; then it learns."""
    words = nn.Embedding(12_000, width).cuda()
    layers = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(4)).cuda()
    tokens = torch.randint(0, 12_000, (batch_size, prompt), device="cuda")

    def run(x: torch.Tensor, caches: list[Any]) -> torch.Tensor:
        for number, layer in enumerate(layers):
            q, k, v, gate = layer(F.rms_norm(x, (width,))).chunk(4, -1)
            heads = [part.unflatten(-1, (8, -1)).transpose(1, 2) for part in (q, k, v)]
            if caches[number] is not None:
                heads[1:] = [torch.cat(pair, 2) for pair in zip(caches[number], heads[1:])]
            caches[number] = heads[1:]
            made = F.scaled_dot_product_attention(*heads, is_causal=x.shape[1] > 1)
            x = x + F.silu(gate) * made.transpose(1, 2).flatten(2)
        return x @ words.weight.mT

    def loss() -> torch.Tensor:
        with torch.inference_mode():
            caches: list[Any] = [None] * 4
            row, text = tokens, [tokens]
            for _ in range(new):
                odds = (run(words(row), caches)[:, -1] / 0.8).softmax(-1)
                kept, places = odds.topk(50)
                row = places.gather(1, torch.multinomial(kept, 1))
                text.append(row)
        whole = torch.cat(text, 1).clone()
        logits = run(words(whole[:, :-1]), [None] * 4)
        return F.cross_entropy(30 * torch.tanh(logits / 30).flatten(0, 1), whole[:, 1:].flatten())

    return training_step(loss, [*words.parameters(), *layers.parameters()], autocast="bf16")


def prefetched(*, batch_size: int = 64, size: int = 64, accumulate: int = 3) -> Step:
    """Pictures come from pinned memory while the last ones are used; mixed, cut and dropped."""
    model = nn.Sequential(
        nn.Conv2d(3, 96, 3, padding=1), nn.BatchNorm2d(96), nn.SiLU(), nn.Dropout2d(0.1),
        nn.Conv2d(96, 96, 3, padding=1, groups=96), nn.Conv2d(96, 192, 1), nn.SiLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(192, 50),
    ).cuda()  # fmt: skip
    slow = copy.deepcopy(model).requires_grad_(False)
    waiting = [
        (torch.randint(0, 256, (batch_size, 3, size, size), dtype=torch.uint8).pin_memory(),
         torch.randint(0, 50, (batch_size,)).pin_memory())
        for _ in range(2)
    ]  # fmt: skip
    update = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    share = torch.distributions.Beta(torch.tensor(0.4), torch.tensor(0.4))

    def step() -> torch.Tensor:
        update.zero_grad()
        for number in range(accumulate):
            raw, classes = waiting[number % 2]
            images = raw.cuda(non_blocking=True).float().div_(255)
            labels = F.one_hot(classes.cuda(non_blocking=True), 50).float()
            order, part = torch.randperm(batch_size, device="cuda"), float(share.sample())
            mixed = torch.lerp(images, images[order], 1 - part)
            mixed[:, :, 8:24, 8:24] = images[order, :, 8:24, 8:24]
            goal = torch.lerp(labels, labels[order], 1 - part)
            loss = F.cross_entropy(model(mixed), goal) / accumulate
            loss = loss + F.mse_loss(model(images).softmax(1), slow(mixed).softmax(1))
            loss.backward()
        update.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(slow.parameters()), list(model.parameters()), 0.01)
        return loss.detach()

    return step


def transposed_volumes(*, batch_size: int = 2, size: int = 32, width: int = 48) -> Step:
    """A variational autoencoder of volumes, channels last, all in bfloat16."""
    down = nn.Sequential(
        nn.Conv3d(1, width, 4, 2, 1), nn.GroupNorm(8, width), nn.ELU(),
        nn.Conv3d(width, 2 * width, 4, 2, 1, groups=2), nn.GroupNorm(8, 2 * width), nn.ELU(),
        nn.Conv3d(2 * width, 32, 1),
    )  # fmt: skip
    up = nn.Sequential(
        nn.ConvTranspose3d(16, 2 * width, 3, 2, 1, output_padding=1), nn.ELU(),
        nn.ConvTranspose3d(2 * width, width, 4, 2, 1, groups=4), nn.ELU(),
        nn.Conv3d(width, 1, 3, padding=2, dilation=2),
    )  # fmt: skip
    both = nn.ModuleList([down, up]).cuda().bfloat16().to(memory_format=torch.channels_last_3d)
    x = torch.rand(batch_size, 1, size, size, size, device="cuda", dtype=torch.bfloat16)
    x = x.to(memory_format=torch.channels_last_3d)

    def loss() -> torch.Tensor:
        mean, log = down(x).chunk(2, 1)
        drawn = mean + torch.randn_like(mean) * (0.5 * log).exp()
        apart = -0.5 * (1 + log - mean.square() - log.exp()).float().mean()
        return F.binary_cross_entropy_with_logits(up(drawn), x) + 1e-3 * apart

    return training_step(loss, both.parameters())


def projected_cells(
    *, batch_size: int = 48, length: int = 160, width: int = 384, project: int = 128
) -> Step:
    """Stacked cells in both directions, whose states are projected, under autocast."""
    cells = nn.LSTM(80, width, 3, batch_first=True, bidirectional=True, dropout=0.2,
                    proj_size=project).cuda()  # fmt: skip
    head = nn.Linear(2 * project, 40).cuda()
    x = torch.randn(batch_size, length, 80, device="cuda")
    labels = torch.randint(0, 40, (batch_size, length), device="cuda")

    def loss() -> torch.Tensor:
        made, _ = cells(x)
        return F.cross_entropy(head(made).flatten(0, 1), labels.flatten(), ignore_index=0)

    return training_step(loss, [*cells.parameters(), *head.parameters()])


def clip_of_views(*, batch_size: int = 32, length: int = 48, width: int = 384) -> Step:
    """Pictures and words: a patch encoder, a masked one, and a loss over all pairs by parts."""
    patch = nn.Conv2d(3, width, 16, 16).cuda()
    layer = nn.TransformerEncoderLayer(width, 6, 4 * width, 0.0, F.gelu, batch_first=True,
                                       norm_first=True, bias=False)  # fmt: skip
    sees = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).cuda()
    reads = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).cuda()
    words = nn.Embedding(9000, width, padding_idx=0).cuda()
    scale = nn.Parameter(torch.tensor(2.0, device="cuda"))
    images = torch.rand(batch_size, 3, 160, 160, device="cuda")
    tokens = torch.randint(0, 9000, (batch_size, length), device="cuda")
    tokens[:, 30:] = 0

    def loss() -> torch.Tensor:
        seen = sees(patch(images).flatten(2).mT).mean(1)
        read = reads(words(tokens), src_key_padding_mask=tokens == 0)[:, 0]
        near = scale.exp() * F.normalize(seen) @ F.normalize(read).mT
        signs = 2 * torch.eye(batch_size, device="cuda") - 1
        return -sum(F.logsigmoid(s * n).sum() for s, n in zip(signs.chunk(4), near.chunk(4)))

    every = nn.ModuleList([patch, sees, reads, words])
    return training_step(
        loss,
        [*every.parameters(), scale],
        autocast="fp16",
        scale_loss=True,
        optimizer="adamw-fused",
    )


def blurred_levels(*, batch_size: int = 8, size: int = 160) -> Step:
    """A pyramid of differences, edges, total variation and a histogram in the loss."""
    net = nn.Sequential(
        nn.ReflectionPad2d(1), nn.Conv2d(3, 48, 3), nn.PReLU(), nn.Upsample(scale_factor=2),
        nn.Conv2d(48, 48, 5, padding=2, groups=16), nn.Tanhshrink(), nn.AvgPool2d(2),
        nn.ZeroPad2d(1), nn.Conv2d(48, 3, 3),
    ).cuda()  # fmt: skip
    images = torch.rand(batch_size, 3, size, size, device="cuda")
    line = torch.tensor([1.0, 4, 6, 4, 1], device="cuda") / 16
    kernel = torch.outer(line, line).expand(3, 1, 5, 5)
    centers = torch.linspace(0, 1, 24, device="cuda")

    def levels(x: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for _ in range(3):
            soft = F.conv2d(F.pad(x, (2, 2, 2, 2), "reflect"), kernel, groups=3)
            found.append(x - soft)
            x = soft[..., ::2, ::2]
        return [*found, x]

    def loss() -> torch.Tensor:
        made = net(images)
        apart = sum(F.l1_loss(a, b) for a, b in zip(levels(made), levels(images)))
        rough = made.diff(dim=-1).abs().mean() + made.diff(dim=-2).abs().mean()
        near = (-((made.mean(1)[..., ::4, ::4, None] - centers) ** 2) * 200).exp()
        return apart + 0.1 * rough + near.mean((1, 2)).var() + torch.histc(made, 10).std() * 1e-6

    return training_step(loss, net.parameters(), optimizer="adamw-foreach")
