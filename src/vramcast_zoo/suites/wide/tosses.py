"""More steps whose sizes are drawn: walks, buckets, masks of several kinds, merged tokens."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from vramcast_zoo.suites.training import training_step

Step = Callable[[], torch.Tensor]


def masked_as_bert(*, batch_size: int = 32, length: int = 256, width: int = 256) -> Step:
    """15 % of the words are asked for: most are hidden, some are others, some stay."""
    words = 8000
    table, says = nn.Embedding(words, width).cuda(), nn.Linear(width, words).cuda()
    body = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True).cuda()

    def loss() -> torch.Tensor:
        texts = torch.randint(5, words, (batch_size, length), device="cuda")
        chances = torch.full(texts.shape, 0.15, device="cuda")
        chances.masked_fill_(torch.arange(length, device="cuda") < 2, 0.0)
        asked = torch.bernoulli(chances).bool()
        hidden = torch.bernoulli(torch.full(texts.shape, 0.8, device="cuda")).bool() & asked
        others = torch.bernoulli(torch.full(texts.shape, 0.5, device="cuda")).bool()
        others &= asked & ~hidden
        seen = texts.masked_fill(hidden, 3)
        seen[others] = torch.randint(5, words, texts.shape, device="cuda")[others]
        return F.cross_entropy(says(body(table(seen))[asked]), texts[asked])

    return training_step(loss, nn.ModuleList([table, says, body]).parameters(), autocast="bf16")


def walks_in_a_graph(*, nodes: int = 20_000, walks: int = 4096, width: int = 128) -> Step:
    """Walks by chance over drawn edges; what is near on a walk is pulled together."""
    table, context = nn.Embedding(nodes, width).cuda(), nn.Embedding(nodes, width).cuda()
    ends = torch.randint(0, nodes, (2, 8 * nodes), device="cuda")
    ends = ends[:, ends[0].argsort()]
    degrees = torch.bincount(ends[0], minlength=nodes)
    begins = degrees.cumsum(0) - degrees

    def loss() -> torch.Tensor:
        at = torch.randint(0, nodes, (walks,), device="cuda")
        path = [at]
        for _ in range(9):
            going = degrees[at] > 0
            toss = (torch.rand(len(at), device="cuda") * degrees[at]).long()
            at = torch.where(going, ends[1][(begins[at] + toss).clamp(max=8 * nodes - 1)], at)
            path.append(at)
        windows = torch.stack(path, 1).unfold(1, 5, 1).reshape(-1, 5)
        moved = windows[windows[:, 0] != windows[:, 1]]
        middle, near = table(moved[:, 0]), context(moved[:, 1:])
        far = context(torch.randint(0, nodes, (len(moved), 4), device="cuda"))
        return -(
            F.logsigmoid((near * middle[:, None]).sum(-1)).mean()
            + F.logsigmoid(-(far * middle[:, None]).sum(-1)).mean()
        )

    return training_step(loss, nn.ModuleList([table, context]).parameters())


def buckets_of_lengths(*, texts: int = 128, budget: int = 4096, width: int = 256) -> Step:
    """Texts of drawn lengths, in order, cut into batches that have so many words at most."""
    table = nn.Embedding(4000, width).cuda()
    body = nn.LSTM(width, width, batch_first=True).cuda()

    def loss() -> torch.Tensor:
        lengths = torch.randn(texts, device="cuda").mul(0.6).add(4).exp().clamp(8, 400).long()
        lengths, total = lengths.sort().values, torch.zeros((), device="cuda")
        batch: list[int] = []
        for number, length in enumerate(lengths.tolist()):
            batch.append(length)
            if (len(batch) + 1) * length > budget or number == texts - 1:
                words = torch.randint(0, 4000, (len(batch), batch[-1]), device="cuda")
                packed = nn.utils.rnn.pack_padded_sequence(
                    table(words), torch.tensor(batch), batch_first=True, enforce_sorted=False
                )
                total = total + body(packed)[1][0].square().mean()
                batch = []
        return total

    return training_step(loss, [*table.parameters(), *body.parameters()])


def merged_tokens(*, batch_size: int = 32, length: int = 256, width: int = 384) -> Step:
    """Tokens that are alike are merged in every block, so that fewer and fewer are left."""
    blocks = nn.ModuleList(
        [nn.TransformerEncoderLayer(width, 6, 2 * width, 0.0, batch_first=True) for _ in range(4)]
    ).cuda()
    x = torch.randn(batch_size, length, width, device="cuda")
    labels = torch.randint(0, width, (batch_size,), device="cuda")

    def merge(y: torch.Tensor, fewer: int) -> torch.Tensor:
        one, other = y[:, ::2], y[:, 1::2]
        alike = F.normalize(one.detach(), dim=-1) @ F.normalize(other.detach(), dim=-1).mT
        best, to = alike.max(-1)
        order = best.argsort(-1, descending=True)[..., None]
        left, gone = order[:, fewer:], order[:, :fewer]
        to = to[..., None].gather(1, gone)
        kept = one.gather(1, left.expand(-1, -1, width))
        moved = one.gather(1, gone.expand(-1, -1, width))
        other = other.scatter_reduce(1, to.expand(-1, -1, width), moved, "mean")
        return torch.cat([kept, other], 1)

    def loss() -> torch.Tensor:
        y = x
        for block in blocks:
            y = merge(block(y), 24)
        return F.cross_entropy(y.mean(1), labels)

    return training_step(loss, blocks.parameters(), autocast="bf16")


def edges_joined(*, nodes: int = 30_000, edges: int = 400_000, width: int = 64) -> Step:
    """Edges are drawn anew, doubles are joined, and a sparse matrix spreads the features."""
    enter, leave = nn.Linear(32, width).cuda(), nn.Linear(width, 8).cuda()
    seen = torch.randn(nodes, 32, device="cuda")
    labels = torch.randint(0, 8, (nodes,), device="cuda")

    def loss() -> torch.Tensor:
        ends = (torch.rand(2, edges, device="cuda").square() * nodes).long()
        matrix = torch.sparse_coo_tensor(ends, torch.ones(edges, device="cuda"), (nodes, nodes))
        matrix = matrix.coalesce()
        rows = matrix.indices()[0]
        shares = 1 / torch.bincount(rows, minlength=nodes).clamp(min=1).float()
        matrix = torch.sparse_coo_tensor(matrix.indices(), shares[rows], (nodes, nodes))
        x = F.relu(torch.sparse.mm(matrix, enter(seen)))
        return F.cross_entropy(leave(torch.sparse.mm(matrix, x)), labels)

    return training_step(loss, [*enter.parameters(), *leave.parameters()])


def shapes_filled(*, shapes: int = 96, size: int = 128, width: int = 64) -> Step:
    """Triangles at drawn places: the pixels within each, and a network that colours them."""
    net = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                        nn.Linear(width, 4)).cuda()  # fmt: skip
    styles = nn.Parameter(torch.randn(shapes, 5, device="cuda"))
    wanted = torch.rand(size * size, 3, device="cuda")
    grid = torch.cartesian_prod(*[torch.arange(size, device="cuda") / size] * 2)

    def loss() -> torch.Tensor:
        corners = torch.rand(shapes, 3, 2, device="cuda")
        sides = corners.roll(1, 1) - corners
        apart = grid[None, :, None] - corners[:, None]
        turns = sides[:, None, :, 0] * apart[..., 1] - sides[:, None, :, 1] * apart[..., 0]
        inside = (turns > 0).all(-1) | (turns < 0).all(-1)
        shape, pixel = inside.nonzero(as_tuple=True)
        colours = net(torch.cat([styles[shape], apart[shape, pixel, 0], grid[pixel, :1]], 1))
        weight = colours[:, 3:].exp()
        sums = colours.new_zeros(size * size, 3).index_add(0, pixel, colours[:, :3] * weight)
        total = colours.new_zeros(size * size, 1).index_add(0, pixel, weight)
        return F.mse_loss(sums / (total + 1e-3), wanted)

    return training_step(loss, [styles, *net.parameters()])


def mixed_by_beta(*, batch_size: int = 128, width: int = 512) -> Step:
    """Shares of a Beta distribution mix rows; noise of several kinds; then some rows are left."""
    net = nn.Sequential(nn.Linear(256, width), nn.Dropout(0.2), nn.GELU(), nn.Linear(width, 256))
    net = net.cuda()
    data = torch.randn(64 * batch_size, 256, device="cuda")

    def loss() -> torch.Tensor:
        chosen = torch.multinomial(torch.ones(len(data), device="cuda"), 16 * batch_size)
        x = data[chosen]
        share = torch.distributions.Beta(
            torch.tensor(0.4, device="cuda"), torch.tensor(0.4, device="cuda")
        ).sample((len(x), 1))
        x = share * x + (1 - share) * x[torch.randperm(len(x), device="cuda")]
        x = x + 0.1 * torch.empty_like(x).cauchy_().clamp(-1, 1)
        kept = torch.rand(len(x), device="cuda") < 0.7
        return F.mse_loss(net(x[kept]), x[kept])

    return training_step(loss, net.parameters())


def ranks_of_groups(*, rows: int = 40_000, width: int = 96, groups: int = 24) -> Step:
    """Rows are put into groups by quantiles of what they measure; every group has its own net."""
    nets = nn.ModuleList([nn.Linear(32, width) for _ in range(groups)]).cuda()
    says = nn.Linear(width, 1).cuda()

    def loss() -> torch.Tensor:
        seen = torch.randn(rows, 32, device="cuda")
        score = seen[:, :4].square().sum(1) + 0.1 * torch.rand(rows, device="cuda")
        bounds = torch.linspace(1.0, 9.0, groups - 1, device="cuda")
        group = torch.bucketize(score, bounds)
        total = torch.zeros((), device="cuda")
        for number, net in enumerate(nets):
            own = seen[group == number]
            if len(own) > 8:
                total = total + says(F.gelu(net(own))).square().mean()
        return total

    return training_step(loss, [*nets.parameters(), *says.parameters()])


def first_to_be_sure(*, batch_size: int = 1024, width: int = 512, depth: int = 6) -> Step:
    """Rows leave a deep network as soon as it is sure of them."""
    layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)]).cuda()
    says = nn.ModuleList([nn.Linear(width, 10) for _ in range(depth)]).cuda()
    data = torch.randn(batch_size, width, device="cuda")
    labels = torch.randint(0, 10, (batch_size,), device="cuda")

    def loss() -> torch.Tensor:
        x, y, total = data, labels, torch.zeros((), device="cuda")
        for layer, say in zip(layers, says, strict=True):
            x = F.relu(layer(x))
            seen = say(x)
            total = total + F.cross_entropy(seen, y, reduction="sum")
            unsure = seen.softmax(1).amax(1) < 0.9
            if not unsure.any():
                break
            x, y = x[unsure], y[unsure]
        return total / batch_size

    return training_step(loss, nn.ModuleList([layers, says]).parameters())
