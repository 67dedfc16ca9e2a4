"""Steps with loops and conditions on computed values, and ways to save memory."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from programs.common import W, r, ri, train


def detr():
    m = nn.Linear(W, 4)

    def f(m):
        b = m(r(2, 10, W)).sigmoid()
        t = torch.rand(2, 3, 4, device="cuda")
        C = torch.cdist(b.flatten(0, 1), t.flatten(0, 1), p=1).view(2, 10, -1).detach().cpu()
        i = C[0].argmin(0)
        return F.l1_loss(b[0, i[:3]], t[0])

    return train(m, f)


def anchor_nms():
    m = nn.Linear(W, 5)

    def f(m):
        y = m(r(100, W))
        s = y[:, 4].sigmoid()
        keep = s > 0.05
        b = y[keep, :4]
        s = s[keep]
        o = s.argsort(descending=True)
        res = []
        while o.numel() > 0 and len(res) < 10:
            i = o[0]
            res.append(i)
            iou = (b[o[1:]] - b[i]).abs().sum(-1)
            o = o[1:][iou > 0.5]
        return b[torch.stack(res)].mean() + s.mean()

    return train(m, f)


def tacotron_stop():
    c = nn.GRUCell(W, W)

    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.c = c
            s.o = nn.Linear(W, W)
            s.s = nn.Linear(W, 1)

    def f(m):
        h = torch.zeros(4, W, device="cuda")
        x = h
        out = []
        while True:
            h = m.c(x, h)
            x = m.o(h)
            out.append(x)
            if torch.sigmoid(m.s(h)).max() > 0.9999 or len(out) >= 15:
                break
        return torch.stack(out).mean()

    return train(M(), f)


def neural_ode():
    m = nn.Sequential(nn.Linear(W, W), nn.Tanh(), nn.Linear(W, W))

    def f(m):
        y = r(8, W)
        t, h = 0.0, 0.1
        n = 0
        while t < 1.0 and n < 200:
            k1 = m(y)
            k2 = m(y + h * k1)
            err = (h * (k2 - k1)).norm() / 8
            n += 1
            if err.item() < 1.0:
                y = y + h * (k1 + k2) / 2
                t += h
            h = min(1 - t if t < 1 else h, h * min(2.0, max(0.2, 0.9 / err.item() ** 0.5))) or 0.1
        return y.mean()

    return train(m, f)


def deq():
    m = nn.Linear(W, W)

    def f(m):
        x = r(8, W)
        z = torch.zeros_like(x)
        with torch.no_grad():
            for _ in range(30):
                zn = torch.tanh(m(z) + x)
                if (zn - z).norm() / (zn.norm() + 1e-8) < 1e-4:
                    break
                z = zn
        return torch.tanh(m(z) + x).mean()

    return train(m, f)


def checkpoint():
    from torch.utils.checkpoint import checkpoint

    m = nn.Sequential(*[nn.Linear(W, W) for _ in range(4)])

    def f(m):
        x = r(8, W)
        for layer in m:
            x = checkpoint(layer, x, use_reentrant=False)
        return x.mean()

    return train(m, f)


def crf():
    T = 5

    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.loss = nn.Linear(W, T)
            s.t = nn.Parameter(torch.randn(T, T))

        def forward(s, x, y, mask):
            e = s.loss(x)
            a = e[:, 0]
            for i in range(1, x.shape[1]):
                n = torch.logsumexp(a[:, :, None] + s.t + e[:, i, None], 1)
                a = torch.where(mask[:, i, None], n, a)
            sc = e.gather(2, y[..., None]).squeeze(-1).sum(1) + s.t[y[:, :-1], y[:, 1:]].sum(1)
            return (a.logsumexp(1) - sc).mean()

    return train(
        M(),
        lambda m: m(
            r(4, 9, W), ri(5, 4, 9), torch.arange(9, device="cuda")[None] < ri(9, 4)[:, None]
        ),
    )


def forward_ad():
    m = nn.Linear(W, W)
    import torch.autograd.forward_ad as fwAD

    def f(m):
        with fwAD.dual_level():
            y = m(fwAD.make_dual(r(4, W), r(4, W)))
            p, t = fwAD.unpack_dual(y)
            return p.mean() + t.mean()

    return train(m, f)


def bf16_autocast_conv():
    m = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 3),
    ).to(memory_format=torch.channels_last)

    def f(m):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return F.cross_entropy(
                m(r(2, 3, 16, 16).to(memory_format=torch.channels_last)), ri(3, 2)
            )

    return train(m, f)


def quantize_fake():
    from torch.ao.quantization import FakeQuantize

    m = nn.Sequential(nn.Linear(W, W), FakeQuantize())
    return train(m, lambda m: m(r(4, W)).mean())


def swin_mask():
    m = nn.Linear(W, W)

    def f(m):
        x = m(r(1, 8, 8, W)).roll((-2, -2), (1, 2))
        im = torch.zeros(1, 8, 8, 1, device="cuda")
        c = 0
        for h in (slice(0, -4), slice(-4, -2), slice(-2, None)):
            for w in (slice(0, -4), slice(-4, -2), slice(-2, None)):
                im[:, h, w] = c
                c += 1
        mw = im.view(1, 2, 4, 2, 4, 1).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16)
        a = mw[:, None] - mw[:, :, None]
        a = a.masked_fill(a != 0, -100.0).masked_fill(a == 0, 0.0)
        return x.mean() + a.mean()

    return train(m, f)


def nms():
    from vramcast.simulate import kernels

    if not hasattr(torch.ops.torchvision, "nms"):
        torch.library.define(
            "torchvision::nms", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        )
        kernels.install_for("torchvision", kernels.Target.gpu.device.library)
    m = nn.Linear(W, 5)

    def f(m):
        y = m(r(300, W))
        k = torch.ops.torchvision.nms(y[:, :4].detach(), y[:, 4].detach(), 0.5)
        return y[k[:100]].mean()

    return train(m, f)
