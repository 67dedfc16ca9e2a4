"""Operators over many sizes, each family a workload whose step calls them one after the other.

record.py profiles them on a GPU like the steps of any workload; predicted, they are simulated like
any workload too, so that a recorded kernel meets what the simulation says of its operator.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F

Case = Callable[[], Any]
FP32, BF16, FP16 = torch.float32, torch.bfloat16, torch.float16
MOST_BYTES = 1 << 28


def step_of(cases: Iterable[Case]) -> Callable[[], torch.Tensor]:
    every = list(cases)

    def step() -> torch.Tensor:
        for case in every:
            with suppress(RuntimeError):  # what a GPU does not take is left out
                case()
        return torch.zeros((), device="cuda")

    return step


def normal(*sizes: int, dtype: torch.dtype = FP32) -> torch.Tensor:
    return torch.randn(*sizes, device="cuda", dtype=dtype, requires_grad=True)


def both(call: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> None:
    """Forward, and the gradients of all inputs that have one."""
    y = call(*inputs)
    wanted = [x for x in inputs if x.requires_grad]
    torch.autograd.grad(y, wanted, torch.ones_like(y))


def gathers() -> Callable[[], torch.Tensor]:
    """What graph networks do: rows of nodes to edges, and sums back."""

    def case(nodes: int, edges: int, width: int, dtype: torch.dtype) -> None:
        x = normal(nodes, width, dtype=dtype)
        e = normal(edges, width, dtype=dtype)
        index = torch.randint(0, nodes, (edges,), device="cuda")
        wide = index[:, None].expand(edges, width)
        both(lambda x: x.index_select(0, index), x)
        both(lambda x: x[index], x)
        both(lambda x: F.embedding(index, x), x)
        both(lambda x: x.gather(0, wide), x)
        both(lambda e: e.new_zeros(nodes, width).index_add(0, index, e), e)
        both(lambda e: e.new_zeros(nodes, width).scatter_add(0, wide, e), e)
        e.detach().new_zeros(nodes, width).scatter_reduce(0, wide, e.detach(), "amax")
        torch.zeros(nodes, device="cuda").scatter_add_(0, index, torch.ones(edges, device="cuda"))

    sizes = [
        (nodes, edges, width, FP32)
        for nodes, edges, width in product(
            (1_000, 10_000, 100_000), (5_000, 50_000, 500_000, 2_000_000), (1, 4, 40, 128, 512)
        )
        if edges * width * 4 <= 2 * MOST_BYTES and edges >= nodes
    ]
    sizes += [(10_000, edges, width, BF16) for edges in (20_000, 200_000) for width in (8, 128)]
    return step_of(lambda s=s: case(*s) for s in sizes)


def lookups() -> Callable[[], torch.Tensor]:
    """Sorting, nearest neighbours, tables of vectors, several indices."""

    def nearest(batch: int, points: int, width: int, count: int) -> None:
        x = normal(batch, points, width)
        distances = torch.cdist(x, x)
        found = distances.topk(min(count, points), largest=False).indices
        numbers = torch.arange(batch, device="cuda")[:, None, None]
        both(lambda x: x[numbers, found], x)
        distances.argmin(-1)
        distances.detach().sort(-1)

    def quantized(rows: int, width: int, codes: int) -> None:
        x, table = normal(1, rows, width), normal(1, codes, width)
        found = torch.cdist(x, table).detach().argmin(-1)
        onehot = F.one_hot(found, codes).float()
        onehot.sum(1)
        torch.einsum("hnd,hnc->hcd", x.detach(), onehot)
        found.flatten().bincount(minlength=codes)
        table.detach()[0][found[0]]
        x.detach().norm(dim=-1)

    cases: list[Case] = [
        lambda s=s: nearest(*s) for s in product((4, 16), (128, 1024, 2048), (3, 64, 128), (16,))
    ]
    cases += [lambda s=s: quantized(*s) for s in product((2048, 32768), (64, 256), (512, 2048))]
    return step_of(cases)


def norms() -> Callable[[], torch.Tensor]:
    def over_batch(batch: int, channels: int, size: int, dtype: torch.dtype) -> None:
        x = normal(batch, channels, size, size, dtype=dtype)
        scale, shift = (normal(channels) for _ in range(2))
        mean, variance = (torch.ones(channels, device="cuda") for _ in range(2))
        both(lambda x, w, b: F.batch_norm(x, mean, variance, w, b, True), x, scale, shift)
        F.batch_norm(x.detach(), mean, variance, scale.detach(), shift.detach(), False)
        weight, bias = (normal(channels, dtype=dtype) for _ in range(2))
        both(lambda x, w, b: F.group_norm(x, min(32, channels // 4), w, b), x, weight, bias)
        both(lambda x: F.instance_norm(x), x)

    def over_rows(rows: int, width: int, dtype: torch.dtype) -> None:
        x = normal(rows, width, dtype=dtype)
        weight, bias = (normal(width, dtype=dtype) for _ in range(2))
        both(lambda x, w, b: F.layer_norm(x, (width,), w, b), x, weight, bias)
        both(lambda x, w: F.rms_norm(x, (width,), w), x, weight)
        both(lambda x: x.softmax(-1), x)
        both(lambda x: x.log_softmax(-1), x)
        both(lambda x: F.dropout(x, 0.1), x)
        labels = torch.randint(0, width, (rows,), device="cuda")
        both(lambda x: F.cross_entropy(x, labels), x)
        both(lambda x, w, b: F.batch_norm(x, None, None, w, b, True), x, weight, bias)
        both(lambda x: F.normalize(x, dim=-1), x)

    cases: list[Case] = [
        lambda s=s: over_batch(*s)
        for s in product((2, 16, 128), (16, 64, 512), (4, 16, 64, 112), (FP32, BF16))
        if s[0] * s[1] * s[2] ** 2 * 4 <= MOST_BYTES
    ]
    cases += [
        lambda s=s: over_rows(*s)
        for s in product((32, 1024, 32768, 400_000), (40, 192, 1024, 8192), (FP32, BF16))
        if s[0] * s[1] * 4 <= MOST_BYTES
    ]
    return step_of(cases)


UNARY = (
    *("exp", "log1p", "sqrt", "rsqrt", "sin", "cos", "tanh", "sigmoid", "abs", "neg", "square"),
    *("reciprocal", "erf", "sign", "floor", "relu", "isnan", "logical_not"),
)
ACTIVATIONS = (
    *("silu", "gelu", "leaky_relu", "elu", "softplus", "hardswish", "hardtanh", "relu6", "mish"),
    *("hardsigmoid", "logsigmoid"),
)


def elementwise() -> Callable[[], torch.Tensor]:
    def case(rows: int, width: int, dtype: torch.dtype) -> None:
        x, y = normal(rows, width, dtype=dtype), normal(rows, width, dtype=dtype)
        row, column = normal(1, width, dtype=dtype), normal(rows, 1, dtype=dtype)
        one = x.detach()
        for name in UNARY:
            getattr(torch, name)(one)
        for name in ACTIVATIONS:
            both(getattr(F, name), x)
        for call in (torch.add, torch.sub, torch.mul, torch.div, torch.maximum, torch.atan2):
            both(call, x, y)
            both(call, x, row)
            both(call, x, column)
        turned = one.view(width, rows).t()
        both(torch.mul, x, turned)
        both(torch.where, one > 0, x, y)
        both(lambda x: x.clamp(-1, 1), x)
        both(lambda x: x.pow(3), x)
        both(lambda x: torch.cat([x, x], -1), x)
        both(lambda x: x.flip(-1), x)
        both(lambda x: x.roll(1, -1), x)
        both(lambda x: F.pad(x, (1, 1)), x)
        both(lambda x: x.masked_fill(one > 0, 0.0), x)
        both(lambda x: x.repeat(1, 2), x)
        torch.stack([one, one])
        turned.contiguous()
        one.float().to(torch.bfloat16).to(torch.float16).double()
        one.clone().exp_().mul_(2.0).add_(one).clamp_(0, 1)
        both(lambda x: x.sum(), x)
        both(lambda x: x.norm(), x)
        both(F.mse_loss, x, y)
        both(F.smooth_l1_loss, x, y)
        both(F.binary_cross_entropy_with_logits, x, y.detach().sigmoid())
        torch.triu(one)
        torch.rand_like(one).bernoulli_(0.5)
        torch.rand_like(one)

    return step_of(
        lambda s=s: case(*s)
        for s in (
            *product((256, 4096, 50_000), (16, 256), (FP32, BF16)),
            *((16, 8, FP32), (500_000, 1, FP32), (200_000, 128, FP32), (65_536, 512, BF16)),
        )
    )


def reductions() -> Callable[[], torch.Tensor]:
    """Over the middle of three dimensions, the last of which may be 1."""

    def case(outer: int, length: int, inner: int, dtype: torch.dtype) -> None:
        x = normal(outer, length, inner, dtype=dtype)
        one = x.detach()
        for name in ("sum", "mean", "amax", "var", "logsumexp", "norm"):
            both(lambda x, name=name: getattr(x, name)(dim=1), x)
        for name in ("cumsum", "softmax", "log_softmax"):
            both(lambda x, name=name: getattr(x, name)(dim=1), x)
        both(lambda x: x.max(1).values, x)
        one.argmax(1)
        (one > 0).any(1)
        one.topk(min(8, length), 1)
        one.sort(1)
        if inner == 1:
            labels = torch.randint(0, length, (outer,), device="cuda")
            both(lambda x: F.cross_entropy(x[..., 0], labels), x)

    sizes = product((1, 32, 4096, 100_000), (8, 100, 1000, 30_000), (1, 16, 512), (FP32, BF16))
    cases = [s for s in sizes if 4096 <= s[0] * s[1] * s[2] <= 30_000_000]
    return step_of(lambda s=s: case(*s) for s in cases)


def products() -> Callable[[], torch.Tensor]:
    """Thin, small and batched ones."""
    draw = random.Random(7)

    def case(rows: int, inner: int, columns: int, dtype: torch.dtype) -> None:
        x, weight = normal(rows, inner, dtype=dtype), normal(columns, inner, dtype=dtype)
        both(lambda x, w: F.linear(x, w), x, weight)
        bias = normal(columns, dtype=dtype)
        F.linear(x.detach(), weight.detach(), bias.detach())

    def batched(batch: int, rows: int, inner: int, columns: int, dtype: torch.dtype) -> None:
        x, y = normal(batch, rows, inner, dtype=dtype), normal(batch, inner, columns, dtype=dtype)
        both(torch.bmm, x, y)

    cases: list[Case] = []
    widths = (1, 3, 16, 40, 64, 100, 128, 192, 256, 300, 512, 768, 1024, 2048, 4096)
    while len(cases) < 220:
        dtype = draw.choice((FP32, FP32, BF16, FP16))
        m, n, k = draw.choice((8, 32, 64, 512, 2048, 4096, 20_000, 50_000, 409_600)), 0, 0
        n, k = draw.choice(widths), draw.choice(widths)
        if m * max(n, k) * 4 <= MOST_BYTES and m * n * k < 3e11:
            cases.append(lambda s=(m, k, n, dtype): case(*s))
    for _ in range(60):
        s = (draw.choice((4, 16, 96, 512)), *(draw.choice((16, 49, 64, 128, 500)) for _ in "mkn"))
        dtype = draw.choice((FP32, BF16))
        cases.append(lambda s=s, dtype=dtype: batched(*s, dtype))
    return step_of(cases)


def algebra() -> Callable[[], torch.Tensor]:
    """Factorizations and what solves with them, of one matrix and of many."""

    def case(batch: int, size: int) -> None:
        x = torch.randn(batch, size, size, device="cuda")[0 if batch == 1 else slice(None)]
        positive = x @ x.mT + size * torch.eye(size, device="cuda")
        right = torch.randn(*x.shape[:-1], 8, device="cuda")
        both(torch.linalg.cholesky, positive.requires_grad_())
        factor = torch.linalg.cholesky_ex(positive.detach()).L
        torch.linalg.solve_triangular(factor, right, upper=False)
        torch.cholesky_solve(right, factor)
        both(torch.linalg.inv, x.requires_grad_())
        torch.linalg.solve(x.detach(), right)
        torch.linalg.slogdet(x.detach())
        torch.linalg.qr(x.detach())
        if size <= 512:
            torch.linalg.eigh(positive.detach())
        if size <= 128:
            torch.linalg.svd(x.detach())

    sizes = (*product((1,), (32, 128, 512, 1000, 2000, 4096)), *product((16, 256), (8, 32, 128)))
    return step_of(lambda s=s: case(*s) for s in sizes)
