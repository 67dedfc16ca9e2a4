"""What a program sees of values that were not computed: those of a healthy run.

Each assertion holds in a training run that goes well.
"""

from __future__ import annotations

import math

import torch
import torch.distributions as D
import torch.nn.functional as F
from torch import nn

from programs.common import r

# Contents of this size are not computed.
N = 200


def nothing_is_infinite_or_nan():
    model = nn.Linear(N, N).cuda()

    def step():
        x = r(N, N)
        y = model(x)
        assert torch.isfinite(y).all() and torch.isfinite(y.mean())
        assert not torch.isnan(y).any()
        assert not torch.isnan(y).any().item()
        assert not torch.isinf(y).any()
        assert torch.isnan(y).sum() == 0
        assert y[torch.isnan(y)].numel() == 0
        assert y[torch.isfinite(y)].numel() == y.numel()
        # as DeepSpeed looks for an overflow
        assert (torch.isinf(y) | torch.isnan(y)).float().max().item() == 0
        return y.mean()

    return step


def losses_and_norms_fall():
    model = nn.Linear(N, N).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    seen = []
    best = [torch.inf]

    def step():
        loss = F.mse_loss(model(r(N, N)), r(N, N))
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        if norm > 1.0:
            raise RuntimeError("the gradients explode")
        optimizer.step()
        optimizer.zero_grad()
        plateau.step(loss)
        value = loss.item()
        assert math.isfinite(value) and value > 0 and not math.isnan(loss.cpu().item())
        assert not seen or 0.9 * seen[-1] < value < seen[-1]
        seen.append(value)
        assert loss < best[0]
        best[0] = loss.detach()
        assert optimizer.param_groups[0]["lr"] == 0.1
        return loss

    return step


def the_loss_scaler_never_skips():
    model = nn.Linear(N, N).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    scaler = torch.amp.GradScaler("cuda")

    def step():
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(r(N, N)).float().square().mean()
        scaler.scale(loss).backward()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == before and optimizer.state
        return loss

    return step


def checks_hold():
    def step():
        x = r(N, N)
        probabilities = x.softmax(-1)
        if not ((probabilities.sum(-1) - 1).abs() < 1e-6).all():
            raise ValueError("not normalised")
        assert torch.equal(x, x.clone()) and torch.allclose(x, x * 1.0000001)
        assert x.abs().max() < 1e4
        window = torch.hann_window(64, device="cuda")
        waves = torch.stft(x.flatten(), 64, window=window, return_complex=True)
        assert torch.istft(waves, 64, window=window).shape == (N * N,)
        loss = 0
        positive = F.softplus(x)
        for d in (
            D.Normal(x, positive),
            D.Categorical(logits=x),
            D.Beta(positive, positive),
            D.Dirichlet(positive),
            D.OneHotCategorical(logits=x),
        ):
            loss = loss - d.log_prob(d.rsample() if d.has_rsample else d.sample()).mean()
        return loss

    return step


def loops_end():
    model = nn.Linear(N, N).cuda()

    def step():
        x = model(r(N, N)).detach()
        passes = 0
        while (x - model(x)).norm() > 1e-3:
            x = model(x).detach()
            passes += 1
        assert 1 < passes < 1000
        while not (x > 0).any():
            x = torch.randn_like(x)
        return x.mean()

    return step


def a_loop_that_never_ends():
    def step():
        x = r(8192, 1024) + 1  # too large to be computed
        while x.sum().item() != 17.5:
            pass

    return step


def a_loop_for_a_known_value_that_never_ends():
    def step():
        x = torch.tensor(3.5, device="cuda")
        while x.item() != 16.5:
            pass

    return step


def a_line_search():
    return _line_search(None)


def a_line_search_with_wolfe_conditions():
    return _line_search("strong_wolfe")


def a_history_that_fills_over_several_steps():
    weight = nn.Parameter(r(N, N))
    optimizer = torch.optim.LBFGS([weight], max_iter=10, history_size=25)
    num_steps = 0

    def closure():
        optimizer.zero_grad()
        loss = weight.square().mean()
        loss.backward()
        return loss

    def step():
        nonlocal num_steps
        num_steps += 1
        loss = optimizer.step(closure)
        assert len(optimizer.state[weight]["old_dirs"]) == min(10 * num_steps - 1, 25)
        return loss

    return step


def _line_search(line_search):
    model = nn.Linear(N, N).cuda()
    optimizer = torch.optim.LBFGS(
        model.parameters(), max_iter=12, history_size=5, line_search_fn=line_search
    )
    x = r(N, N)

    def step():
        num_evaluations = 0

        def closure():
            nonlocal num_evaluations
            num_evaluations += 1
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), x)
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        assert num_evaluations >= 10
        assert len(next(iter(optimizer.state.values()))["old_dirs"]) == 5
        return loss

    return step


def boxes_that_hardly_overlap():
    net, points, wanted = torch.nn.Linear(4, 4).cuda(), r(20_000, 4), r(3, 4)

    def step():
        proposed = net(points).detach()
        first = torch.max(wanted[:, None, :2], proposed[:, :2])
        last = torch.min(wanted[:, None, 2:], proposed[:, 2:])
        sides = (last - first).clamp(min=0)
        shared = sides[:, :, 0] * sides[:, :, 1]
        best, _ = (shared / r(3, 20_000)).max(dim=0)
        assert 0 < len(torch.where(best >= 0.5)[0]) < 200
        assert 19_800 < len(torch.where(best < 0.4)[0]) < 20_000
        return best.mean()

    return step
