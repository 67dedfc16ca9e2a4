"""Operators by family: indexing, losses, vision, parametrizations."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from programs.common import W, r, ri, train


def indexing_zoo():
    w = nn.ParameterList([nn.Parameter(torch.randn(40, W))])

    def f(w):
        x = w[0]
        i = ri(40, 17)
        loss = 0
        loss = (
            loss
            + x[i].mean()
            + x.index_select(0, i).mean()
            + torch.gather(x, 0, i[:, None].expand(-1, W)).mean()
            + torch.take_along_dim(x, i[:, None], 0).mean()
        )
        y = torch.zeros(40, W, device="cuda")
        loss = (
            loss
            + y.scatter(0, i[:, None].expand(-1, W), x[:17]).mean()
            + y.scatter_add(0, i[:, None].expand(-1, W), x[:17]).mean()
            + y.scatter_reduce(0, i[:, None].expand(-1, W), x[:17], "mean").mean()
        )
        loss = (
            loss
            + y.index_add(0, i, x[:17]).mean()
            + y.index_copy(0, torch.arange(17, device="cuda"), x[:17]).mean()
            + y.index_fill(0, i, 1.0).mean()
            + y.index_put((i,), x[:17], accumulate=True).mean()
            + y.index_reduce(0, i, x[:17], "amax").mean()
        )
        loss = (
            loss
            + x.masked_fill(x > 0, 0.0).mean()
            + x.masked_select(x > 0).mean()
            + torch.where(x > 0, x, -x).mean()
            + x[x > 0].sum()
            + y.masked_scatter(x > 0, x).mean()
        )
        loss = (
            loss
            + x.sort(0)[0].mean()
            + x.topk(5, 0)[0].mean()
            + x.kthvalue(3, 0)[0].mean()
            + x.median()
            + x.median(0)[0].mean()
            + x.quantile(0.5)
            + x.nanquantile(torch.tensor([0.1, 0.9], device="cuda"), dim=0).mean()
            + x.cumsum(0).mean()
            + x.cumprod(0).mean()
            + x.cummax(0)[0].mean()
            + x.logcumsumexp(0).mean()
            + x.mode(0)[0].mean()
            + x.unfold(0, 3, 2).mean()
            + x.diff(dim=0).mean()
        )
        b = torch.bucketize(x.detach(), torch.linspace(-1, 1, 5, device="cuda"))
        s = torch.searchsorted(torch.linspace(-1, 1, 5, device="cuda"), x.detach())
        h = torch.histc(x.detach(), 10)
        bc = torch.bincount(i, minlength=40)
        u, inv, c = torch.unique(i, return_inverse=True, return_counts=True)
        nz = torch.nonzero(x > 0)
        oh = F.one_hot(i, 40)
        return (
            loss
            + b.float().mean()
            + s.float().mean()
            + h.mean()
            + bc.float().mean()
            + u.float().mean()
            + inv.float().mean()
            + nz.float().mean()
            + oh.float().mean()
            + x[:17][torch.argsort(i)].mean()
            + x.roll(1, 0).mean()
            + x.flip(0).mean()
            + torch.repeat_interleave(x, 2, 0).mean()
            + x.repeat(2, 1).mean()
            + torch.renorm(x, 2, 0, 1.0).mean()
        )

    return train(w, f)


def histogram():
    m = nn.Linear(W, W)

    def f(m):
        y = m(r(8, W))
        h = torch.histc(y.detach(), bins=16, min=-3, max=3)
        q = torch.quantile(y, torch.tensor([0.25, 0.75], device="cuda"))
        return y.mean() + q.mean() + h.mean()

    return train(m, f)


def multinomial():
    m = nn.Linear(W, 50)

    def f(m):
        p = m(r(8, W)).softmax(-1)
        a = torch.multinomial(p, 3)
        return (
            -p.gather(1, a).log().mean()
            + torch.bernoulli(p.detach()).mean()
            + F.gumbel_softmax(p, hard=True).mean()
        )

    return train(m, f)


def segment_reduce():
    m = nn.Linear(W, W)
    return train(
        m,
        lambda m: torch.segment_reduce(
            m(r(20, W)), "mean", lengths=torch.tensor([5, 5, 10], device="cuda")
        ).mean(),
    )


def cdist():
    m = nn.Linear(W, W)
    return train(
        m,
        lambda m: (
            torch.cdist(m(r(20, W)), m(r(30, W))).mean()
            + torch.pdist(m(r(9, W))).mean()
            + F.pairwise_distance(m(r(9, W)), r(9, W)).mean()
            + torch.cdist(m(r(20, W)), r(30, W), p=1).mean()
        ),
    )


def vq():
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.e = nn.Linear(W, W)
            s.c = nn.Embedding(64, W)
            s.d = nn.Linear(W, W)

        def forward(s, x):
            z = s.e(x)
            i = torch.cdist(z, s.c.weight).argmin(-1)
            q = s.c(i)
            loss = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
            q = z + (q - z).detach()
            u = i.unique().numel()
            return F.mse_loss(s.d(q), x) + loss + 0 * u

    return train(M(), lambda m: m(r(16, W)))


def ctc():
    m = nn.Linear(W, 20)

    def f(m):
        lp = m(r(30, 4, W)).log_softmax(-1)
        return F.ctc_loss(
            lp,
            torch.randint(1, 20, (4, 8), device="cuda"),
            torch.full((4,), 30, device="cuda"),
            torch.full((4,), 8, device="cuda"),
            zero_infinity=True,
        ) + F.ctc_loss(
            lp,
            torch.randint(1, 20, (4, 8), device="cuda"),
            torch.full((4,), 30),
            torch.full((4,), 8),
        )

    return train(m, f)


def a_dense_gradient_of_bags():
    bags = nn.EmbeddingBag(1000, W, mode="sum").cuda()
    ids = ri(1000, 4096, 4)

    def step():
        loss = bags(ids).sum()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        loss.backward()
        # the indices are sorted, and rows with the same one summed in parts
        taken = torch.cuda.max_memory_allocated() - before
        assert taken > bags.weight.nbytes + 4 * ids.nbytes
        bags.zero_grad()
        return loss.detach()

    return step


def rolled_over_three_dimensions():
    x = r(64, 64, 64)

    def step():
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        rolled = x.roll((1, 2, 3), (0, 1, 2))
        assert torch.cuda.max_memory_allocated() - before == 3 * x.nbytes
        assert torch.cuda.memory_allocated() - before == x.nbytes
        return rolled.mean()

    return step


def ctc_of_what_was_turned():
    def step():
        lp = r(4, 30, 20).log_softmax(-1).transpose(0, 1).detach().requires_grad_()
        lengths = torch.full((4,), 30, device="cuda"), torch.full((4,), 8, device="cuda")
        loss = F.ctc_loss(lp, torch.randint(1, 20, (4, 8), device="cuda"), *lengths)
        (slope,) = torch.autograd.grad(loss, lp)
        assert slope.is_contiguous()
        return loss.detach()

    return step


def ctc_cudnn():
    m = nn.Linear(W, 20)

    def f(m):
        lp = m(r(30, 4, W)).log_softmax(-1)
        return F.ctc_loss(
            lp,
            torch.randint(1, 20, (32,), dtype=torch.int32),
            torch.full((4,), 30, dtype=torch.int32, device="cuda"),
            torch.full((4,), 8, dtype=torch.int32, device="cuda"),
        )

    return train(m, f)


def losses():
    m = nn.Linear(W, 10)

    def f(m):
        y = m(r(16, W))
        t = ri(10, 16)
        z = torch.rand(16, 10, device="cuda")
        return sum(
            [
                F.cross_entropy(y, t, label_smoothing=0.1),
                F.nll_loss(y.log_softmax(-1), t, ignore_index=3),
                F.kl_div(y.log_softmax(-1), z.softmax(-1), reduction="batchmean"),
                F.binary_cross_entropy(y.sigmoid(), z),
                F.binary_cross_entropy_with_logits(y, z),
                F.smooth_l1_loss(y, z),
                F.huber_loss(y, z),
                F.l1_loss(y, z),
                F.hinge_embedding_loss(y, z.sign()),
                F.margin_ranking_loss(y[:, 0], y[:, 1], z[:, 0].sign()),
                F.triplet_margin_loss(y, z, r(16, 10)),
                F.cosine_embedding_loss(y, z, torch.ones(16, device="cuda")),
                F.multi_margin_loss(y, t),
                F.multilabel_margin_loss(y, ri(10, 16, 10)),
                F.multilabel_soft_margin_loss(y, z.round()),
                F.soft_margin_loss(y, z),
                F.poisson_nll_loss(y, z),
                F.gaussian_nll_loss(y, z, z + 0.1),
                F.cross_entropy(y, z.softmax(-1)),
                F.cosine_similarity(y, z).mean(),
            ]
        )

    return train(m, f)


def grid_sample():
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.loss = nn.Linear(W, 6)

        def forward(s, x, z):
            return F.grid_sample(
                x,
                F.affine_grid(s.loss(z).view(-1, 2, 3), x.shape, align_corners=False),
                align_corners=False,
            ).mean()

    return train(M(), lambda m: m(r(2, 3, 16, 16), r(2, W)))


def unet3d():
    m = nn.Sequential(
        nn.Conv3d(1, 4, 3, padding=1),
        nn.InstanceNorm3d(4, affine=True),
        nn.LeakyReLU(),
        nn.MaxPool3d(2),
        nn.Conv3d(4, 8, 3, padding=1),
        nn.GroupNorm(2, 8),
        nn.ConvTranspose3d(8, 4, 2, 2),
        nn.Upsample(scale_factor=2, mode="trilinear"),
        nn.Conv3d(4, 2, 1),
        nn.AvgPool3d(2),
        nn.AdaptiveAvgPool3d(4),
    )

    def f(m):
        y = m(r(1, 1, 8, 8, 8)).softmax(1)
        t = torch.rand_like(y)
        return 1 - (2 * (y * t).sum() + 1) / (y.sum() + t.sum() + 1)

    return train(m, f)


def vision_zoo():
    m = nn.Sequential(
        nn.ReflectionPad2d(1),
        nn.Conv2d(3, 8, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.SiLU(),
        nn.MaxPool2d(3, 2, 1, return_indices=False),
        nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.Hardswish(),
        nn.PixelShuffle(2),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.Upsample(scale_factor=2, mode="bicubic"),
        nn.Upsample(scale_factor=0.5, mode="nearest"),
        nn.AdaptiveMaxPool2d(4),
        nn.Dropout2d(0.1),
        nn.LocalResponseNorm(2),
        nn.ZeroPad2d(1),
        nn.ReplicationPad2d(1),
        nn.CircularPad2d(1),
        nn.Fold((10, 10), 2, stride=2) if 0 else nn.Identity(),
        nn.LPPool2d(2, 2),
        nn.PReLU(),
        nn.Softplus(),
        nn.ELU(),
        nn.CELU(),
        nn.SELU(),
        nn.Mish(),
        nn.Softshrink(),
        nn.Hardshrink(),
        nn.Tanhshrink(),
        nn.RReLU(),
        nn.GLU(1) if 0 else nn.Identity(),
        nn.Threshold(0.1, 0.0),
        nn.Hardsigmoid(),
        nn.LogSigmoid(),
        nn.Softsign(),
    )
    return train(m, lambda m: m(r(2, 3, 16, 16)).mean())


def unfold_fold():
    m = nn.Conv2d(3, 3, 1)

    def f(m):
        x = m(r(2, 3, 16, 16))
        u = F.unfold(x, 4, stride=4)
        return (
            F.fold(u, (16, 16), 4, stride=4).mean()
            + F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2).mean()
            + F.fractional_max_pool2d(x, 2, output_size=5).mean()
            + F.interpolate(x, size=(7, 9), mode="area").mean()
            + F.interpolate(x, size=(7, 9), mode="bilinear", antialias=True).mean()
            + F.channel_shuffle(x, 3).mean()
        )

    return train(m, f)


def spectral_weight_norm():
    P = nn.utils.parametrizations
    m = nn.Sequential(
        P.spectral_norm(nn.Conv2d(3, 8, 3)),
        P.weight_norm(nn.Conv2d(8, 8, 3)),
        nn.Flatten(),
        P.orthogonal(nn.Linear(8 * 144, 16)),
        nn.utils.spectral_norm(nn.Linear(16, 4)),
        nn.utils.weight_norm(nn.Linear(4, 4)),
    )
    return train(m, lambda m: m(r(2, 3, 16, 16)).mean())


def prune():
    from torch.nn.utils import prune

    m = nn.Linear(W, W)
    prune.l1_unstructured(m, "weight", 0.3)
    return train(m, lambda m: m(r(4, W)).mean())


def torch_makes_them_of_others():
    """Small ones, whose contents could be known: torch's own code would look at them."""
    w = nn.ParameterList([nn.Parameter(torch.randn(10, 4))])

    def f(w):
        mantissa, exponent = torch.frexp(w[0])
        solution = torch.linalg.lstsq(w[0], torch.randn(10, 2, device="cuda")).solution
        return (torch.ldexp(mantissa, exponent) - w[0]).mean() + solution.mean()

    return train(w, f)
