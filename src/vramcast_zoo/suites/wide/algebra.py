"""Linear algebra, spectra and derivatives of any order in the loss; sets, sorts and samples."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import forward_ad

from vramcast_zoo.suites.training import training_step

Step = Callable[[], torch.Tensor]


def _net(*widths: int, act: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i, o in zip(widths, widths[1:]):
        layers += [nn.Linear(i, o), act()]
    return nn.Sequential(*layers[:-1])


def few_singular_values(*, batch_size: int = 12, size: int = 96, width: int = 32) -> Step:
    """Robust components: maps of an image are made of low rank, and the nuclear norm is paid."""
    lines = nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1), nn.PReLU(width), nn.Conv2d(width, 4, 3, padding=1)
    ).cuda()
    images = torch.rand(batch_size, 1, size, size, device="cuda")

    def loss() -> torch.Tensor:
        maps = lines(images)
        u, s, v = torch.linalg.svd(maps, full_matrices=False)
        low = (u[..., :16] * s[..., None, :16]) @ v[..., :16, :]
        return F.mse_loss(low.mean(1, True), images) + 1e-3 * s.sum(-1).mean()

    return training_step(loss, lines.parameters())


def covariance_pooling(*, batch_size: int = 32, size: int = 28, width: int = 64) -> Step:
    """Images by the logarithm of the covariance of their features, through eigenvalues."""
    lines = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), nn.InstanceNorm2d(width, affine=True), nn.ELU(),
        nn.Conv2d(width, width, 3, padding=1),
    ).cuda()  # fmt: skip
    head = nn.Linear(width * (width + 1) // 2, 20).cuda()
    upper = torch.triu_indices(width, width, device="cuda")
    images = torch.rand(batch_size, 3, size, size, device="cuda")
    labels = torch.randint(0, 20, (batch_size,), device="cuda")

    def loss() -> torch.Tensor:
        x = lines(images).flatten(2)
        x = x - x.mean(-1, keepdim=True)
        spread = x @ x.mT / (size * size - 1) + 1e-3 * torch.eye(width, device="cuda")
        values, vectors = torch.linalg.eigh(spread)
        logs = vectors @ torch.diag_embed(values.clamp(min=1e-6).log()) @ vectors.mT
        return F.cross_entropy(head(logs[:, upper[0], upper[1]]), labels, label_smoothing=0.1)

    return training_step(loss, [*lines.parameters(), *head.parameters()])


def orthogonal_cells(
    *, by: str = "matrix_exp", batch_size: int = 64, length: int = 48, width: int = 256
) -> Step:
    """A recurrence whose matrix stays orthogonal, with a skewed one below it."""
    cell = nn.Linear(width, width, bias=False)
    cell = nn.utils.parametrizations.orthogonal(cell, orthogonal_map=by).cuda()
    enter, leave = nn.Linear(16, width).cuda(), nn.Linear(width, 16).cuda()
    x = torch.randn(length, batch_size, 16, device="cuda")

    def loss() -> torch.Tensor:
        state, made = torch.zeros(batch_size, width, device="cuda"), []
        with nn.utils.parametrize.cached():
            for now in enter(x):
                state = F.softshrink(cell(state) + now, 0.1)
                made.append(leave(state))
        return F.huber_loss(torch.stack(made), x.roll(-1, 0))

    return training_step(loss, nn.ModuleList([cell, enter, leave]).parameters())


def kalman(*, batch_size: int = 256, length: int = 24, states: int = 24, seen: int = 12) -> Step:
    """A filter over time in double precision: factors of covariances and what they solve."""
    move = nn.Parameter(torch.eye(states, dtype=torch.double, device="cuda") * 0.95)
    look = nn.Parameter(torch.randn(seen, states, dtype=torch.double, device="cuda") * 0.1)
    noise = nn.Parameter(torch.zeros(states + seen, dtype=torch.double, device="cuda"))
    series = torch.randn(length, batch_size, seen, dtype=torch.double, device="cuda")

    def loss() -> torch.Tensor:
        process, error = (torch.diag(part.exp()) for part in noise.split([states, seen]))
        mean = torch.zeros(batch_size, states, dtype=torch.double, device="cuda")
        spread = torch.eye(states, dtype=torch.double, device="cuda").expand(batch_size, -1, -1)
        total = mean.new_zeros(())
        for now in series:
            mean, spread = mean @ move.mT, move @ spread @ move.mT + process
            apart = now - mean @ look.mT
            factor = torch.linalg.cholesky(look @ spread @ look.mT + error)
            gain = torch.cholesky_solve(look @ spread, factor).mT
            white = torch.linalg.solve_triangular(factor, apart[..., None], upper=False)
            logs = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            total = total + (0.5 * white.square().sum((1, 2)) + logs).mean()
            mean = mean + (gain @ apart[..., None]).squeeze(-1)
            spread = spread - gain @ look @ spread
        return total / length

    return training_step(loss, [move, look, noise])


def determinants(*, batch_size: int = 64, items: int = 48, width: int = 256) -> Step:
    """A determinantal process over items: sign and logarithm, an inverse, a factorisation."""
    net = _net(32, width, width, 64).cuda()
    x = torch.randn(batch_size, items, 32, device="cuda")
    goal = torch.randn(batch_size, items, 4, device="cuda")

    def loss() -> torch.Tensor:
        made = net(x)
        kernel = made @ made.mT + 0.1 * torch.eye(items, device="cuda")
        _, logs = torch.linalg.slogdet(kernel)
        factors, pivots = torch.linalg.lu_factor(kernel)
        ahead = torch.linalg.lu_solve(factors, pivots, goal)
        some = torch.linalg.det(kernel[:, :6, :6]) + torch.linalg.inv(kernel).sum((1, 2))
        return (ahead.square().mean() - logs.mean() / items) + 1e-4 * some.mean()

    return training_step(loss, net.parameters(), optimizer="sgd")


def least_squares(*, tasks: int = 24, shots: int = 80, width: int = 64) -> Step:
    """Ridge regression as the last layer of every task, and a basis by QR."""
    lines = nn.Sequential(
        nn.Conv2d(3, 48, 3, padding=1), nn.BatchNorm2d(48), nn.Hardswish(), nn.MaxPool2d(4),
        nn.Flatten(), nn.Linear(48 * 49, width),
    ).cuda()  # fmt: skip
    images = torch.rand(tasks * 2 * shots, 3, 28, 28, device="cuda")
    labels = F.one_hot(torch.randint(0, 10, (tasks, 2 * shots), device="cuda"), 10).float()

    def loss() -> torch.Tensor:
        x = lines(images).unflatten(0, (tasks, 2 * shots))
        basis, _ = torch.linalg.qr(x[:, :shots].mT)
        x = x @ basis[..., :48]
        first, then = x.chunk(2, 1)
        head = torch.linalg.lstsq(first, labels[:, :shots]).solution
        return F.cross_entropy((then @ head).flatten(0, 1), labels[:, shots:].flatten(0, 1))

    return training_step(loss, lines.parameters())


def filters_of_waves(*, batch_size: int = 8, size: int = 211, width: int = 24) -> Step:
    """Filters learnt in the spectrum of images whose sides are prime, with complex weights."""
    enter, leave = nn.Conv2d(3, width, 1).cuda(), nn.Conv2d(width, 3, 1).cuda()
    waves = nn.ParameterList(
        torch.randn(width, size, size // 2 + 1, dtype=torch.cfloat, device="cuda") for _ in range(3)
    )
    images = torch.rand(batch_size, 3, size, size, device="cuda")

    def loss() -> torch.Tensor:
        x = enter(images)
        for wave in waves:
            x = x + F.mish(torch.fft.irfft2(torch.fft.rfft2(x) * wave, s=(size, size)))
        far = torch.fft.fftshift(torch.fft.fft2(leave(x) - images, norm="ortho"))
        return far.abs().mean()

    return training_step(loss, [*enter.parameters(), *leave.parameters(), *waves])


def newton(*, points: int = 512, width: int = 20) -> Step:
    """Newton's method: the whole Hessian by torch.func, damped and solved."""
    net = _net(4, width, width, 1).cuda()
    x, y = torch.randn(points, 4, device="cuda"), torch.randn(points, 1, device="cuda")
    shapes = {name: p.shape for name, p in net.named_parameters()}
    flat = nn.utils.parameters_to_vector(net.parameters()).detach()

    def error(weights: torch.Tensor) -> torch.Tensor:
        parts = weights.split([shape.numel() for shape in shapes.values()])
        named = {name: part.view(s) for (name, s), part in zip(shapes.items(), parts)}
        return F.mse_loss(torch.func.functional_call(net, named, (x,)), y)

    def step() -> torch.Tensor:
        slope, value = torch.func.grad_and_value(error)(flat)
        bend = torch.func.hessian(error)(flat) + torch.eye(len(flat), device="cuda")
        flat.sub_(torch.linalg.solve(bend, slope))
        return value

    return step


def by_forward_mode(*, batch_size: int = 1024, width: int = 768, depth: int = 5) -> Step:
    """Forward gradients: a direction is drawn, and nothing is kept for a backward pass."""
    net = _net(128, *[width] * depth, 10, act=nn.GELU).cuda().requires_grad_(False)
    x = torch.randn(batch_size, 128, device="cuda")
    labels = torch.randint(0, 10, (batch_size,), device="cuda")

    def step() -> torch.Tensor:
        drawn = {name: torch.randn_like(p) for name, p in net.named_parameters()}
        with forward_ad.dual_level():
            duals = {n: forward_ad.make_dual(p, drawn[n]) for n, p in net.named_parameters()}
            made = torch.func.functional_call(net, duals, (x,))
            loss, slope = forward_ad.unpack_dual(F.cross_entropy(made, labels))
        with torch.no_grad():
            for name, p in net.named_parameters():
                p.sub_(1e-3 * slope * drawn[name])
        return loss

    return step


def plate(*, points: int = 6000, width: int = 96) -> Step:
    """A bent plate: fourth derivatives by one gradient of another, and a Jacobian by vmap."""
    net = _net(2, width, width, width, 1).cuda()
    inside = torch.rand(points, 2, device="cuda")

    def loss() -> torch.Tensor:
        x = inside.clone().requires_grad_()
        made = net(x)
        for _ in range(4):
            (slope,) = torch.autograd.grad(made.sum(), x, create_graph=True)
            made = slope.sum(-1, keepdim=True)
        edge = torch.func.vmap(torch.func.jacfwd(net))(inside[:500])
        return (made - 1).square().mean() + edge.square().mean()

    return training_step(loss, net.parameters())


def tensor_train(*, batch_size: int = 512, rank: int = 24, width: int = 4) -> Step:
    """Layers that are chains of small cores, contracted by einsum, kron and tensordot."""
    sides, depth = (8, 8, 8, 8), 3
    cores = nn.ParameterList(
        0.2 * torch.randn(rank if k else 1, side, side, rank if k < 3 else 1, device="cuda")
        for _ in range(depth)
        for k, side in enumerate(sides)
    )
    pair = nn.ParameterList(torch.randn(64, 64, device="cuda") / 8 for _ in range(2))
    x = torch.randn(batch_size, *sides, device="cuda")

    def loss() -> torch.Tensor:
        made = x
        for layer in range(depth):
            a, b, c, d = cores[4 * layer : 4 * layer + 4]
            made = torch.einsum("bijkl,xipy,yjqz,zkrw,wlsx->bpqrs", made, a, b, c, d).relu()
        made = torch.tensordot(made.flatten(1), torch.kron(pair[0], pair[1]), 1)
        return F.mse_loss(torch.linalg.multi_dot([made, made.mT, x.flatten(1)]), x.flatten(1))

    return training_step(loss, [*cores, *pair])


def distances(*, batch_size: int = 1500, width: int = 256) -> Step:
    """Two sets are brought together: all distances, in three norms, and those within one."""
    net = _net(64, width, width, 32, act=nn.SELU).cuda()
    near, far = torch.randn(batch_size, 64, device="cuda"), torch.randn(2000, 32, device="cuda")

    def loss() -> torch.Tensor:
        made = net(near)
        across = sum(torch.cdist(made, far, p=p).mean() for p in (1.0, 2.0, 3.0))
        close = torch.cdist(made, far, compute_mode="donot_use_mm_for_euclid_dist").amin(1)
        within = F.pdist(made[:700]).neg().exp().mean()
        return across + within + torch.logsumexp(close, 0) / batch_size

    return training_step(loss, net.parameters())


def edges_of_products(*, nodes: int = 4000, links: int = 60_000, width: int = 128) -> Step:
    """Attention over the links of a graph as a sparse matrix: sampled products and a softmax."""
    queries, keys, values = (nn.Linear(width, width).cuda() for _ in range(3))
    x = torch.randn(nodes, width, device="cuda")
    places = torch.randint(0, nodes, (2, links), device="cuda")

    def loss() -> torch.Tensor:
        q, k, v = queries(x), keys(x), values(x)
        scores = (q[places[0]] * k[places[1]]).sum(-1) / width**0.5
        grid = torch.sparse_coo_tensor(places, scores, (nodes, nodes)).coalesce()
        made = torch.sparse.mm(torch.sparse.softmax(grid, 1), v)
        return F.mse_loss(made, x) + torch.sparse.sum(grid) * 1e-6

    return training_step(loss, nn.ModuleList([queries, keys, values]).parameters())


def ranks_and_bins(*, batch_size: int = 64, items: int = 2048, width: int = 64) -> Step:
    """Scores of a list are ranked, cut at quantiles, binned, and summed along the order."""
    net = _net(width, 2 * width, 1, act=nn.Softplus).cuda()
    x = torch.randn(batch_size, items, width, device="cuda")
    gains = torch.rand(batch_size, items, device="cuda")
    edges = torch.linspace(-2, 2, 33, device="cuda")

    def loss() -> torch.Tensor:
        scores = net(x).squeeze(-1)
        order = scores.argsort(dim=-1, descending=True, stable=True)
        ranked = scores.gather(-1, order)
        below = torch.logcumsumexp(ranked.flip(-1), -1).flip(-1) - ranked
        cut = torch.quantile(scores, torch.tensor([0.1, 0.5, 0.9], device="cuda"), dim=-1)
        middle, least = scores.median(-1).values, scores.kthvalue(items // 4, -1).values
        bins = torch.bucketize(scores.detach(), edges)
        means = torch.zeros(34, device="cuda").index_add(0, bins.flatten(), scores.flatten())
        highest = torch.cummax(ranked.flip(-1), -1).values.mean()
        places = torch.searchsorted(ranked.flip(-1).detach(), gains)
        spread = (cut.std() + (middle - least).mean() + means.std()) * 1e-2
        won = below * gains.gather(-1, order) / (places + 1)
        return won.mean() + spread + 1e-3 * highest

    return training_step(loss, net.parameters())


def sets_and_masks(*, nodes: int = 20_000, width: int = 128) -> Step:
    """Rows are picked by masks, put back, reduced by group; groups are found by `unique`."""
    table = nn.Embedding(5000, width).cuda()
    net = _net(width, width, width, act=nn.CELU).cuda()
    words = torch.randint(0, 5000, (nodes,), device="cuda")
    groups = torch.randint(0, 700, (nodes,), device="cuda")

    def loss() -> torch.Tensor:
        kinds, where, counts = torch.unique(words, return_inverse=True, return_counts=True)
        x = net(table(kinds))[where]
        often = (counts > 4)[where]
        x = torch.where(often[:, None], x, x.detach())
        part = torch.masked_select(x, often[:, None])
        x = x.masked_scatter(often[:, None], part * 2)
        most = x.new_zeros(700, width).scatter_reduce(
            0, groups[:, None].expand(-1, width), x, "amax", include_self=False
        )
        mean = x.new_zeros(700, width).index_reduce(0, groups, x, "mean", include_self=False)
        x = x.index_put((groups,), mean[groups], accumulate=True)
        some = torch.nonzero(often).squeeze(1)
        return x[some].square().mean() + most.std() + torch.bincount(groups).max() * 1e-6

    return training_step(loss, [*table.parameters(), *net.parameters()])
