"""Other ways to learn: recommendation, meta-learning, privacy, reinforcement, host memory."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from vramcast_zoo.suites.training import training_step

Step = Callable[[], torch.Tensor]


def recommendation(
    *, batch_size: int = 2048, tables: int = 8, rows: int = 200_000, width: int = 64
) -> Step:
    """DLRM: bags of embeddings with sparse gradients beside a dense network."""
    bags = nn.ModuleList(
        nn.EmbeddingBag(rows, width, mode="sum", sparse=True) for _ in range(tables)
    ).cuda()
    bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, width), nn.ReLU()).cuda()
    pairs = (tables + 1) * tables // 2
    top = nn.Sequential(nn.Linear(width + pairs, 512), nn.ReLU(), nn.Linear(512, 1)).cuda()
    dense = torch.optim.Adagrad([*bottom.parameters(), *top.parameters()], lr=0.01)
    sparse = torch.optim.SparseAdam(bags.parameters(), lr=0.001)
    numbers = torch.randn(batch_size, 13, device="cuda")
    which = torch.randint(0, rows, (tables, batch_size, 4), device="cuda")
    clicked = torch.randint(0, 2, (batch_size,), device="cuda").float()
    lower = torch.tril_indices(tables + 1, tables + 1, offset=-1, device="cuda")

    def step() -> torch.Tensor:
        for update in (dense, sparse):
            update.zero_grad()
        first = bottom(numbers)
        both = torch.stack([first, *(bag(ids) for bag, ids in zip(bags, which))], 1)
        crossed = (both @ both.transpose(1, 2))[:, lower[0], lower[1]]
        score = top(torch.cat([first, crossed], 1)).squeeze(1)
        loss = F.binary_cross_entropy_with_logits(score, clicked)
        loss.backward()
        for update in (dense, sparse):
            update.step()
        return loss.detach()

    return step


def meta_learning(*, tasks: int = 16, shots: int = 25, inner_steps: int = 3) -> Step:
    """MAML with torch.func: the update of the inner loop is differentiated."""
    from torch.func import functional_call, grad, vmap

    model = nn.Sequential(
        *[
            layer
            for i in (3, 32, 32, 32)
            for layer in (
                nn.Conv2d(i, 32, 3, padding=1),
                nn.GroupNorm(4, 32),
                nn.ReLU(),
                nn.MaxPool2d(2),
            )
        ],
        nn.Flatten(),
        nn.Linear(32 * 25, 5),
    ).cuda()
    images = torch.randn(tasks, 2, shots, 3, 84, 84, device="cuda")
    labels = torch.randint(0, 5, (tasks, 2, shots), device="cuda")

    def error(weights, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(functional_call(model, weights, (x,)), y)

    def after_adapting(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        weights = dict(model.named_parameters())
        for _ in range(inner_steps):
            slopes = grad(error)(weights, x[0], y[0])
            weights = {name: w - 0.01 * slopes[name] for name, w in weights.items()}
        return error(weights, x[1], y[1])

    return training_step(lambda: vmap(after_adapting)(images, labels).mean(), model.parameters())


def private(*, batch_size: int = 256) -> Step:
    """A gradient for every sample, clipped each, with opacus."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    model = GradSampleModule(
        nn.Sequential(
            nn.Conv2d(1, 16, 8, 2, 3),
            nn.ReLU(),
            nn.MaxPool2d(2, 1),
            nn.Conv2d(16, 32, 4, 2),
            nn.ReLU(),
            nn.MaxPool2d(2, 1),
            nn.Flatten(),
            nn.Linear(32 * 16, 32),
            nn.ReLU(),
            nn.Linear(32, 10),
        ).cuda()
    )
    update = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        expected_batch_size=batch_size,
    )
    images = torch.randn(batch_size, 1, 28, 28, device="cuda")
    labels = torch.randint(0, 10, (batch_size,), device="cuda")

    def step() -> torch.Tensor:
        update.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        update.step()
        return loss.detach()

    return step


def proximal_policy(*, steps: int = 128, actors: int = 64) -> Step:
    """PPO on frames of a game: collects with no gradient, then learns in minibatches."""
    body = nn.Sequential(
        nn.Conv2d(4, 32, 8, 4),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, 2),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(3136, 512),
        nn.ReLU(),
    )
    model = nn.ModuleList([body, nn.Linear(512, 6), nn.Linear(512, 1)]).cuda()
    update = torch.optim.Adam(model.parameters(), 2.5e-4, eps=1e-5)
    frames = torch.rand(steps, actors, 4, 84, 84, device="cuda")

    def act(seen: torch.Tensor) -> tuple[torch.distributions.Categorical, torch.Tensor]:
        hidden = model[0](seen)
        return torch.distributions.Categorical(logits=model[1](hidden)), model[2](hidden).squeeze(1)

    def step() -> torch.Tensor:
        chosen, expected, values = [], [], []
        with torch.no_grad():
            for seen in frames:
                policy, value = act(seen)
                action = policy.sample()
                chosen.append(action)
                expected.append(policy.log_prob(action))
                values.append(value)
        actions, before, worth = (torch.stack(x).flatten() for x in (chosen, expected, values))
        gain = torch.randn_like(worth)
        for rows in torch.randperm(steps * actors, device="cuda").chunk(4):
            policy, value = act(frames.flatten(0, 1)[rows])
            ratio = (policy.log_prob(actions[rows]) - before[rows]).exp()
            better = torch.min(ratio * gain[rows], ratio.clamp(0.9, 1.1) * gain[rows]).mean()
            error = F.mse_loss(value, worth[rows] + gain[rows])
            loss = error - better - 0.01 * policy.entropy().mean()
            update.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            update.step()
        return loss.detach()

    return step


def sharpness_aware(*, batch_size: int = 128, width: int = 128) -> Step:
    """SAM: two passes a step, the second from weights moved uphill."""
    model = nn.Sequential(
        nn.Conv2d(3, width, 3, 1, 1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, 2, 1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 10),
    ).cuda()
    update = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images = torch.randn(batch_size, 3, 32, 32, device="cuda")
    labels = torch.randint(0, 10, (batch_size,), device="cuda")

    def step() -> torch.Tensor:
        update.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
        with torch.no_grad():
            moves = [0.05 * p.grad / (norm + 1e-12) for p in model.parameters()]
            torch._foreach_add_(list(model.parameters()), moves)
        update.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        with torch.no_grad():
            torch._foreach_sub_(list(model.parameters()), moves)
        update.step()
        return loss.detach()

    return step


def activations_on_the_host(*, batch_size: int = 16, width: int = 1024, depth: int = 12) -> Step:
    """What backward needs waits in the host's memory."""
    model = nn.Sequential(
        *[
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(depth)
        ]
    ).cuda()
    x = torch.randn(batch_size, 512, width, device="cuda")

    def loss() -> torch.Tensor:
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            return model(x).square().mean()

    return training_step(loss, model.parameters())


def two_streams(*, batch_size: int = 64, width: int = 1024) -> Step:
    """The next batch is copied on a stream of its own while this one is used."""
    model = nn.Sequential(
        nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
    ).cuda()
    update = torch.optim.AdamW(model.parameters())
    on_host = torch.randn(batch_size * 64, width).pin_memory()
    copying = torch.cuda.Stream()
    waiting: list[torch.Tensor] = []

    def fetch() -> None:
        with torch.cuda.stream(copying):
            waiting.append(on_host.to("cuda", non_blocking=True))

    fetch()

    def step() -> torch.Tensor:
        torch.cuda.current_stream().wait_stream(copying)
        batch = waiting.pop()
        batch.record_stream(torch.cuda.current_stream())
        fetch()
        update.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        update.step()
        return loss.detach()

    return step


def tabular(*, batch_size: int = 4096, features: int = 100) -> Step:
    """A transformer over the columns of a table, every column a token."""
    scale = nn.Parameter(torch.randn(features, 192, device="cuda"))
    layer = nn.TransformerEncoderLayer(192, 8, 256, 0.1, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).cuda()
    head = nn.Linear(192, 1).cuda()
    rows = torch.randn(batch_size, features, device="cuda")

    def loss() -> torch.Tensor:
        return head(model(rows[..., None] * scale)[:, -1]).square().mean()

    return training_step(loss, [scale, *model.parameters(), *head.parameters()], autocast="bf16")


def point_cloud(*, batch_size: int = 16, points: int = 1024, neighbours: int = 20) -> Step:
    """DGCNN: the nearest neighbours are looked for in every layer."""
    convolutions = nn.ModuleList(
        nn.Sequential(nn.Conv2d(2 * i, o, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.2))
        for i, o in ((3, 64), (64, 64), (64, 128), (128, 256))
    ).cuda()
    head = nn.Linear(512, 40).cuda()
    clouds = torch.randn(batch_size, 3, points, device="cuda")
    labels = torch.randint(0, 40, (batch_size,), device="cuda")
    batch = torch.arange(batch_size, device="cuda")[:, None, None]

    def around(x: torch.Tensor) -> torch.Tensor:
        rows = x.transpose(1, 2)
        nearest = torch.cdist(rows, rows).topk(neighbours, largest=False).indices
        others = rows[batch, nearest]
        own = rows[:, :, None].expand_as(others)
        return torch.cat([others - own, own], -1).permute(0, 3, 1, 2).contiguous()

    def loss() -> torch.Tensor:
        x, found = clouds, []
        for convolution in convolutions:
            x = convolution(around(x)).amax(-1)
            found.append(x)
        return F.cross_entropy(head(torch.cat(found, 1).amax(-1)), labels)

    everything = nn.ModuleList([convolutions, head])
    return training_step(loss, everything.parameters(), optimizer="sgd")
