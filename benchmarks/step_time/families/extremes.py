"""Operators whose sizes are extreme in one way, which steps of the ninth set were off by, as
workloads like those in strides.py: products of one row or column, long sums for few results, norms
of few or very short channels, narrow joins, many places of few rows, cells of large batches.

Shapes are drawn at random as networks have them; `part` says which part of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from off import run_both_ways
from operators import BF16, FP16, FP32, both, normal, step_of
from strides import drawn
from torch import nn

DTYPES = (BF16, BF16, FP16, FP32, FP32)
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
MANY = (1000, 4000, 16_000, 50_000, 200_000, 600_000, 1_200_000)


@contextmanager
def precision_of(draw: random.Random) -> Iterator[torch.dtype]:
    """In fp32 now and then with TF32."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = draw.random() < 0.6
    try:
        yield draw.choice(DTYPES)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def products(*, part: int = 0) -> Callable[[], Any]:
    """Of very many small matrices, of which one has a single row or column; of a few with long
    sums, as gradients of layers in blocks are; of plain layers."""

    def thin(draw: random.Random) -> None:
        number = draw.choice(MANY)
        wide, narrow = draw.choice((8, 16, 32, 64, 128, 256, 768)), draw.choice((1, 2, 4, 8, 16))
        if not 1e6 < number * wide * narrow < 1.5e9:
            return
        with precision_of(draw) as dtype:
            x = normal(number, wide, narrow, dtype=dtype)
            one = normal(number, narrow, 1, dtype=dtype)
            both(torch.bmm, x, one)  # with a product of a column and a row in the gradient
            row = normal(number, 1, wide, dtype=dtype)
            both(torch.bmm, row, x)

    def long(draw: random.Random) -> None:
        number, rows = draw.choice((2, 4, 8, 8, 16, 32)), int(10 ** draw.uniform(3, 5.3))
        inside, outside = (draw.choice((16, 32, 48, 64, 96, 128, 256, 512)) for _ in "io")
        if not 2e6 < number * rows * max(inside, outside) < 3e8:
            return
        with precision_of(draw) as dtype:
            x, w = (normal(number, *s, dtype=dtype) for s in ((rows, inside), (inside, outside)))
            both(torch.bmm, x, w)
            last = normal(rows, number, inside, dtype=dtype)
            both(lambda x, w: torch.einsum("rni,nio->rno", x, w), last, w)

    def wide(draw: random.Random) -> None:
        number, rows = draw.choice((2, 4, 8, 16, 64)), draw.choice((512, 2048, 8192, 24_576))
        inside, outside = (draw.choice((512, 768, 1024, 1408, 2048)) for _ in "io")
        if not 1e9 < number * rows * inside * outside < 4e11:
            return
        with precision_of(draw) as dtype:
            x, w = (normal(number, *s, dtype=dtype) for s in ((rows, inside), (inside, outside)))
            both(torch.bmm, x, w)
            turned = normal(number, outside, inside, dtype=dtype)
            both(lambda x, w: torch.bmm(x, w.transpose(1, 2)), x, turned)

    def layer(draw: random.Random) -> None:
        rows = draw.choice((2048, 8192, 16_384, 28_672, 57_344, 100_352, 200_704))
        inside, outside = (draw.choice((128, 256, 384, 512, 768, 1024, 2048, 3072)) for _ in "io")
        if not 1e8 < rows * inside * outside < 2e11:
            return
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = True
        x, w, b = normal(rows, inside), normal(outside, inside), normal(outside)
        both(F.linear, x, w, *((b,) if draw.random() < 0.6 else ()))
        torch.backends.cuda.matmul.allow_tf32 = before

    draw = random.Random(701 + part)
    cases = drawn(draw, 60, thin) + drawn(draw, 60, long)
    return step_of(cases + drawn(draw, 25, wide) + drawn(draw, 40, layer))


def norms(*, part: int = 0) -> Callable[[], Any]:
    """Group norms of lines of a few steps and of volumes; batch norms without weights, which are
    torch's own, and instance norms, with any number of channels; weight norms."""

    def groups(draw: random.Random) -> None:
        channels = draw.choice((16, 32, 64, 128, 256, 512, 1024, 2048))
        number = draw.choice((1, 4, 8, 8, 16, 32, channels))
        size = draw.choice((2, 4, 8, 16, 32, 64, 256, 1024, 16_384, 110_592, 884_736))
        rows = int(10 ** draw.uniform(6, 8)) // (channels * size)
        if not 1 <= rows <= 1 << 16 or channels % number:
            return
        x, w, b = normal(rows, channels, size, dtype=draw.choice(DTYPES)), *_two(channels)
        w, b = (t.to(x.dtype).requires_grad_() for t in (w, b))
        both(lambda x, w, b: F.group_norm(x, number, w, b), x, w, b)

    def batches(draw: random.Random) -> None:
        dims, channels = draw.choice((2, 2, 3)), draw.choice((3, 8, 16, 32, 64, 128, 256, 512))
        size, batch = draw.choice((4, 8, 16, 32, 64, 128, 256)), draw.choice((1, 2, 8, 32, 128))
        if not 5e5 < batch * channels * size**dims < 1.5e8:
            return
        x = torch.randn(batch, channels, *[size] * dims, device="cuda", dtype=draw.choice(DTYPES))
        if draw.random() < 0.35:
            x = x.to(memory_format=LAST[dims + 2])
        x = x.requires_grad_()
        both(lambda x: F.batch_norm(x, *_two(channels), training=True), x)
        both(lambda x: F.instance_norm(x), x)
        w, b = (t.requires_grad_() for t in _two(channels))
        both(lambda x, w, b: F.instance_norm(x, weight=w, bias=b), x, w, b)

    def weights(draw: random.Random) -> None:
        sizes = (draw.choice((32, 128, 512, 1024)), draw.choice((1, 16, 64, 256, 1024)))
        kernel = draw.choice(((), (1,), (3,), (7,), (5, 1), (3, 9), (3, 3)))
        w = normal(*sizes, *kernel)
        dim = 0 if draw.random() < 0.7 else w.dim() - 1
        g = torch.norm_except_dim(w.detach(), 2, dim).requires_grad_()
        both(lambda w, g: torch._weight_norm(w, g, dim), w, g)

    draw = random.Random(709 + part)
    cases = drawn(draw, 70, groups) + drawn(draw, 70, batches)
    return step_of(cases + drawn(draw, 40, weights))


def _two(channels: int) -> list[torch.Tensor]:
    return [torch.zeros(channels, device="cuda"), torch.ones(channels, device="cuda")]


def joined(*, part: int = 0) -> Callable[[], Any]:
    """Columns of one or a few elements beside wide ones, and pieces that do not lie densely."""

    def columns(draw: random.Random) -> None:
        rows, dtype = int(10 ** draw.uniform(4.5, 6.7)), draw.choice(DTYPES)
        widths = [draw.choice((1, 1, 2, 3, 5, 8, 16, 32, 64, 128, 256)) for _ in range(8)]
        widths = widths[: draw.choice((2, 3, 4, 6, 8))]
        if not 1e6 < rows * sum(widths) < 3e8:
            return
        given = [torch.empty(rows, n, device="cuda", dtype=dtype) for n in widths]
        torch.cat(given, -1)
        as_films = [t.view(-1, 1, t.shape[-1]) for t in given]
        torch.cat([t.expand(-1, 1, -1) for t in as_films], -1)
        wider = [torch.empty(rows, 2 * n, device="cuda", dtype=dtype)[:, :n] for n in widths]
        if rows * sum(widths) < 1e8:
            torch.cat(wider, -1)
            torch.cat([wider[0], *given[1:]], -1)

    def turned(draw: random.Random) -> None:
        batch, length = draw.choice((2, 8, 32, 64)), draw.choice((196, 392, 784, 1568, 2048))
        heads, width = draw.choice((3, 6, 8, 12, 16)), draw.choice((32, 60, 64, 72, 80, 96, 128))
        if not 1e6 < batch * length * heads * width < 1e8:
            return
        x = torch.empty(batch, length, heads, width, device="cuda", dtype=draw.choice(DTYPES))
        if draw.random() < 0.6:
            x = x.transpose(1, 2)
        parts = draw.choice((2, 3, 4))
        torch.cat(x.chunk(parts, -1), -1)
        own = width // parts
        torch.cat((-x[..., own : 2 * own], x[..., :own]), -1)
        pieces = [x[..., n * own : (n + 1) * own] for n in range(parts)]
        torch.cat((*pieces, x[..., parts * own :]), -1) if width % parts else torch.cat(pieces, -1)
        torch.stack((-x[..., 1::2], x[..., ::2]), -1)
        torch.stack(pieces, -1)
        torch.cat([p.contiguous() for p in pieces], -1)

    draw = random.Random(719 + part)
    return step_of(drawn(draw, 60, columns) + drawn(draw, 45, turned))


def few_rows(*, part: int = 0) -> Callable[[], Any]:
    """Rows of a small table that very many places name, and their gradients."""

    def case(draw: random.Random) -> None:
        rows, width = draw.choice((2, 8, 40, 200, 1000, 10_000)), draw.choice((1, 8, 64, 256, 1024))
        number = draw.choice((10_000, 60_000, 200_000, 500_000, 1_200_000))
        if not 5e5 < number * width < 1.5e9:
            return
        table = normal(rows, width, dtype=draw.choice(DTYPES))
        index = torch.randint(rows, (number,), device="cuda")
        if draw.random() < 0.3:
            index = index.sort().values
        both(lambda t: t[index], table)
        both(lambda t: t.index_select(0, index), table)
        both(lambda t: F.embedding(index, t), table)

    draw = random.Random(727 + part)
    return step_of(drawn(draw, 70, case))


def cells(*, part: int = 0) -> Callable[[], Any]:
    """cuDNN's recurrent networks of large batches, of one layer or two."""
    draw, cases = random.Random(733 + part), []
    while len(cases) < 40:
        kind = draw.choice((nn.LSTM, nn.LSTM, nn.LSTM, nn.GRU, nn.GRU, nn.RNN))
        inside, width = draw.choice((16, 64, 128, 256, 512)), draw.choice((32, 64, 128, 256, 512))
        batch = draw.choice((256, 512, 1024, 2048, 4096, 8192))
        length, layers = draw.choice((8, 24, 48, 96, 168, 300)), draw.choice((1, 1, 1, 2))
        dtype = draw.choice((FP32, FP32, FP32, BF16, FP16))
        if not 5e5 < batch * length * width * layers < 1.2e8 or length * layers > 300:
            continue
        more = {"batch_first": draw.random() < 0.5, "bidirectional": draw.random() < 0.3}
        network = kind(inside, width, layers, **more).to("cuda", dtype)
        cases.append(run_both_ways(network, batch, length))
    return step_of(cases)
