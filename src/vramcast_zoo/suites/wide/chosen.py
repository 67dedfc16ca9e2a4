"""Steps whose sizes a network decides: what it is sure of, what it chooses, when it stops."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from vramcast_zoo.suites.training import training_step

Step = Callable[[], torch.Tensor]


def mlp(*widths: int, last: bool = False) -> nn.Sequential:
    layers: list[nn.Module] = []
    for one, other in zip(widths, widths[1:], strict=False):
        layers += [nn.Linear(one, other), nn.GELU()]
    return nn.Sequential(*layers[: None if last else -1])


def texts_that_end(*, batch_size: int = 256, longest: int = 24, width: int = 256) -> Step:
    """Texts are drawn word by word from the likeliest ones, until each ends; then good ones are
    made likelier."""
    words = 64
    table, body = nn.Embedding(words, width).cuda(), mlp(2 * width, 4 * width, width).cuda()
    says = nn.Linear(width, words).cuda()
    torch.nn.init.normal_(says.weight, std=0.3)

    def go_on(state: torch.Tensor, word: torch.Tensor) -> torch.Tensor:
        return F.normalize(body(torch.cat([state, table(word)], 1)), dim=1)

    def draw() -> tuple[torch.Tensor, torch.Tensor]:
        texts = torch.randint(1, words, (batch_size, 1), device="cuda")
        state = torch.zeros(batch_size, width, device="cuda")
        ended = torch.zeros(batch_size, dtype=torch.bool, device="cuda")
        while texts.shape[1] < longest and not ended.all():
            state = go_on(state, texts[:, -1])
            chances, order = says(state).mul(4).softmax(-1).sort(descending=True)
            chances[chances.cumsum(-1) - chances > 0.9] = 0
            word = order.gather(1, torch.multinomial(chances, 1))[:, 0].masked_fill(ended, 0)
            ended = ended | (word < 6)
            texts = torch.cat([texts, word[:, None]], 1)
        return texts, (texts > 0).sum(1)

    def loss() -> torch.Tensor:
        with torch.no_grad():
            texts, lengths = draw()
        state, total = torch.zeros(batch_size, width, device="cuda"), 0
        for at in range(1, texts.shape[1]):
            left = at < lengths
            state, texts, lengths = state[left], texts[left], lengths[left]
            state = go_on(state, texts[:, at - 1])
            total = total + F.cross_entropy(says(state), texts[:, at], reduction="sum")
        return total / batch_size

    return training_step(loss, nn.ModuleList([table, body, says]).parameters())


def hardest_again(*, batch_size: int = 2048, width: int = 512) -> Step:
    """All are looked at; those with a loss above the mean and half a deviation are learnt."""
    net = mlp(128, width, width, 20).cuda()
    data = torch.randn(16 * batch_size, 128, device="cuda")
    labels = torch.randint(0, 20, (len(data),), device="cuda")

    def loss() -> torch.Tensor:
        rows = torch.randint(0, len(data), (batch_size,), device="cuda")
        x, y = data[rows], labels[rows]
        with torch.no_grad():
            seen = F.cross_entropy(net(x), y, reduction="none")
        hard = seen > seen.mean() + seen.std() / 2
        return F.cross_entropy(net(x[hard]), y[hard])

    return training_step(loss, net.parameters())


def routed(*, tokens: int = 2048, width: int = 256, experts: int = 8) -> Step:
    """A learned router gives every token to two experts; who is full leaves tokens out."""
    router = nn.Linear(width, experts, bias=False).cuda()
    nn.init.normal_(router.weight, std=0.2)
    nets = nn.ModuleList([mlp(width, 4 * width, width) for _ in range(experts)]).cuda()
    x = torch.randn(tokens, width, device="cuda") + torch.randn(width, device="cuda")
    room = int(1.25 * 2 * tokens / experts)

    def loss() -> torch.Tensor:
        shares = router(x).softmax(-1)
        best, chosen = shares.topk(2, -1)
        out = torch.zeros_like(x)
        for number, net in enumerate(nets):
            token, place = (chosen == number).nonzero(as_tuple=True)
            token, place = token[:room], place[:room]
            if len(token):
                out = out.index_add(0, token, net(x[token]) * best[token, place, None])
        used = F.one_hot(chosen, experts).float().mean((0, 1))
        return F.mse_loss(out, x) + experts * (used * shares.mean(0)).sum()

    return training_step(loss, [*router.parameters(), *nets.parameters()])


def unsure_points(*, batch_size: int = 8, size: int = 96, width: int = 24) -> Step:
    """Pixels that a coarse network is not sure of are looked at by a finer one."""
    coarse = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
    ).cuda()  # fmt: skip
    says, finer = nn.Conv2d(width, 1, 1).cuda(), mlp(width + 3, 256, 256, 1).cuda()
    nn.init.normal_(says.weight, std=0.5)
    pictures = torch.rand(batch_size, 3, size, size, device="cuda")
    wanted = (pictures.mean(1) > 0.5).float()

    def loss() -> torch.Tensor:
        seen = coarse(pictures)
        first = says(seen)[:, 0]
        picture, row, column = (first.detach().sigmoid() - 0.5).abs().lt(0.04).nonzero().unbind(1)
        points = torch.cat([seen[picture, :, row, column], pictures[picture, :, row, column]], 1)
        again = finer(points)[:, 0]
        found = F.binary_cross_entropy_with_logits(again, wanted[picture, row, column])
        return F.binary_cross_entropy_with_logits(first, wanted) + found

    return training_step(loss, nn.ModuleList([coarse, says, finer]).parameters())


def stops_when_sure(*, batch_size: int = 1024, width: int = 384, most: int = 12) -> Step:
    """Every row is worked on until what it has halted by adds up to one."""
    enter, more = nn.Linear(64, width).cuda(), nn.Linear(64, width).cuda()
    halt, says = nn.Linear(width, 1).cuda(), nn.Linear(width, 10).cuda()
    nn.init.normal_(halt.weight, std=0.15)
    data = torch.randn(batch_size, 64, device="cuda")
    labels = torch.randint(0, 10, (batch_size,), device="cuda")

    def loss() -> torch.Tensor:
        x, y, state = data, labels, enter(data).tanh()
        left, total = torch.ones(batch_size, device="cuda"), torch.zeros((), device="cuda")
        for _ in range(most):
            state = F.gelu(state + more(x))
            by = torch.minimum(halt(state)[:, 0].sigmoid(), left)
            total = total + (by * F.cross_entropy(says(state), y, reduction="none")).sum()
            left = left - by
            going = left > 0.01
            if not going.any():
                break
            x, y, state, left = x[going], y[going], state[going], left[going]
        return total / batch_size

    return training_step(loss, nn.ModuleList([enter, more, halt, says]).parameters())


def let_through(*, wanted: int = 1500, width: int = 256) -> Step:
    """A generator's samples are drawn until a discriminator has let enough of them through."""
    make, judge = mlp(32, width, width, 64).cuda(), mlp(64, width, width, 1).cuda()
    nn.init.normal_(judge[-1].weight, std=0.5)
    real = torch.randn(wanted, 64, device="cuda")

    def loss() -> torch.Tensor:
        found: list[torch.Tensor] = []
        while sum(map(len, found)) < wanted:
            sample = make(torch.randn(1024, 32, device="cuda"))
            found.append(sample[judge(sample.detach())[:, 0].sigmoid() > 0.53])
            if len(found) > 30:
                break
        made = torch.cat(found)
        ones = torch.ones(len(made), 1, device="cuda")
        fools = F.binary_cross_entropy_with_logits(judge(made), ones)
        return fools + F.softplus(-judge(real)).mean() + F.softplus(judge(made.detach())).mean()

    return training_step(loss, [*make.parameters(), *judge.parameters()])


def small_detector(*, batch_size: int = 4, size: int = 160, width: int = 32) -> Step:
    """Boxes above a score, without those that overlap, are cut out and looked at again."""
    from torchvision.ops import nms, roi_align

    body = nn.Sequential(
        nn.Conv2d(3, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 2, 1), nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
    ).cuda()  # fmt: skip
    heads, says = nn.Conv2d(width, 5, 1).cuda(), mlp(width * 49, 512, 8).cuda()
    nn.init.normal_(heads.weight, std=0.4)
    pictures = torch.rand(batch_size, 3, size, size, device="cuda")
    side = torch.arange(size // 4, device="cuda") * 4.0
    at = torch.stack(torch.meshgrid(side, side, indexing="xy"), -1).view(-1, 2)

    def loss() -> torch.Tensor:
        seen = body(pictures)
        found = heads(seen).flatten(2).mT
        boxes, total = [], torch.zeros((), device="cuda")
        for one in found:
            likely = one[:, 4].sigmoid() > one[:, 4].sigmoid().mean()
            middle = at[likely] + 8 * one[likely, :2].tanh()
            half = 6 + 6 * one[likely, 2:4].sigmoid()
            corners = torch.cat([middle - half, middle + half], 1)
            kept = nms(corners.detach(), one[likely, 4].detach(), 0.4)
            boxes.append(corners[kept].detach())
            total = total + one[likely][kept, 4].mean()
        parts = roi_align(seen, boxes, 7, 0.25)
        return says(parts.flatten(1)).logsumexp(1).mean() + total

    return training_step(loss, nn.ModuleList([body, heads, says]).parameters())


def least_known(*, pool: int = 8192, width: int = 384) -> Step:
    """Of a pool those with the largest entropy are asked for and learnt, with dropout."""
    net = nn.Sequential(
        nn.Linear(64, width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, width), nn.ReLU(),
        nn.Dropout(0.2), nn.Linear(width, 12),
    ).cuda()  # fmt: skip
    nn.init.normal_(net[-1].weight, std=0.15)
    data = torch.randn(pool, 64, device="cuda")
    labels = (data[:, :12] + 0.1 * torch.randn(pool, 12, device="cuda")).argmax(1)

    def loss() -> torch.Tensor:
        net.eval()
        with torch.no_grad():
            shares = net(data).softmax(-1)
            entropy = -(shares * shares.clamp(min=1e-9).log()).sum(-1)
        net.train()
        asked = entropy > 0.9 * torch.log(torch.tensor(12.0))
        if asked.sum() < 64:
            asked = entropy >= entropy.topk(64).values[-1]
        return F.cross_entropy(net(data[asked]), labels[asked])

    return training_step(loss, net.parameters())


def wolfe(*, points: int = 4000, width: int = 96) -> Step:
    """L-BFGS with a line search by Wolfe's conditions, for a small network of curves."""
    net = nn.Sequential(
        nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
    ).cuda()
    x = torch.rand(points, 2, device="cuda")
    y = (3 * x[:, :1]).sin() * (2 * x[:, 1:]).cos()
    update = torch.optim.LBFGS(
        net.parameters(), max_iter=8, history_size=10, line_search_fn="strong_wolfe"
    )

    def closure() -> torch.Tensor:
        update.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        return loss

    def step() -> torch.Tensor:
        return update.step(closure).detach()

    return step


def own_labels(*, batch_size: int = 192, size: int = 32, width: int = 32) -> Step:
    """Pictures of which a network is sure without noise are learnt with noise."""
    net = nn.Sequential(
        nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.LeakyReLU(0.1),
        nn.Conv2d(width, 2 * width, 3, 2, 1), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.1),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8 * width, 10),
    ).cuda()  # fmt: skip
    nn.init.normal_(net[-1].weight, std=0.3)
    known = torch.rand(64, 3, size, size, device="cuda")
    labels = torch.randint(0, 10, (64,), device="cuda")

    def loss() -> torch.Tensor:
        x = torch.rand(7 * batch_size, 3, size, size, device="cuda")
        with torch.no_grad():
            share, guessed = net(x).softmax(-1).max(-1)
        sure = share > 0.5
        noisy = x[sure] + 0.1 * torch.randn_like(x[sure])
        found = F.cross_entropy(net(known), labels)
        return found + F.cross_entropy(net(noisy.flip(-1)), guessed[sure])

    return training_step(loss, net.parameters())


def near_in_features(*, clouds: int = 8, points: int = 128, width: int = 64) -> Step:
    """Edges between points whose learned features are near; they change with the weights."""
    enter, again = mlp(3, width, width).cuda(), mlp(2 * width, 2 * width, width).cuda()
    says = nn.Linear(width, 8).cuda()
    atoms = torch.randn(clouds, points, 3, device="cuda")
    labels = torch.randint(0, 8, (clouds,), device="cuda")

    def loss() -> torch.Tensor:
        x = enter(atoms)
        for _ in range(2):
            apart = (x.detach()[:, :, None] - x.detach()[:, None]).square().mean(-1)
            near = apart < apart.mean() / 3
            cloud, one, other = near.nonzero(as_tuple=True)
            sent = again(torch.cat([x[cloud, one], x[cloud, other] - x[cloud, one]], 1))
            flat = torch.zeros(clouds * points, width, device="cuda")
            x = (
                x
                + flat.index_add(0, cloud * points + one, sent).view_as(x) / near.sum(2)[..., None]
            )
        return F.cross_entropy(says(x.amax(1)), labels)

    return training_step(loss, nn.ModuleList([enter, again, says]).parameters())


def pruned_tokens(*, batch_size: int = 12, length: int = 128, width: int = 192) -> Step:
    """Tokens that get less attention than most leave the batch, which is packed by a mask."""
    to = nn.ModuleList([nn.Linear(width, 3 * width) for _ in range(3)]).cuda()
    after = nn.ModuleList([mlp(width, 4 * width, width) for _ in range(3)]).cuda()
    for one in to:
        nn.init.normal_(one.weight, std=0.12)
    says = nn.Linear(width, 10).cuda()
    data = torch.randn(batch_size, length, width, device="cuda")
    labels = torch.randint(0, 10, (batch_size,), device="cuda")

    def loss() -> torch.Tensor:
        x, there = data, torch.ones(batch_size, length, dtype=torch.bool, device="cuda")
        for one, more in zip(to, after, strict=True):
            q, k, v = one(F.layer_norm(x, (width,))).chunk(3, -1)
            looks = (q @ k.mT / width**0.5).masked_fill(~there[:, None], -1e9).softmax(-1)
            x = x + looks @ v
            seen = (looks.detach() * there[..., None]).sum(1)
            kept = (seen > 0.7) & there
            packed = more(x[kept])
            most = int(kept.sum(1).max())
            place = kept.cumsum(1) - 1
            rows = torch.arange(batch_size, device="cuda")[:, None].expand_as(kept)
            x = torch.zeros(batch_size, most, width, device="cuda").index_put(
                (rows[kept], place[kept]), packed
            )
            there = torch.arange(most, device="cuda") < kept.sum(1, keepdim=True)
        return F.cross_entropy(says(x.sum(1)), labels)

    return training_step(loss, nn.ModuleList([to, after, says]).parameters())


def largest_gradients(*, batch_size: int = 256, width: int = 1024, share: float = 3.0) -> Step:
    """Only what is large in a gradient is sent; the rest is kept for the next step."""
    net = mlp(256, width, width, 32).cuda()
    x = torch.randn(batch_size, 256, device="cuda")
    labels = torch.randint(0, 32, (batch_size,), device="cuda")
    kept = [torch.zeros_like(p) for p in net.parameters()]

    def step() -> torch.Tensor:
        loss = F.cross_entropy(net(x), labels)
        loss.backward()
        with torch.no_grad():
            sent = []
            for p, rest in zip(net.parameters(), kept, strict=True):
                rest += p.grad
                at = (rest.abs() > share * rest.std()).flatten().nonzero()[:, 0]
                sent.append((at, rest.flatten()[at].to(torch.bfloat16)))
                rest.view(-1)[at] = 0
                p.grad = None
            for p, (at, values) in zip(net.parameters(), sent, strict=True):
                p.view(-1).index_add_(0, at, values.float(), alpha=-0.1)
        return loss.detach()

    return step
