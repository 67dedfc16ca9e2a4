"""What people write in plain torch on any day: recipes of papers, and habits of their loops."""

from __future__ import annotations

import copy
import gc
import io
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from vramcast_zoo.suites.training import training_step

Step = Callable[[], torch.Tensor]


def _lines(i: int, o: int, stride: int = 1, size: int = 3) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(i, o, size, stride, size // 2, bias=False), nn.BatchNorm2d(o), nn.SiLU()
    )


def _pictures(batch_size: int, size: int, classes: int = 10) -> tuple[torch.Tensor, torch.Tensor]:
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
    stem = nn.Sequential(_lines(3, c[0], 2), _lines(c[0], c[1], 2))
    downs = nn.ModuleList(
        nn.Sequential(_lines(i, o, 2), _lines(o, o), _lines(o, o, size=1))
        for i, o in ((c[1], c[1]), (c[1], c[2]), (c[2], c[3]))
    )
    ups = nn.ModuleList([_lines(c[3] + c[2], c[2]), _lines(c[2] + c[1], c[1])])
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


def next_item(*, batch_size: int = 128, length: int = 50, items: int = 20_000) -> Step:
    """SASRec: what a user takes next, by torch's encoder with a causal mask and BPR."""
    table = nn.Embedding(items, 96, padding_idx=0)
    places = nn.Embedding(length, 96)
    layer = nn.TransformerEncoderLayer(96, 2, 192, 0.2, "gelu", batch_first=True, norm_first=True)
    body = nn.TransformerEncoder(layer, 2, nn.LayerNorm(96), enable_nested_tensor=False)
    every = nn.ModuleList([table, places, body]).cuda()
    seen = torch.randint(1, items, (batch_size, length + 1), device="cuda")
    seen[: batch_size // 2, : length // 3] = 0
    mask = nn.Transformer.generate_square_subsequent_mask(length, device="cuda")

    def loss() -> torch.Tensor:
        x = table(seen[:, :-1]) * 96**0.5 + places.weight
        h = body(F.dropout(x, 0.2), mask=mask, is_causal=True)
        other = torch.randint(1, items, (batch_size, length), device="cuda")
        good, bad = (h * table(seen[:, 1:])).sum(-1), (h * table(other)).sum(-1)
        return -F.logsigmoid(good - bad)[seen[:, 1:] > 0].mean()

    return training_step(loss, every.parameters())


def said_and_heard(*, batch_size: int = 32, length: int = 30, words: int = 6000) -> Step:
    """Translation by cells: a packed encoder, attention, and guesses fed back now and then."""
    enter = nn.Embedding(words, 256)
    reads = nn.GRU(256, 256, bidirectional=True, batch_first=True)
    cell, asks = nn.LSTMCell(256 + 512, 512), nn.Linear(512, 512)
    leave = nn.Linear(1024, words)
    every = nn.ModuleList([enter, reads, cell, asks, leave]).cuda()
    source, target = torch.randint(1, words, (2, batch_size, length), device="cuda")
    lengths = torch.linspace(length, length // 2, batch_size).long()
    mask = torch.arange(length, device="cuda") >= lengths.cuda()[:, None]

    def loss() -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(enter(source), lengths, batch_first=True)
        keys, _ = nn.utils.rnn.pad_packed_sequence(reads(packed)[0], batch_first=True)
        h = c = keys.new_zeros(batch_size, 512)
        word, seen, out = target[:, 0], keys.mean(1), []
        for i in range(1, length):
            h, c = cell(torch.cat([enter(word), seen], -1), (h, c))
            share = torch.bmm(keys, asks(h)[:, :, None]).squeeze(-1).masked_fill(mask, -1e9)
            seen = torch.bmm(share.softmax(-1)[:, None], keys).squeeze(1)
            out.append(leave(torch.cat([h, seen], -1)))
            word = out[-1].argmax(-1) if i % 4 == 0 else target[:, i]
        return F.cross_entropy(torch.stack(out, 1).flatten(0, 1), target[:, 1:].flatten())

    return training_step(loss, every.parameters())


def tape_of_memory(*, batch_size: int = 32, length: int = 20, slots: int = 128, width: int = 40):
    """A neural Turing machine: reads and writes by content and by shifts of an address."""
    brain = nn.LSTMCell(8 + width, 200)
    reads, writes = nn.Linear(200, width + 6), nn.Linear(200, 3 * width + 6)
    leave = nn.Linear(200 + width, 8)
    every = nn.ModuleList([brain, reads, writes, leave]).cuda()
    bits = torch.rand(length, batch_size, 8, device="cuda").round()

    def address(p: torch.Tensor, memory: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
        key, rest = p[:, :width].tanh(), p[:, width : width + 6]
        near = F.cosine_similarity(memory + 1e-8, key[:, None] + 1e-8, dim=-1)
        by = (F.softplus(rest[:, :1]) * near).softmax(-1)
        by = torch.lerp(old, by, rest[:, 1:2].sigmoid())
        turns = rest[:, 2:5].softmax(-1)
        moved = sum(torch.roll(by, k - 1, 1) * turns[:, k : k + 1] for k in range(3))
        sharp = moved.clamp(min=1e-6) ** (1 + F.softplus(rest[:, 5:]))
        return sharp / sharp.sum(-1, True)

    def loss() -> torch.Tensor:
        memory = torch.full((batch_size, slots, width), 1e-6, device="cuda")
        at = to = torch.zeros(batch_size, slots, device="cuda").index_fill(
            1, torch.tensor([0], device="cuda"), 1.0
        )
        read = memory[:, 0]
        state, out = None, []
        for x in torch.cat([bits, torch.zeros_like(bits)]):
            state = brain(torch.cat([x, read], -1), state)
            w = writes(state[0])
            to = address(w, memory, to)
            wiped, added = w[:, width + 6 :].chunk(2, -1)
            memory = memory * (1 - to[..., None] * wiped.sigmoid()[:, None])
            memory = memory + to[..., None] * added.tanh()[:, None]
            at = address(reads(state[0]), memory, at)
            read = torch.bmm(at[:, None], memory).squeeze(1)
            out.append(leave(torch.cat([state[0], read], -1)))
        return F.binary_cross_entropy_with_logits(torch.stack(out[length:]), bits)

    return training_step(loss, every.parameters())


class _Turns(nn.Module):
    """Attention as several papers have it, in blocks of one text model."""

    def __init__(self, kind: str, width: int, heads: int) -> None:
        super().__init__()
        self.kind, self.heads = kind, heads
        if kind == "latent":
            self.down, self.up = nn.Linear(width, width // 4), nn.Linear(width // 4, 2 * width)
            self.ask, self.norm = nn.Linear(width, width), nn.RMSNorm(width // 4)
        else:
            self.qkv = nn.Linear(width, 3 * width, bias=False)
        if kind == "delta":
            self.rate = nn.Linear(width, heads)
        self.share = nn.Parameter(torch.full((heads, 1, 1), 0.3))
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, w = x.shape
        if self.kind == "latent":
            k, v = self.up(self.norm(self.down(x))).chunk(2, -1)
            q = self.ask(x)
        else:
            q, k, v = self.qkv(x).chunk(3, -1)
        q, k, v = (y.view(b, n, self.heads, -1).transpose(1, 2) for y in (q, k, v))
        if self.kind == "latent":
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        elif self.kind == "difference":
            halves = zip(q.chunk(2, -1), k.chunk(2, -1))
            a, c = (F.scaled_dot_product_attention(i, j, v, is_causal=True) for i, j in halves)
            y = F.rms_norm(a - self.share * c, (a.shape[-1],)) * 0.2
        elif self.kind == "retention":
            decay = torch.log(1 - 2.0 ** (-5 - torch.arange(self.heads, device=x.device)))
            ages = torch.arange(n, device=x.device)
            ages = (ages[:, None] - ages).clamp(min=0)
            fade = torch.exp(decay[:, None, None] * ages).tril()
            y = F.rms_norm((q @ k.mT * q.shape[-1] ** -0.5 * fade.to(q.dtype)) @ v, (v.shape[-1],))
        else:
            y = self._delta(q, k, v, self.rate(x).sigmoid().transpose(1, 2)[..., None])
        return self.out(y.transpose(1, 2).reshape(b, n, w))

    def _delta(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rate: torch.Tensor
    ) -> torch.Tensor:
        """The delta rule in pieces of 64 tokens, each solved as a triangular system."""
        k, size = F.normalize(k.float(), dim=-1), 64
        q, v, rate = q.float(), v.float(), rate.float()
        q, k, v, rate = (y.unflatten(2, (-1, size)) for y in (q, k, v, rate))
        eye = torch.eye(size, device=q.device)
        low = (rate * k @ k.mT).tril(-1) + eye
        w = torch.linalg.solve_triangular(low, rate * k, upper=False)
        u = torch.linalg.solve_triangular(low, rate * v, upper=False)
        state, out = torch.zeros_like(k[:, :, 0].mT @ v[:, :, 0]), []
        for i in range(q.shape[2]):
            new = u[:, :, i] - w[:, :, i] @ state
            inner = (q[:, :, i] @ k[:, :, i].mT).tril()
            out.append(q[:, :, i] @ state + inner @ new)
            state = state + k[:, :, i].mT @ new
        return torch.cat(out, 2)


def other_attention(
    *,
    kind: str = "latent",
    batch_size: int = 4,
    length: int = 512,
    width: int = 512,
    depth: int = 4,
) -> Step:
    """A text model with latent, differential or retentive attention, or the delta rule."""
    blocks = nn.ModuleList(
        nn.ModuleDict({
            "a": _Turns(kind, width, 8), "n": nn.RMSNorm(width), "m": nn.RMSNorm(width),
            "f": nn.Sequential(nn.Linear(width, 3 * width), nn.SiLU(), nn.Linear(3 * width, width)),
        })
        for _ in range(depth)
    ).cuda()  # fmt: skip
    table, heads = nn.Embedding(8000, width).cuda(), nn.Linear(width, 2 * width).cuda()
    ids = torch.randint(0, 8000, (batch_size, length + 2), device="cuda")

    def loss() -> torch.Tensor:
        x = table(ids[:, :-2])
        for block in blocks:
            x = x + block["a"](block["n"](x))
            x = x + block["f"](block["m"](x))
        ahead = zip(heads(x).chunk(2, -1), (ids[:, 1:-1], ids[:, 2:]))
        return sum(
            F.cross_entropy((h @ table.weight.T).flatten(0, 1).float(), y.flatten())
            for h, y in ahead
        )

    every = [*blocks.parameters(), *table.parameters(), *heads.parameters()]
    return training_step(loss, every, autocast="bf16", optimizer="adamw-fused")


def grouped_experts(*, tokens: int = 4096, width: int = 512, experts: int = 8, dtype: str = "bf16"):
    """Experts as one grouped product: tokens are sorted by who takes them; none is dropped."""
    up = nn.Parameter(0.02 * torch.randn(experts, width, 2 * width, device="cuda"))
    down = nn.Parameter(0.02 * torch.randn(experts, 2 * width, width, device="cuda"))
    gate = nn.Linear(width, experts).cuda()
    x = torch.randn(tokens, width, device="cuda")

    def loss() -> torch.Tensor:
        odds = gate(x).softmax(-1)
        best, who = odds.topk(2, -1)
        order = who.flatten().argsort(stable=True)
        ends = torch.bincount(who.flatten(), minlength=experts).cumsum(0).to(torch.int32)
        sent = x[order // 2].to(torch.bfloat16)
        h = F.silu(F.grouped_mm(sent, up.to(torch.bfloat16), offs=ends))
        back = F.grouped_mm(h, down.to(torch.bfloat16), offs=ends).float()
        y = torch.zeros_like(x).index_add(0, order // 2, back * best.flatten()[order, None])
        balance = (odds.mean(0) * F.one_hot(who, experts).float().mean((0, 1))).sum() * experts
        return F.mse_loss(x + y, x.roll(1, 0)) + 0.01 * balance

    return training_step(loss, [up, down, *gate.parameters()])


def packed_texts(*, tokens: int = 4096, width: int = 512, heads: int = 8, depth: int = 3) -> Step:
    """Documents in one row, kept apart by torch's attention of any length."""
    from torch.nn.attention.varlen import varlen_attn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
            self.out = nn.Linear(width, width)
            self.feed = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(),
                                      nn.Linear(4 * width, width))  # fmt: skip

        def forward(self, x: torch.Tensor, at: torch.Tensor, longest: int) -> torch.Tensor:
            q, k, v = (y.view(tokens, heads, -1) for y in self.qkv(self.norm(x)).chunk(3, -1))
            made = varlen_attn(q, k, v, at, at, longest, longest, window_size=(-1, 0))
            x = x + self.out(made.flatten(1))
            return x + self.feed(x)

    table = nn.Embedding(8000, width)
    model = nn.ModuleList([table, *(Block() for _ in range(depth))]).cuda().to(torch.bfloat16)
    ids = torch.randint(0, 8000, (tokens,), device="cuda")
    at = torch.tensor([0, 700, 1000, 2100, 2500, tokens], dtype=torch.int32, device="cuda")

    def loss() -> torch.Tensor:
        x = table(ids)
        for block in list(model)[1:]:
            x = block(x, at, tokens - 2500)
        return F.cross_entropy((x @ table.weight.T)[:-1].float(), ids[1:])

    return training_step(loss, model.parameters())


def same_every_time(*, batch_size: int = 16, size: int = 96) -> Step:
    """Deterministic algorithms, cuDNN's too, and neither TF32: as people make runs repeatable."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    table = nn.Embedding(500, 64).cuda()
    net = nn.Sequential(
        _lines(3, 64, 2), _lines(64, 128, 2), nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.ReLU(),
        nn.Conv2d(64, 64, 5, padding=2), nn.ReLU(), nn.Conv2d(64, 12, 1),
    ).cuda()  # fmt: skip
    images, _ = _pictures(batch_size, size)
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
    images, labels = _pictures(batch_size, size)
    return training_step(lambda: F.cross_entropy(net(images.double()), labels), net.parameters())


def tidy_loop(*, batch_size: int = 32, size: int = 64) -> Step:
    """After three batches: an evaluation, weights saved and loaded, and an emptied cache."""
    net = nn.Sequential(
        _lines(3, 64), nn.MaxPool2d(2), _lines(64, 128), nn.MaxPool2d(2), _lines(128, 256),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.3), nn.Linear(256, 10),
    ).cuda()  # fmt: skip
    images, labels = _pictures(4 * batch_size, size)
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
    images, labels = _pictures(batch_size, size, 1000)
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
    images, labels = _pictures(batch_size, size)

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


def long_memory(
    *, batch_size: int = 8, length: int = 128, width: int = 384, depth: int = 3
) -> Step:
    """Transformer-XL: what was seen before is kept from step to step; relative positions."""
    layers = nn.ModuleList(
        nn.ModuleDict({
            "q": nn.Linear(width, width), "kv": nn.Linear(width, 2 * width),
            "r": nn.Linear(width, width), "o": nn.Linear(width, width), "n": nn.LayerNorm(width),
            "f": nn.Sequential(nn.Linear(width, 1024), nn.ReLU(), nn.Dropout(0.1),
                               nn.Linear(1024, width), nn.LayerNorm(width)),
        })
        for _ in range(depth)
    ).cuda()  # fmt: skip
    table = nn.Embedding(10_000, width).cuda()
    bias = nn.Parameter(torch.zeros(2, 6, 1, width // 6, device="cuda"))
    ids = torch.randint(0, 10_000, (batch_size, length + 1), device="cuda")
    far = torch.randn(2 * length, width, device="cuda")
    old: list[torch.Tensor] = [
        torch.zeros(batch_size, length, width, device="cuda") for _ in range(depth)
    ]

    def heads(x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (6, -1)).transpose(-2, -3)

    def loss() -> torch.Tensor:
        x, kept = table(ids[:, :-1]), []
        hide = torch.ones(length, 2 * length, device="cuda", dtype=torch.bool).triu(1 + length)
        for layer, memory in zip(layers, old):
            kept.append(x.detach())
            k, v = layer["kv"](torch.cat([memory, x], 1)).chunk(2, -1)
            q = heads(layer["q"](x))
            near = (q + bias[0]) @ heads(k).mT
            away = (q + bias[1]) @ heads(layer["r"](far)).mT
            away = F.pad(away, (1, 0)).view(batch_size, 6, 2 * length + 1, length)[:, :, 1:]
            away = away.reshape(batch_size, 6, length, 2 * length)
            share = (near + away).mul(8**-1).masked_fill(hide, -1e9).softmax(-1)
            seen = (F.dropout(share, 0.1) @ heads(v)).transpose(1, 2).flatten(2)
            x = layer["n"](x + layer["o"](seen))
            x = layer["f"](x)
        old[:] = kept
        return F.cross_entropy((x @ table.weight.T).flatten(0, 1), ids[:, 1:].flatten())

    return training_step(loss, [*layers.parameters(), *table.parameters(), bias], clip=0.25)


def offloaded_and_again(*, batch_size: int = 8, length: int = 512, width: int = 512) -> Step:
    """Checkpoints whose inputs wait on the host, pinned; the optimizer's state is there as well."""
    from torch.utils.checkpoint import checkpoint

    layers = nn.ModuleList(
        nn.TransformerEncoderLayer(width, 8, 4 * width, 0.1, batch_first=True, norm_first=True)
        for _ in range(6)
    ).cuda()
    leave = nn.Linear(width, 100).cuda()
    x = torch.randn(batch_size, length, width, device="cuda")
    labels = torch.randint(0, 100, (batch_size, length), device="cuda")
    every = [*layers.parameters(), *leave.parameters()]
    shadow = [p.detach().cpu().requires_grad_() for p in every]
    update = torch.optim.AdamW(shadow, lr=1e-4)

    def step() -> torch.Tensor:
        h = x
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            for layer in layers:
                h = checkpoint(layer, h, use_reentrant=False)
            loss = F.cross_entropy(leave(h).flatten(0, 1), labels.flatten())
        loss.backward()
        for here, there in zip(every, shadow):
            there.grad = here.grad.to("cpu", non_blocking=True)
            here.grad = None
        torch.cuda.synchronize()
        update.step()
        with torch.no_grad():
            for here, there in zip(every, shadow):
                here.copy_(there, non_blocking=True)
        return loss.detach()

    return step


def words_at_a_time(*, batch_size: int = 4, length: int = 512, words: int = 50_000) -> Step:
    """A large vocabulary in pieces: logits of a few rows, computed again for their gradients."""
    from torch.utils.checkpoint import checkpoint

    width = 512
    layer = nn.TransformerEncoderLayer(width, 8, 2048, 0.0, "gelu", batch_first=True)
    body = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).cuda()
    table = nn.Embedding(words, width).cuda()
    ids = torch.randint(0, words, (batch_size, length + 1), device="cuda")
    mask = nn.Transformer.generate_square_subsequent_mask(length, device="cuda")

    def piece(h: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        logits = 30 * torch.tanh((h @ table.weight.T) / 30)
        return F.cross_entropy(logits.float(), y, reduction="sum") + 1e-4 * (
            logits.float().logsumexp(-1).square().sum()
        )

    def loss() -> torch.Tensor:
        h = body(table(ids[:, :-1]), mask=mask, is_causal=True).flatten(0, 1)
        parts = zip(h.split(256), ids[:, 1:].flatten().split(256))
        return sum(checkpoint(piece, a, b, use_reentrant=False) for a, b in parts) / len(h)

    return training_step(loss, [*body.parameters(), *table.parameters()], autocast="bf16")


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
