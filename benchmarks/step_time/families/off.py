"""Operators that steps of the seventh set were off by, as workloads like those in strides.py: thin
and odd products, cells of any width, additions along the last dimension, tensors joined in short
runs, pools and enlarged pictures, norms of rows and of slices, CTC losses, waves.

Shapes are drawn at random as networks have them; `part` says which part of them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from operators import BF16, FP16, FP32, both, normal, step_of
from strides import drawn
from torch import nn

DTYPES = (BF16, BF16, FP16, FP32, FP32)
LAST = torch.channels_last


def products(*, part: int = 0) -> Callable[[], Any]:
    """Very many rows of few columns, widths that are odd, as layers and their gradients have them;
    ensembles of layers."""

    def layer(draw: random.Random, rows: int, inside: int, outside: int) -> None:
        if not 2e5 < rows * max(inside, outside) < 1.2e8 or rows * inside * outside > 4e11:
            return
        dtype = draw.choice(DTYPES)
        x, w = normal(rows, inside, dtype=dtype), normal(outside, inside, dtype=dtype)
        with_bias = draw.random() < 0.4
        b = normal(outside, dtype=dtype)
        torch.backends.cuda.matmul.allow_tf32 = draw.random() < 0.4
        try:
            both(F.linear, x, w, *((b,) if with_bias else ()))
        finally:
            torch.backends.cuda.matmul.allow_tf32 = False

    def thin(draw: random.Random) -> None:
        narrow = (1, 2, 3, 4, 4, 6, 8, 8, 12, 16, 24, 32)
        inside, outside = draw.choice(narrow), draw.choice((*narrow, 64, 128, 256))
        rows = int(10 ** draw.uniform(4.5, 7.2))
        sizes = (inside, outside) if draw.random() < 0.5 else (outside, inside)
        layer(draw, rows, *sizes)

    def odd(draw: random.Random) -> None:
        wide = (33, 65, 100, 129, 150, 257, 300, 385, 515, 650, 1001, 1150, 2049, 10_007, 33_278)
        inside, outside = draw.choice(wide), draw.choice((64, 128, 256, 400, 512, 768, 1024, *wide))
        rows = int(10 ** draw.uniform(2.5, 5.8))
        sizes = (inside, outside) if draw.random() < 0.5 else (outside, inside)
        layer(draw, rows, *sizes)

    def usual(draw: random.Random) -> None:
        widths = (64, 96, 128, 192, 256, 320, 384, 512, 768, 1024, 1536, 2048, 3072)
        layer(draw, int(10 ** draw.uniform(2.5, 5.8)), draw.choice(widths), draw.choice(widths))

    def ensemble(draw: random.Random) -> None:
        number, rows = draw.choice((2, 4, 5, 8, 10, 16, 32)), draw.choice((256, 1024, 4096, 8192))
        inside, outside = (draw.choice((17, 64, 128, 256, 376, 512, 1024)) for _ in "io")
        if not 1e6 < number * rows * max(inside, outside) < 8e7:
            return
        dtype = draw.choice(DTYPES)
        x, w = (normal(number, *s, dtype=dtype) for s in ((rows, inside), (inside, outside)))
        torch.backends.cuda.matmul.allow_tf32 = draw.random() < 0.4
        both(torch.bmm, x, w)
        both(lambda x, w, b: torch.baddbmm(b, x, w), x, w, normal(number, 1, outside, dtype=dtype))
        torch.backends.cuda.matmul.allow_tf32 = False

    draw = random.Random(601 + part)
    cases = drawn(draw, 70, thin) + drawn(draw, 70, odd) + drawn(draw, 40, usual)
    return step_of(cases + drawn(draw, 40, ensemble))


def run_both_ways(network: Any, batch: int, length: int) -> Callable[[], None]:
    """Forward and backward through a recurrent network."""
    steps = (batch, length) if network.batch_first else (length, batch)
    dtype = next(network.parameters()).dtype

    def case() -> None:
        x = torch.randn(*steps, network.input_size, device="cuda", dtype=dtype, requires_grad=True)
        torch.autograd.grad(network(x)[0].sum(), [x, *network.parameters()])

    return case


def cells(*, part: int = 0) -> Callable[[], Any]:
    """cuDNN's recurrent networks of any width, many of them with several layers."""
    draw, cases = random.Random(613 + part), []
    widths = (100, 128, 200, 250, 256, 300, 384, 450, 512, 600, 650, 700, 768, 1000, 1024, 1150)
    while len(cases) < 40:
        kind = draw.choice((nn.LSTM, nn.LSTM, nn.LSTM, nn.GRU, nn.GRU, nn.RNN))
        inside, width = draw.choice((40, 81, 128, 300, 400, 512, 1024)), draw.choice(widths)
        batch = draw.choice((8, 16, 32, 48, 64, 80, 96, 128, 192, 256, 512, 768))
        length = draw.choice((16, 24, 35, 50, 70, 80, 96, 128))
        dtype, layers = draw.choice((FP32, FP32, FP32, BF16, FP16)), draw.choice((1, 1, 2, 2, 3, 4))
        if batch * length * width * layers > 3e7 or length * layers > 300:
            continue
        more = {"batch_first": draw.random() < 0.5, "bidirectional": draw.random() < 0.35}
        network = kind(inside, width, layers, **more).to("cuda", dtype)
        cases.append(run_both_ways(network, batch, length))
    return step_of(cases)


def added(*, part: int = 0) -> Callable[[], Any]:
    """Elements that are chosen along the last dimension, or one in the middle, and their
    gradients."""

    def along(draw: random.Random) -> None:
        batch, heads = draw.choice((2, 8, 16, 32, 56)), draw.choice((1, 4, 8, 12))
        length, chosen = (draw.choice((32, 64, 128, 196, 384, 767, 1024)) for _ in "lc")
        if not 5e5 < batch * heads * length * max(length, chosen) < 1.2e8:
            return
        x = normal(batch, heads, length, length, dtype=draw.choice(DTYPES))
        index = torch.randint(0, length, (chosen,), device="cuda")
        index = index.sort().values if draw.random() < 0.5 else index
        dim = draw.choice((-1, -1, -2, 1))
        index = index % x.shape[dim]
        both(lambda x: x.index_select(dim, index), x)
        if dim == -1:
            wide = index.expand(batch, heads, length, chosen)
            both(lambda x: x.gather(-1, wide), x)
            both(lambda x: x[..., index], x)
            few = torch.randint(0, length, (batch, heads, length, 4), device="cuda")
            both(lambda x: x.gather(-1, few), x)

    def rows(draw: random.Random) -> None:
        samples, length = draw.choice((8, 32, 64, 256)), draw.choice((64, 196, 512, 1024))
        width, kept = draw.choice((32, 128, 256, 768, 1024)), draw.choice((0.25, 0.5, 0.9))
        if not 5e5 < samples * length * width < 8e7:
            return
        x = normal(samples, length, width, dtype=draw.choice(DTYPES))
        order = torch.rand(samples, length, device="cuda").argsort(1)[:, : int(kept * length)]
        both(lambda x: x.gather(1, order[..., None].expand(-1, -1, width)), x)
        number = torch.arange(samples, device="cuda")[:, None]
        both(lambda x: x[number, order], x)
        both(lambda x: x.flatten(0, 1)[order.flatten()], x)
        taken = x.detach()[number, order].flatten(0, 1)
        torch.zeros_like(x.detach().flatten(0, 1)).index_add_(0, order.flatten(), taken)

    draw = random.Random(617 + part)
    return step_of(drawn(draw, 70, along) + drawn(draw, 60, rows))


def warped(*, part: int = 0) -> Callable[[], Any]:
    """Pictures and volumes sampled at points: of attention at a few points, of a flow, of rays."""

    def deformable(draw: random.Random) -> None:
        samples, width = draw.choice((8, 32, 64, 128, 256)), draw.choice((16, 32, 32, 64))
        size, points = draw.choice((7, 8, 14, 16, 25, 32, 50, 64, 100)), draw.choice((1, 4, 4, 8))
        queries = draw.choice((100, 300, 900, 1360, 5376, 10_000))
        if not 2e6 < samples * width * queries * points < 1e8:
            return
        dtype = draw.choice(DTYPES)
        x = normal(samples, width, size, size, dtype=dtype)
        near = torch.rand(samples, queries, 1, 2, device="cuda")
        grid = near + draw.choice((0.02, 0.1, 1.0)) * torch.randn(
            samples, queries, points, 2, device="cuda"
        )
        grid = (2 * grid - 1).to(dtype).requires_grad_()
        both(lambda x, g: F.grid_sample(x, g, align_corners=False), x, grid)

    def flow(draw: random.Random) -> None:
        dims = draw.choice((2, 2, 3))
        sides = (64, 96, 128, 192, 256, 384) if dims == 2 else (32, 48, 64, 96, 128)
        size, channels = [draw.choice(sides)] * dims, draw.choice((1, 2, 3, 3, 16, 32, 64, 128))
        batch = draw.choice((1, 2, 4, 8, 16))
        if not 1e6 < batch * channels * math.prod(size) < 6e7:
            return
        dtype = draw.choice((FP32, FP32, FP32, BF16))
        x = normal(batch, channels, *size, dtype=dtype)
        lines = [torch.linspace(-1, 1, n, device="cuda") for n in reversed(size)]
        still = torch.stack(torch.meshgrid(*lines, indexing="ij")[::-1], -1)
        moved = still + draw.choice((0.0, 0.002, 0.02)) * torch.randn(
            batch, *size, dims, device="cuda"
        )
        grid = moved.to(dtype).requires_grad_()
        border = draw.choice(("zeros", "border"))
        both(lambda x, g: F.grid_sample(x, g, padding_mode=border, align_corners=True), x, grid)
        grid = grid.detach()
        both(lambda x: F.grid_sample(x, grid, padding_mode=border, align_corners=True), x)

    draw = random.Random(619 + part)
    return step_of(drawn(draw, 110, deformable) + drawn(draw, 90, flow))


def runs(*, part: int = 0) -> Callable[[], Any]:
    """Tensors that are joined in short runs, as stacked ones and widened rows are."""

    def case(draw: random.Random) -> None:
        number, run = draw.choice((2, 2, 3, 4, 8)), draw.choice((1, 1, 2, 3, 4, 5, 8, 16, 32, 64))
        dims, rows = draw.choice((2, 3, 3, 4)), int(10 ** draw.uniform(4, 7.4))
        if not 1e6 < number * run * rows < 2e8:
            return
        outside = (4, 8)[: dims - 2]
        rows = max(1, rows // math.prod(outside))
        dtype = draw.choice(DTYPES)
        given = [
            torch.empty(*outside, rows, run, device="cuda", dtype=dtype) for _ in range(number)
        ]
        torch.cat(given, -1)
        torch.stack(given, -1)
        torch.stack(given, -2)
        more = torch.empty(*outside, rows, 128, device="cuda", dtype=dtype)
        if more.numel() < 1e8:
            torch.cat((more, more, given[0]), -1)
            torch.cat((more, given[0]), -1)

    def pictures(draw: random.Random) -> None:
        channels = [draw.choice((1, 2, 3, 8, 16, 24, 32, 64, 100, 128, 256)) for _ in range(2)]
        batch, size = draw.choice((4, 16, 32, 64, 128)), draw.choice((7, 14, 28, 56, 112))
        if not 5e5 < batch * sum(channels) * size**2 < 8e7:
            return
        dtype, last = draw.choice(DTYPES), draw.random() < 0.5
        x, y = (
            torch.randn(batch, n, size, size, device="cuda", dtype=dtype)
            .to(memory_format=LAST if last else torch.contiguous_format)
            .requires_grad_()
            for n in channels
        )
        both(lambda x, y: torch.cat((x, y), 1), x, y)
        both(lambda x, y: torch.cat((x, y), 1) * 2.0, x, y)

    draw = random.Random(631 + part)
    return step_of(drawn(draw, 60, case) + drawn(draw, 50, pictures))


def resized(*, part: int = 0) -> Callable[[], Any]:
    """Pictures made small by averages, and enlarged again; volumes too."""

    def pictures(draw: random.Random) -> None:
        channels, size = (
            draw.choice((3, 19, 64, 128, 256, 512, 2048)),
            draw.choice((14, 28, 32, 60)),
        )
        batch = draw.choice((1, 2, 8, 16, 32))
        if not 5e5 < batch * channels * size**2 < 1.3e8:
            return
        dtype, last = draw.choice(DTYPES), draw.random() < 0.35
        x = torch.randn(batch, channels, size, size, device="cuda", dtype=dtype)
        x = (x.to(memory_format=LAST) if last else x).requires_grad_()
        small = draw.choice((1, 2, 3, 4, 6, 7, 8))
        both(lambda x: F.adaptive_avg_pool2d(x, small), x)
        y = F.adaptive_avg_pool2d(x.detach(), small).requires_grad_()
        for mode in ("nearest", "bilinear", "bicubic"):
            both(lambda y, m=mode: F.interpolate(y, size=(size, size), mode=m), y)
        if size * small < 200:
            for mode in ("nearest", "bilinear"):
                both(lambda x, m=mode: F.interpolate(x, scale_factor=2, mode=m), x)
        both(lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear"), x)

    def volumes(draw: random.Random) -> None:
        channels, size = draw.choice((1, 8, 32, 64, 128)), draw.choice((8, 16, 32, 64))
        batch, scale = draw.choice((1, 2, 4)), draw.choice((2, 2, 4))
        if not 3e5 < batch * channels * (size * scale) ** 3 < 8e7:
            return
        x = normal(batch, channels, size, size, size, dtype=draw.choice((BF16, FP32)))
        for mode in ("nearest", "trilinear"):
            both(lambda x, m=mode: F.interpolate(x, scale_factor=scale, mode=m), x)
        both(lambda x: F.adaptive_avg_pool3d(x, draw.choice((1, 2, 4))), x)

    draw = random.Random(641 + part)
    return step_of(drawn(draw, 70, pictures) + drawn(draw, 30, volumes))


def norms(*, part: int = 0) -> Callable[[], Any]:
    """Group norms of rows and of whole pictures, batch norms with any number of channels and with
    gradients that lie otherwise."""

    def groups(draw: random.Random) -> None:
        channels = draw.choice((32, 64, 96, 128, 256, 384, 512, 1024, 2048))
        number = draw.choice((1, 1, 8, 16, 32))
        size = draw.choice((1, 1, 1, 49, 196, 784, 3136, 4096))
        rows = int(10 ** draw.uniform(6, 7.8)) // (channels * size)
        if not 1 <= rows <= 1 << 16 or channels % number:
            return
        shape = (rows, channels) if size == 1 else (rows, channels, size)
        x, w, b = normal(*shape, dtype=draw.choice(DTYPES)), normal(channels), normal(channels)
        w, b = (t.detach().to(x.dtype).requires_grad_() for t in (w, b))
        both(lambda x, w, b: F.group_norm(x, number, w, b), x, w, b)
        both(lambda x: F.group_norm(x, number), x)

    def batches(draw: random.Random) -> None:
        channels = draw.choice((8, 12, 16, 20, 24, 27, 38, 50, 58, 61, 80, 92, 120, 144, 240, 480))
        channels = draw.choice((channels, 64, 128, 256, 672, 960, 1536))
        size, batch = (
            draw.choice((7, 14, 28, 56, 112)),
            draw.choice((16, 32, 64, 128, 192, 256, 640)),
        )
        if not 1e6 < batch * channels * size**2 < 1e8:
            return
        dtype, last = draw.choice(DTYPES), draw.random() < 0.6
        x = torch.randn(batch, channels, size, size, device="cuda", dtype=dtype)
        x = (x.to(memory_format=LAST) if last else x).requires_grad_()
        norm = nn.BatchNorm2d(channels).cuda()
        wanted = [x, *norm.parameters()]
        y = norm(x)
        torch.autograd.grad(y, wanted, torch.ones_like(y), retain_graph=True)
        if draw.random() < 0.5:
            other = torch.contiguous_format if last else LAST
            grad = torch.empty_like(y, memory_format=other)
        else:
            wider = torch.empty(batch, 2 * channels, size, size, device="cuda", dtype=dtype)
            grad = wider.to(memory_format=LAST if last else torch.contiguous_format)[:, :channels]
        torch.autograd.grad(y, wanted, grad)

    draw = random.Random(643 + part)
    return step_of(drawn(draw, 80, groups) + drawn(draw, 90, batches))


def losses(*, part: int = 0) -> Callable[[], Any]:
    """CTC losses, torch's own and cuDNN's, and waves of lines, pictures and volumes."""

    def letters(draw: random.Random) -> None:
        length, batch = (
            draw.choice((50, 79, 150, 249, 400, 800)),
            draw.choice((4, 8, 16, 32, 64, 256)),
        )
        words, most = draw.choice((29, 32, 80, 128, 1000, 5000)), draw.choice((10, 25, 60, 120))
        if length * batch * words > 6e7 or 2 * most > length:
            return
        x = normal(length, batch, words)
        is_own = draw.random() < 0.7
        labels = torch.randint(1, words, (batch, most), device="cuda")
        lengths = torch.full((batch,), length, device="cuda" if is_own else "cpu")
        of_labels = torch.full((batch,), most, device="cuda" if is_own else "cpu")
        both(lambda x: F.ctc_loss(x.log_softmax(-1), labels, lengths, of_labels), x)

    def waves(draw: random.Random) -> None:
        dims = draw.choice((1, 1, 2, 2, 3))
        sides = {1: (256, 400, 512, 1024, 2048, 4096, 16_384), 2: (32, 64, 100, 128, 224, 256)}
        size = [draw.choice(sides.get(dims, (16, 32, 40, 64, 96)))] * dims
        number = int(10 ** draw.uniform(5.7, 7.8)) // math.prod(size)
        if number < 1:
            return
        shape = (draw.choice((1, 4)), max(1, number // 4), *size)
        x, along = normal(*shape), tuple(range(2, 2 + dims))
        both(lambda x: torch.fft.rfftn(x, dim=along).abs(), x)
        both(lambda x: torch.fft.irfftn(torch.fft.rfftn(x, dim=along) * 2.0, s=size, dim=along), x)
        both(lambda x: torch.fft.fftn(x, dim=along).real, x)
        both(lambda x: torch.fft.rfft(x, dim=2).abs(), x)

    draw = random.Random(647 + part)
    return step_of(drawn(draw, 60, letters) + drawn(draw, 50, waves))
