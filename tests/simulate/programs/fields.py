"""Training steps as several fields write them, with loops and conditions on computed values."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

from programs.common import W, r, ri, train


def gan():
    g = nn.Sequential(
        nn.ConvTranspose2d(8, 8, 4),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 3, 4, 2, 1),
        nn.Tanh(),
    ).cuda()
    d = nn.Sequential(nn.Conv2d(3, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 1, 4)).cuda()
    og, od = (
        torch.optim.Adam(g.parameters(), betas=(0.5, 0.999)),
        torch.optim.RMSprop(d.parameters()),
    )

    def step():
        z = r(4, 8, 1, 1)
        f = g(z)
        od.zero_grad()
        ld = F.softplus(-d(r(4, 3, 8, 8))).mean() + F.softplus(d(f.detach())).mean()
        ld.backward()
        od.step()
        og.zero_grad()
        lg = F.softplus(-d(f)).mean()
        lg.backward()
        og.step()
        if ld.item() < 0.1:
            pass
        return lg

    return step


def diffusion_ema():
    m = nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 3, 3, padding=1)
    ).cuda()
    ema = torch.optim.swa_utils.AveragedModel(
        m, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99)
    )
    o = torch.optim.AdamW(m.parameters())
    b = torch.linspace(1e-4, 0.02, 100, device="cuda")
    ac = torch.cumprod(1 - b, 0)

    def step():
        x = r(4, 3, 8, 8)
        t = ri(100, 4)
        e = torch.randn_like(x)
        a = ac[t].view(-1, 1, 1, 1)
        xt = a.sqrt() * x + (1 - a).sqrt() * e
        loss = F.mse_loss(m(torch.cat([xt, (t / 100).view(-1, 1, 1, 1).expand(-1, 1, 8, 8)], 1)), e)
        o.zero_grad()
        loss.backward()
        o.step()
        ema.update_parameters(m)
        with torch.no_grad():
            y = r(1, 3, 8, 8)
            for i in range(3):
                y = y - ema(torch.cat([y, torch.full((1, 1, 8, 8), i / 3, device="cuda")], 1))
        return loss

    return step


def simclr():
    m = nn.Sequential(nn.Linear(W, W), nn.BatchNorm1d(W), nn.ReLU(), nn.Linear(W, 16))

    def f(m):
        z = F.normalize(torch.cat([m(r(8, W)), m(r(8, W))]), dim=1)
        s = z @ z.T / 0.1
        s = s.masked_fill(torch.eye(16, dtype=torch.bool, device="cuda"), -1e9)
        return F.cross_entropy(s, torch.arange(16, device="cuda").roll(8))

    return train(m, f)


def dpo():
    m = nn.Sequential(nn.Embedding(100, W), nn.Linear(W, 100)).cuda()
    ref = copy.deepcopy(m).requires_grad_(False)

    def f(m):
        a, b = ri(100, 4, 12), ri(100, 4, 12)
        lp = lambda q, x: q(x[:, :-1]).log_softmax(-1).gather(2, x[:, 1:, None]).squeeze(-1).sum(-1)
        with torch.no_grad():
            ra, rb = lp(ref, a), lp(ref, b)
        h = 0.1 * ((lp(m, a) - ra) - (lp(m, b) - rb))
        assert 0 <= (h > 0).float().mean().item() <= 1
        return -F.logsigmoid(h).mean()

    return train(m, f)


def generate():
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.e = nn.Embedding(100, W)
            s.loss = nn.GRU(W, W, batch_first=True)
            s.o = nn.Linear(W, 100)

        def forward(s, x, h=None):
            y, h = s.loss(s.e(x), h)
            return s.o(y), h

    m = M().cuda()
    o = torch.optim.Adam(m.parameters())

    def step():
        x = ri(100, 4, 3)
        h = None
        out = []
        done = torch.zeros(4, dtype=torch.bool, device="cuda")
        n = 0
        with torch.no_grad():
            cur = x
            for _ in range(20):
                y, h = m(cur, h)
                cur = torch.multinomial((y[:, -1] / 0.8).softmax(-1), 1)
                done |= cur[:, 0] == 2
                out.append(cur)
                n += 1
                if done.all():
                    break
        s = torch.cat([x] + out, 1)
        y, _ = m(s[:, :-1])
        loss = F.cross_entropy(y.flatten(0, 1), s[:, 1:].flatten())
        loss.backward()
        o.step()
        o.zero_grad()
        assert n > 10, n
        return loss

    return step


def ppo():
    import torch.distributions as D

    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.b = nn.Sequential(nn.Linear(8, W), nn.Tanh())
            s.p = nn.Linear(W, 4)
            s.v = nn.Linear(W, 1)
            s.ls = nn.Parameter(torch.zeros(4))

        def forward(s, x):
            h = s.b(x)
            return D.Normal(s.p(h), s.ls.exp()), s.v(h).squeeze(-1)

    m = M().cuda()
    o = torch.optim.Adam(m.parameters())

    def step():
        obs = r(64, 8)
        with torch.no_grad():
            d, v = m(obs)
            a = d.sample()
            lp0 = d.log_prob(a).sum(-1)
        adv = r(64)
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        for _ in range(2):
            for idx in torch.randperm(64, device="cuda").split(32):
                d, v = m(obs[idx])
                lp = d.log_prob(a[idx]).sum(-1)
                ratio = (lp - lp0[idx]).exp()
                loss = (
                    -torch.min(ratio * adv[idx], ratio.clamp(0.8, 1.2) * adv[idx]).mean()
                    + F.mse_loss(v, adv[idx])
                    - 0.01 * d.entropy().mean()
                )
                o.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(m.parameters(), 0.5)
                o.step()
                kl = (lp0[idx] - lp).mean()
                if kl > 0.015 * 1e9:
                    break
        return loss

    return step


def sac():
    import torch.distributions as D

    a = nn.Linear(8, 4).cuda()
    q = nn.Linear(10, 1).cuda()
    qt = copy.deepcopy(q)
    la = torch.zeros((), device="cuda", requires_grad=True)
    oa = torch.optim.Adam([*a.parameters(), la])
    oq = torch.optim.Adam(q.parameters())

    def step():
        s = r(32, 8)
        mu, ls = a(s).chunk(2, -1)
        d = D.TransformedDistribution(
            D.Independent(D.Normal(mu, ls.clamp(-5, 2).exp()), 1), [D.TanhTransform(cache_size=1)]
        )
        ac = d.rsample()
        lp = d.log_prob(ac)
        with torch.no_grad():
            t = qt(torch.cat([s, ac], 1)).squeeze(-1) - la.exp() * lp
        lq = F.mse_loss(q(torch.cat([s, ac.detach()], 1)).squeeze(-1), t)
        oq.zero_grad()
        lq.backward()
        oq.step()
        loss = (la.exp().detach() * lp - q(torch.cat([s, ac], 1)).squeeze(-1)).mean() - (
            la * (lp.detach() - 4)
        ).mean()
        oa.zero_grad()
        loss.backward()
        oa.step()
        with torch.no_grad():
            for p, t in zip(q.parameters(), qt.parameters()):
                t.lerp_(p, 0.005)
        return loss

    return step


def dqn():
    q = nn.Linear(8, 4)

    def f(q):
        s, a, rw, dn = r(32, 8), ri(4, 32), r(32), ri(2, 32).bool()
        with torch.no_grad():
            t = rw + 0.99 * q(r(32, 8)).max(1).values * ~dn
        if torch.rand(1).item() < 0.1:
            pass
        return F.smooth_l1_loss(q(s).gather(1, a[:, None]).squeeze(1), t)

    return train(q, f)


def nerf():
    m = nn.Sequential(nn.Linear(39, W), nn.ReLU(), nn.Linear(W, 4))

    def f(m):
        o, d = r(16, 3), F.normalize(r(16, 3), dim=-1)
        t = torch.linspace(2, 6, 8, device="cuda")
        p = o[:, None] + d[:, None] * t[:, None]
        e = torch.cat([p] + [g(p * 2**k) for k in range(6) for g in (torch.sin, torch.cos)], -1)
        y = m(e)
        s = F.relu(y[..., 3])
        al = 1 - torch.exp(-s * 0.5)
        w = (
            al
            * torch.cumprod(torch.cat([torch.ones(16, 1, device="cuda"), 1 - al + 1e-10], 1), 1)[
                :, :-1
            ]
        )
        c = (w[..., None] * y[..., :3].sigmoid()).sum(1)
        cdf = torch.cumsum((w + 1e-5) / (w + 1e-5).sum(-1, keepdim=True), -1).detach()
        u = torch.rand(16, 8, device="cuda")
        i = torch.searchsorted(cdf, u, right=True).clamp(max=7)
        tt = torch.gather(t.expand(16, 8), 1, i)
        return F.mse_loss(c, torch.rand(16, 3, device="cuda")) + 0 * tt.mean()

    return train(m, f)


def flow():
    class C(nn.Module):
        def __init__(s):
            super().__init__()
            s.n = nn.Sequential(nn.Linear(4, W), nn.ReLU(), nn.Linear(W, 8))
            s.w = nn.Parameter(torch.linalg.qr(torch.randn(8, 8))[0])

        def forward(s, x):
            x = x @ s.w
            a, b = x.chunk(2, -1)
            ls, t = s.n(a).chunk(2, -1)
            ls = ls.tanh()
            return torch.cat([a, b * ls.exp() + t], -1), ls.sum(-1) + torch.linalg.slogdet(s.w)[1]

    m = nn.ModuleList([C() for _ in range(3)])

    def f(m):
        x, ld = r(16, 8), 0
        for c in m:
            x, loss = c(x)
            ld = ld + loss
        return -(
            torch.distributions.MultivariateNormal(
                torch.zeros(8, device="cuda"), torch.eye(8, device="cuda")
            ).log_prob(x)
            + ld
        ).mean()

    return train(m, f)


def vae():
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.e = nn.Linear(64, 16)
            s.d = nn.Linear(8, 64)

        def forward(s, x):
            mu, lv = s.e(x).chunk(2, -1)
            z = mu + torch.randn_like(mu) * (0.5 * lv).exp()
            return (
                F.binary_cross_entropy(torch.sigmoid(s.d(z)), x, reduction="sum")
                - 0.5 * (1 + lv - mu.pow(2) - lv.exp()).sum()
            )

    return train(M(), lambda m: m(torch.rand(16, 64, device="cuda")))


def moe():
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.g = nn.Linear(W, 4)
            s.e = nn.ModuleList(nn.Linear(W, W) for _ in range(4))

        def forward(s, x):
            w, i = s.g(x).softmax(-1).topk(2, -1)
            y = torch.zeros_like(x)
            for k, e in enumerate(s.e):
                t, j = torch.where(i == k)
                if t.numel():
                    y.index_add_(0, t, e(x[t]) * w[t, j, None])
            return y.mean()

    return train(M(), lambda m: m(r(32, W)))


def sam():
    m = nn.Sequential(nn.Linear(W, W), nn.ReLU(), nn.Linear(W, 3)).cuda()
    o = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)

    def step():
        x, y = r(16, W), ri(3, 16)
        F.cross_entropy(m(x), y).backward()
        with torch.no_grad():
            n = torch.stack([p.grad.norm() for p in m.parameters()]).norm()
            e = [p.grad * (0.05 / (n + 1e-12)) for p in m.parameters()]
            [p.add_(q) for p, q in zip(m.parameters(), e)]
        o.zero_grad()
        loss = F.cross_entropy(m(x), y)
        loss.backward()
        with torch.no_grad():
            [p.sub_(q) for p, q in zip(m.parameters(), e)]
        o.step()
        o.zero_grad()
        return loss

    return step


def optimizers():
    ms = []
    optim = torch.optim
    for k in (
        optim.Adadelta,
        optim.Adagrad,
        optim.Adamax,
        optim.ASGD,
        optim.NAdam,
        optim.RAdam,
        optim.RMSprop,
        optim.Rprop,
        optim.SGD,
        optim.Adafactor,
        optim.Muon if hasattr(optim, "Muon") else optim.Adam,
    ):
        m = nn.Linear(W, W, bias=False).cuda()
        ms.append((m, k(m.parameters(), lr=1e-3)))
    for kw in (
        {"amsgrad": True},
        {"foreach": False},
        {"fused": True},
        {"capturable": True},
        {"maximize": True},
    ):
        m = nn.Linear(W, W).cuda()
        ms.append((m, optim.AdamW(m.parameters(), **kw)))

    def step():
        for m, o in ms:
            o.zero_grad()
            loss = m(r(4, W)).mean()
            loss.backward()
            o.step()
        return loss

    return step
