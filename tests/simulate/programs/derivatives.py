"""Derivatives of derivatives, torch.func, complex numbers, Fourier transforms, linear algebra."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

from programs.common import W, r, ri, train


def func_grad():
    m = nn.Linear(W, 1).cuda()
    ps = dict(m.named_parameters())
    o = torch.optim.SGD(m.parameters(), lr=0.1)

    def step():
        def loss(p, x, y):
            return F.mse_loss(torch.func.functional_call(m, p, (x,)), y)

        g = torch.func.grad(loss)({k: v.detach() for k, v in ps.items()}, r(16, W), r(16, 1))
        for k, v in ps.items():
            v.grad = g[k]
        o.step()

    return step


def per_sample_grads():
    m = nn.Sequential(nn.Linear(W, W), nn.ReLU(), nn.Linear(W, 3)).cuda()
    ps = {k: v.detach() for k, v in m.named_parameters()}

    def step():
        def loss(p, x, y):
            return F.cross_entropy(torch.func.functional_call(m, p, (x[None],)), y[None])

        g = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(ps, r(16, W), ri(3, 16))
        with torch.no_grad():
            for k, v in ps.items():
                v.sub_(g[k].mean(0) * 0.1)

    return step


def jacrev():
    m = nn.Sequential(nn.Linear(4, W), nn.Tanh(), nn.Linear(W, 3))

    def f(m):
        J = torch.func.vmap(torch.func.jacrev(m))(r(16, 4))
        H = torch.func.vmap(torch.func.hessian(lambda x: m(x).sum()))(r(16, 4))
        return J.square().mean() + H.square().mean()

    return train(m, f)


def jvp_jacfwd():
    m = nn.Sequential(nn.Linear(4, W), nn.Tanh(), nn.Linear(W, 3))

    def f(m):
        y, t = torch.func.jvp(m, (r(16, 4),), (r(16, 4),))
        J = torch.func.jacfwd(m)(r(4))
        return y.mean() + t.mean() + J.mean()

    return train(m, f)


def ensemble_vmap():
    ms = [nn.Linear(W, 3).cuda() for _ in range(4)]
    ps, bs = torch.func.stack_module_state(ms)
    base = copy.deepcopy(ms[0]).to("meta")
    o = torch.optim.Adam(ps.values())

    def step():
        o.zero_grad()
        y = torch.vmap(
            lambda p, b, x: torch.func.functional_call(base, (p, b), (x,)), (0, 0, None)
        )(ps, bs, r(16, W))
        loss = y.mean()
        loss.backward()
        o.step()
        return loss

    return step


def autograd_functional():
    m = nn.Sequential(nn.Linear(4, W), nn.Tanh(), nn.Linear(W, 1))

    def f(m):
        x = r(4)
        J = torch.autograd.functional.jacobian(m, x, create_graph=True)
        H = torch.autograd.functional.hessian(lambda x: m(x).sum(), x, create_graph=True)
        v = torch.autograd.functional.hvp(lambda x: m(x).sum(), x, r(4), create_graph=True)[1]
        return J.mean() + H.mean() + v.mean()

    return train(m, f)


def gradient_penalty():
    d = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 1, 3, 2, 1))

    def f(d):
        x = r(4, 3, 16, 16, requires_grad=True)
        y = d(x)
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return y.mean() + 10 * (g.flatten(1).norm(2, 1) - 1).square().mean()

    return train(d, f)


def pinn():
    m = nn.Sequential(nn.Linear(2, W), nn.Tanh(), nn.Linear(W, W), nn.Tanh(), nn.Linear(W, 1))

    def f(m):
        x = torch.rand(64, 2, device="cuda", requires_grad=True)
        u = m(x)
        (g,) = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)
        (uxx,) = torch.autograd.grad(g[:, 0], x, torch.ones_like(g[:, 0]), create_graph=True)
        return (g[:, 1] - uxx[:, 0]).square().mean()

    return train(m, f)


def maml():
    m = nn.Sequential(nn.Linear(W, W), nn.ReLU(), nn.Linear(W, 5))

    def f(m):
        loss = 0
        for _ in range(2):
            p = dict(m.named_parameters())
            for _ in range(2):
                li = F.cross_entropy(torch.func.functional_call(m, p, (r(10, W),)), ri(5, 10))
                g = torch.autograd.grad(li, p.values(), create_graph=True)
                p = {k: v - 0.1 * q for (k, v), q in zip(p.items(), g)}
            loss = loss + F.cross_entropy(torch.func.functional_call(m, p, (r(10, W),)), ri(5, 10))
        return loss

    return train(m, f)


def fno():
    class S(nn.Module):
        def __init__(s):
            super().__init__()
            s.w = nn.Parameter(torch.randn(8, 8, 6, 6, dtype=torch.cfloat))
            s.loss = nn.Conv2d(8, 8, 1)

        def forward(s, x):
            f = torch.fft.rfft2(x)
            o = torch.zeros_like(f)
            o[:, :, :6, :6] = torch.einsum("bixy,ioxy->boxy", f[:, :, :6, :6], s.w)
            return F.gelu(torch.fft.irfft2(o, s=x.shape[-2:]) + s.loss(x))

    return train(nn.Sequential(S(), S()), lambda m: m(r(2, 8, 16, 16)).mean())


def complex():
    w = nn.ParameterList([nn.Parameter(torch.randn(W, W, dtype=torch.cfloat))])

    def f(w):
        x = torch.complex(r(8, W), r(8, W))
        y = x @ w[0]
        y = torch.view_as_real(y * y.conj()).abs()
        z = torch.polar(torch.rand(8, device="cuda"), torch.rand(8, device="cuda"))
        return y.mean() + z.real.mean() + torch.view_as_complex(y).abs().mean() + y.angle().mean()

    return train(w, f)


def rope_complex():
    m = nn.Linear(W, W)

    def f(m):
        x = m(r(2, 10, W))
        fr = torch.polar(
            torch.ones(10, W // 2, device="cuda"), torch.rand(10, W // 2, device="cuda")
        )
        return (
            torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * fr)
            .flatten(2)
            .mean()
        )

    return train(m, f)


def stft():
    m = nn.Conv1d(1, 1, 9, padding=4)
    w = torch.hann_window(64)

    def f(m):
        y = m(r(2, 1, 1024)).squeeze(1)
        S = torch.stft(y, 64, 16, window=w.cuda(), return_complex=True)
        mag = S.abs()
        z = torch.istft(S, 64, 16, window=w.cuda(), length=1024)
        return mag.mean() + (mag + 1e-5).log().mean() + z.mean()

    return train(m, f)


def fft_all():
    w = nn.ParameterList([nn.Parameter(torch.randn(4, 16, 16))])

    def f(w):
        x = w[0]
        return (
            sum(
                g(x).abs().mean()
                for g in (
                    torch.fft.fft,
                    torch.fft.fft2,
                    torch.fft.fftn,
                    torch.fft.rfft,
                    torch.fft.rfftn,
                    torch.fft.ifft,
                    torch.fft.hfft,
                    torch.fft.ihfft,
                )
            )
            + torch.fft.fftshift(torch.fft.fftfreq(16, device="cuda")).sum()
        )

    return train(w, f)


def linalg():
    w = nn.ParameterList([nn.Parameter(torch.randn(3, 8, 8))])

    def f(w):
        A = w[0]
        S = A @ A.mT + torch.eye(8, device="cuda")
        b = r(3, 8, 2)
        u, s, v = torch.linalg.svd(A, full_matrices=False)
        q, rr = torch.linalg.qr(A)
        ev, evec = torch.linalg.eigh(S)
        L = torch.linalg.cholesky(S)
        x = torch.linalg.solve(S, b)
        i = torch.linalg.inv(S)
        d = torch.linalg.slogdet(S)[1]
        t = torch.linalg.solve_triangular(L, b, upper=False)
        c = torch.cholesky_solve(b, L)
        ls = torch.linalg.lstsq(A, b).solution
        e = torch.linalg.matrix_exp(A)
        pn = torch.linalg.pinv(A)
        n = torch.linalg.matrix_norm(A, "nuc")
        lu = torch.linalg.lu_factor(A)[0]
        de = torch.linalg.det(S)
        ci = torch.cholesky_inverse(L)
        sv = torch.linalg.svdvals(A)
        evv = torch.linalg.eigvalsh(S)
        return sum(
            z.mean()
            for z in (u, s, v, q, rr, ev, evec, L, x, i, d, t, c, ls, e, pn, n, lu, de, ci, sv, evv)
        )

    return train(w, f)


def eig():
    w = nn.ParameterList([nn.Parameter(torch.randn(8, 8))])

    def f(w):
        a, b = torch.linalg.eig(w[0])
        return (
            a.abs().mean()
            + b.abs().mean()
            + torch.linalg.matrix_power(w[0], 3).mean()
            + torch.linalg.cond(w[0])
            + torch.linalg.matrix_rank(w[0])
        )

    return train(w, f)


def lowrank():
    m = nn.Linear(W, W)

    def f(m):
        u, s, v = torch.svd_lowrank(m.weight, q=4)
        return s.mean() + torch.pca_lowrank(m(r(20, W)), q=3)[1].mean()

    return train(m, f)


def newton_schulz():
    m = nn.Linear(W, W).cuda()

    def step():
        loss = m(r(8, W)).square().mean()
        loss.backward()
        with torch.no_grad():
            g = m.weight.grad.bfloat16()
            X = g / (g.norm() + 1e-7)
            for _ in range(5):
                A = X @ X.T
                X = 3.4 * X + (-4.7 * A + 2.0 * A @ A) @ X
            m.weight.add_(X.float(), alpha=-0.02)
        m.zero_grad()
        return loss

    return step
