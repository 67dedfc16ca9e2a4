"""Habits of loops: repeatable runs, saved weights, emptied caches, scripts, populations."""

from __future__ import annotations

import copy
import gc
import io
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from vramcast_zoo.suites.training import training_step
from vramcast_zoo.suites.wide.everyday import lines_of, pictures_of

Step = Callable[[], torch.Tensor]


def strategies(*, members: int = 256, width: int = 256, samples: int = 64) -> Step:
    """Evolution strategies: a population by vmap, ranks as gains, no backward pass."""
    net = nn.Sequential(nn.Linear(32, width), nn.Tanh(), nn.Linear(width, 8)).cuda()
    weights = {k: v.detach() for k, v in net.named_parameters()}
    x, y = torch.randn(samples, 32, device="cuda"), torch.randn(samples, 8, device="cuda")
    update = torch.optim.Adam(list(weights.values()), lr=1e-2)

    def fit(p: dict) -> torch.Tensor:
        return F.mse_loss(torch.func.functional_call(net, p, (x,)), y)

    @torch.no_grad()
    def step() -> torch.Tensor:
        noise = {k: torch.randn(members, *v.shape, device="cuda") for k, v in weights.items()}
        around = {k: v + 0.05 * noise[k] for k, v in weights.items()}
        losses = torch.vmap(fit)(around)
        ranks = losses.argsort().argsort().float() / (members - 1) - 0.5
        for k, v in weights.items():
            v.grad = torch.tensordot(ranks, noise[k], 1) / members
        update.step()
        return losses.mean()

    return step


def many_at_once(*, members: int = 8, batch_size: int = 64, size: int = 28) -> Step:
    """An ensemble in one pass: weights are stacked, vmap over functional_call."""
    nets = [
        nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3, 2), nn.GroupNorm(8, 64),
                      nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(1024, 10)).cuda()
        for _ in range(members)
    ]  # fmt: skip
    weights, buffers = torch.func.stack_module_state(nets)
    shell = copy.deepcopy(nets[0]).to("meta")
    x = torch.rand(batch_size, 1, size, size, device="cuda")
    labels = torch.randint(0, 10, (batch_size,), device="cuda")

    def one(p: dict, b: dict, x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(shell, (p, b), (x,))

    def loss() -> torch.Tensor:
        made = torch.vmap(one, (0, 0, None))(weights, buffers, x)
        return F.cross_entropy(made.flatten(0, 1), labels.repeat(members))

    return training_step(loss, list(weights.values()))


def words_near_words(*, batch_size: int = 4096, words: int = 200_000, width: int = 128) -> Step:
    """word2vec: pairs and drawn negatives, sparse gradients, SparseAdam."""
    center = nn.Embedding(words, width, sparse=True).cuda()
    around = nn.Embedding(words, width, sparse=True).cuda()
    update = torch.optim.SparseAdam([*center.parameters(), *around.parameters()], lr=1e-3)
    often = torch.rand(words, device="cuda").pow(0.75)
    pairs = torch.randint(0, words, (2, 50 * batch_size), device="cuda")

    def step() -> torch.Tensor:
        at = torch.randint(0, pairs.shape[1] - batch_size, (1,)).item()
        a, b = pairs[:, at : at + batch_size]
        drawn = torch.multinomial(often, batch_size * 10, replacement=True).view(-1, 10)
        h = center(a)
        near = F.logsigmoid((h * around(b)).sum(-1))
        far = F.logsigmoid(-torch.bmm(around(drawn), h.unsqueeze(-1)).squeeze(-1)).sum(-1)
        loss = -(near + far).mean()
        update.zero_grad()
        loss.backward()
        update.step()
        return loss.detach()

    return step


def same_every_time(*, batch_size: int = 16, size: int = 96) -> Step:
    """Deterministic algorithms, cuDNN's too, and neither TF32: as people make runs repeatable."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    table = nn.Embedding(500, 64).cuda()
    net = nn.Sequential(
        lines_of(3, 64, 2), lines_of(64, 128, 2), nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.ReLU(),
        nn.Conv2d(64, 64, 5, padding=2), nn.ReLU(), nn.Conv2d(64, 12, 1),
    ).cuda()  # fmt: skip
    images, _ = pictures_of(batch_size, size)
    labels = torch.randint(0, 12, (batch_size, size // 2, size // 2), device="cuda")
    ids = torch.randint(0, 500, (batch_size, 200), device="cuda")

    def loss() -> torch.Tensor:
        made = net(images)
        counts = torch.zeros(500, 64, device="cuda").index_add(
            0, ids.flatten(), table(ids).flatten(0, 1)
        )
        picked = counts[ids[:, :50]].cumsum(1)
        big = F.interpolate(made, scale_factor=2, mode="nearest").mean()
        return F.cross_entropy(made, labels) + picked.square().mean() + big

    return training_step(loss, [*net.parameters(), *table.parameters()], optimizer="sgd")


def double_precision(*, batch_size: int = 16, size: int = 48) -> Step:
    """Everything in double precision, as for checks of gradients and for physics."""
    net = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.Softplus(),
        nn.Conv2d(32, 64, 3, 2, 1), nn.Softplus(), nn.Conv2d(64, 64, 3, 2, 1, groups=4), nn.Tanh(),
        nn.AdaptiveAvgPool2d(6), nn.Flatten(), nn.Linear(64 * 36, 256), nn.LayerNorm(256),
        nn.GELU(), nn.Linear(256, 10),
    ).cuda().double()  # fmt: skip
    images, labels = pictures_of(batch_size, size)
    return training_step(lambda: F.cross_entropy(net(images.double()), labels), net.parameters())


def tidy_loop(*, batch_size: int = 32, size: int = 64) -> Step:
    """After three batches: an evaluation, weights saved and loaded, and an emptied cache."""
    net = nn.Sequential(
        lines_of(3, 64), nn.MaxPool2d(2), lines_of(64, 128), nn.MaxPool2d(2), lines_of(128, 256),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.3), nn.Linear(256, 10),
    ).cuda()  # fmt: skip
    images, labels = pictures_of(4 * batch_size, size)
    update = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    plan = torch.optim.lr_scheduler.OneCycleLR(update, 0.1, total_steps=10_000)

    def step() -> torch.Tensor:
        net.train()
        for x, y in zip(images.split(batch_size)[:3], labels.split(batch_size)):
            update.zero_grad()
            loss = F.cross_entropy(net(x), y, label_smoothing=0.1)
            loss.backward()
            update.step()
            plan.step()
        net.eval()
        with torch.inference_mode():
            right = (net(images).argmax(1) == labels).float().mean()
        file = io.BytesIO()
        torch.save({"model": net.state_dict(), "update": update.state_dict()}, file)
        file.seek(0)
        net.load_state_dict(torch.load(file, map_location="cuda")["model"])
        gc.collect()
        torch.cuda.empty_cache()
        return loss.detach() + 0 * right

    return step


def thawed(*, batch_size: int = 16, size: int = 96) -> Step:
    """A network of torchvision whose last layers learn first, then more; features by hooks."""
    import torchvision

    net = torchvision.models.resnet34(weights=None).cuda()
    parts = [net.layer4, net.layer3, net.layer2]
    seen: dict[str, torch.Tensor] = {}
    net.layer3.register_forward_hook(lambda _m, _i, o: seen.update(mid=o))
    head = nn.Conv2d(256, 4, 1).cuda()
    images, labels = pictures_of(batch_size, size, 1000)
    update = torch.optim.AdamW([*net.parameters(), *head.parameters()], lr=1e-4)
    done = 0

    def step() -> torch.Tensor:
        nonlocal done
        net.requires_grad_(False)
        net.fc.requires_grad_(True)
        for part in parts[: done + 1]:
            part.requires_grad_(True)
        done += 1
        update.zero_grad()
        loss = F.cross_entropy(net(images), labels) + head(seen["mid"]).square().mean()
        loss.backward()
        update.step()
        return loss.detach()

    return step


def scripted(*, batch_size: int = 32, length: int = 64, width: int = 256) -> Step:
    """A traced and a scripted module, trained as people did before torch.compile."""

    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(width, width), nn.Linear(width, width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = torch.zeros_like(x[0])
            for i in range(x.size(0)):
                h = torch.tanh(self.a(x[i]) + self.b(h))
            return h

    x = torch.randn(length, batch_size, width, device="cuda")
    rolled = torch.jit.script(Cell().cuda())
    after = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, 10)).cuda()
    traced = torch.jit.trace(after, torch.randn(batch_size, width, device="cuda"))
    labels = torch.randint(0, 10, (batch_size,), device="cuda")
    return training_step(
        lambda: F.cross_entropy(traced(rolled(x)), labels),
        [*rolled.parameters(), *traced.parameters()],
    )


def scores_and_slices(*, batch_size: int = 256, width: int = 512) -> Step:
    """Sliced score matching of a small network, with an exact trace for some, and a mixture."""
    net = nn.Sequential(
        nn.Linear(64, width), nn.Softplus(), nn.Linear(width, width), nn.Softplus(),
        nn.Linear(width, 64),
    ).cuda()  # fmt: skip
    x = torch.randn(batch_size, 64, device="cuda")

    def loss() -> torch.Tensor:
        at = x.clone().requires_grad_()
        score, v = net(at), torch.randn(4, *x.shape, device="cuda")
        (turn,) = torch.autograd.grad(score, at, v, create_graph=True, is_grads_batched=True)
        sliced = (turn * v).sum(-1).mean() + 0.5 * score.square().sum(-1).mean()
        whole = torch.func.vmap(torch.func.jacfwd(net))(x[:16])
        trace = torch.diagonal(whole, dim1=-2, dim2=-1).sum(-1).mean()
        return sliced + 0.01 * trace

    return training_step(loss, net.parameters())
