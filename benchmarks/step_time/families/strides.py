"""Operators whose rates were known worst, as workloads like those in operators.py: pointwise ones
that follow strides, joined tensors, norms, many small products, rows of any width, lookups, cells.

Shapes are drawn at random, every family from its own seed; `part` says which part of them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from operators import BF16, FP16, FP32, MOST_BYTES, Case, both, normal, step_of

Sizes = tuple[int, ...]
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def given(*sizes: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.empty(*sizes, device="cuda", dtype=dtype)


def drawn(draw: random.Random, number: int, case: Callable[[random.Random], Any]) -> list[Case]:
    """Each case draws its own shapes, the same in every step."""
    seeds = [draw.random() for _ in range(number)]
    return [lambda s=s: case(random.Random(s)) for s in seeds]


def _tensor_of(draw: random.Random, dims: int, most: int) -> Sizes:
    """Sizes as steps have them, of 0.5 to `most` million elements."""
    while True:
        sizes = [draw.choice((4, 8, 12, 16, 32, 64, 128)) for _ in range(dims - 2)]
        sizes += [draw.choice((49, 128, 197, 256, 512, 1024, 2048)), draw.choice(WIDTHS)]
        if 5e5 < math.prod(sizes) < most * 1e6:
            return tuple(sizes)


WIDTHS = (32, 56, 64, 96, 112, 128, 196, 256, 384, 512, 768, 1024, 1536, 3072)


def walks(*, part: int = 0) -> Callable[[], Any]:
    """Sums, products and copies of tensors that do not lie alike."""

    def broadcast(draw: random.Random) -> None:
        sizes = _tensor_of(draw, draw.choice((2, 3, 4, 4)), 60)
        kept = [n if draw.random() < 0.5 else 1 for n in sizes]
        dtype = draw.choice((BF16, BF16, FP32))
        x, y = given(*sizes, dtype=dtype), given(*kept, dtype=draw.choice((dtype, dtype, FP32)))
        for call in (torch.add, torch.mul):
            call(x, y)
        x.add_(y.to(dtype))
        torch.where(y > 0, x, x)
        x.masked_fill(y > 0, 0.0)

    def permuted(draw: random.Random) -> None:
        sizes = _tensor_of(draw, draw.choice((2, 3, 4, 4)), 60)
        order = list(range(len(sizes)))
        while order == sorted(order):
            draw.shuffle(order)
        dtype = draw.choice((BF16, BF16, FP32))
        x = given(*sizes, dtype=dtype).permute(order)
        x.contiguous()
        x.to(draw.choice((FP32, BF16))).contiguous()
        y = given(*x.shape, dtype=dtype)
        torch.add(y, x)
        y.add_(x)

    def heads(draw: random.Random) -> None:
        """Between [batch, length, heads, width] and [batch, heads, length, width]."""
        batch, number = draw.choice((4, 8, 16, 32)), draw.choice((4, 8, 12, 16))
        length, width = draw.choice((128, 197, 512, 1024)), draw.choice((32, 64, 80, 128))
        dtype = draw.choice((BF16, BF16, FP32))
        whole = given(batch, length, 3 * number * width, dtype=dtype)
        q, k, _ = (x.view(batch, length, number, width).transpose(1, 2) for x in whole.chunk(3, -1))
        q.contiguous()
        angles = given(1, 1, length, width, dtype=dtype)
        turned = q * angles
        torch.cat((-k[..., width // 2 :], k[..., : width // 2]), -1)
        turned + k * angles
        given(batch, number, length, width, dtype=dtype).transpose(1, 2).reshape(batch, length, -1)

    def gated(draw: random.Random) -> None:
        rows, width = draw.choice((2048, 8192, 20_000)), draw.choice((512, 1408, 2816, 4096))
        dtype = draw.choice((BF16, BF16, FP32))
        one, other = given(rows, 2 * width, dtype=dtype).chunk(2, -1)
        F.silu(one) * other
        F.gelu(other)
        one.contiguous()
        given(rows, 2 * width, dtype=dtype)[:, :width].copy_(one.contiguous())

    def layouts(draw: random.Random) -> None:
        batch, channels = draw.choice((8, 16, 32, 64)), draw.choice((32, 64, 96, 128, 256, 512))
        size, dtype = draw.choice((7, 14, 28, 56, 112)), draw.choice((BF16, FP32))
        if not 5e5 < batch * channels * size**2 < 6e7:
            return
        x = given(batch, channels, size, size, dtype=dtype)
        last = x.to(memory_format=torch.channels_last)
        last.contiguous()
        x + last
        last * given(batch, channels, 1, 1, dtype=dtype)
        x * given(batch, channels, 1, 1, dtype=dtype)
        x + given(1, channels, 1, 1, dtype=dtype)
        last.permute(0, 2, 3, 1).reshape(-1, channels).t().contiguous()
        F.pixel_shuffle(x[:, : channels // 4 * 4], 2)
        torch.roll(last.permute(0, 2, 3, 1), (3, 3), (1, 2))
        if size % 7 == 0:
            parts = last.permute(0, 2, 3, 1).view(batch, size // 7, 7, size // 7, 7, channels)
            parts.transpose(2, 3).contiguous()

    draw = random.Random(31 + part)
    cases = [
        case
        for kind, number in ((broadcast, 70), (permuted, 60), (heads, 30), (gated, 16))
        for case in drawn(draw, number, kind)
    ]
    return step_of(cases + drawn(draw, 40, layouts))


def joins(*, part: int = 0) -> Callable[[], Any]:
    """cat of two to eight tensors along any dimension, and its gradient; stack; pad; repeat."""

    def case(draw: random.Random) -> None:
        sizes = list(_tensor_of(draw, draw.choice((2, 3, 4)), 30))
        dim, count = draw.randrange(len(sizes)), draw.choice((2, 2, 2, 3, 4, 8))
        dtype, parts = draw.choice((BF16, BF16, FP32)), []
        sizes[dim] = max(1, sizes[dim] // count)
        for _ in range(count):
            own = sizes.copy()
            own[dim] = max(1, int(sizes[dim] * draw.choice((1, 1, 0.5, 0.75, 1.3))))
            parts.append(given(*own, dtype=dtype))
        if draw.random() < 0.3 and len(sizes) == 4:
            parts = [x.to(memory_format=torch.channels_last) for x in parts]
        elif draw.random() < 0.3:
            parts = [torch.cat((x, x), -1)[..., : x.shape[-1]] for x in parts]
        torch.cat(parts, dim)
        torch.stack(parts[:1] * 3, draw.choice((0, -1)))

    def padded(draw: random.Random) -> None:
        sizes = _tensor_of(draw, 4, 30)
        x = given(*sizes, dtype=draw.choice((BF16, FP32)))
        F.pad(x, [draw.randrange(4) for _ in range(4)])
        F.pad(x, (1, 1, 1, 1), mode="reflect")
        x.flip(draw.choice((-1, -2)))
        x.repeat(1, 2, 1, 1)
        x.repeat_interleave(2, 1)
        x.unfold(-1, 8, 4).contiguous()
        x.tril()

    draw = random.Random(53 + part)
    return step_of(drawn(draw, 150, case) + drawn(draw, 24, padded))


def norms(*, part: int = 0) -> Callable[[], Any]:
    """Of rows of any width, of channels in any layout, of groups."""

    def rows(draw: random.Random) -> None:
        width = draw.choice((64, 96, 128, 192, 256, 320, 384, 512, 640, 768, 1024, 1280, 1536))
        width = draw.choice((width, width, 2048, 3072, 4096))
        number = int(10 ** draw.uniform(5.5, 7.8)) // width
        dtype = draw.choice((BF16, BF16, FP32))
        x = normal(number, width, dtype=dtype)
        weight, bias = (normal(width, dtype=dtype) for _ in range(2))
        both(lambda x, w, b: F.layer_norm(x, (width,), w, b), x, weight, bias)
        both(lambda x, w: F.rms_norm(x, (width,), w), x, weight)

    def channels(draw: random.Random) -> None:
        number = draw.choice((16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 728, 1024, 2048))
        sizes = draw.choice(((1,), (1,), (draw.choice((2, 8, 16)),)))
        side = draw.choice((7, 8, 14, 16, 28, 32, 48, 56, 64, 96, 112, 128, 192))
        place = (side, side) if sizes == (1,) else (sizes[0], side, side)
        batch = int(10 ** draw.uniform(5.7, 7.7)) // (number * math.prod(place))
        if not 2 <= batch <= 512:
            return
        dtype, last = draw.choice((BF16, FP32, FP32, FP16)), draw.random() < 0.5
        x = torch.randn(batch, number, *place, device="cuda", dtype=dtype)
        x = x.to(memory_format=LAST[x.dim()]) if last and len(place) == 2 else x
        x.requires_grad_()
        scale, shift = (normal(number) for _ in range(2))
        mean, variance = (torch.ones(number, device="cuda") for _ in range(2))
        both(lambda x, w, b: F.batch_norm(x, mean, variance, w, b, True), x, scale, shift)
        w, b = (normal(number, dtype=dtype) for _ in range(2))
        both(lambda x, w, b: F.group_norm(x, draw.choice((8, 8, 1)), w, b), x, w, b)
        if not last:
            both(lambda x, w, b: F.instance_norm(x, None, None, w, b), x, scale, shift)

    draw = random.Random(71 + part)
    return step_of(drawn(draw, 70, rows) + drawn(draw, 130, channels))


def batched(*, part: int = 0) -> Callable[[], Any]:
    """Products of many: scores and values of attention in either layout, experts, small ones."""

    def pair(x: torch.Tensor, y: torch.Tensor) -> None:
        both(torch.bmm, x.requires_grad_(), y.requires_grad_())

    def attention(draw: random.Random) -> None:
        batch, heads = draw.choice((2, 4, 8, 16, 32, 64, 256)), draw.choice((1, 3, 6, 8, 12, 16))
        length, width = draw.choice((49, 64, 100, 128, 144, 196, 197, 256, 384, 512, 1024)), 0
        keys = draw.choice((length, length, 77, 128))
        width = draw.choice((16, 24, 32, 40, 64, 64, 80, 96, 128))
        if not 1e5 < batch * heads * length * max(keys, width) < 8e7:
            return
        dtype = draw.choice((BF16, BF16, BF16, FP32, FP16))
        q, k, v = (
            torch.randn(batch * heads, n, width, device="cuda", dtype=dtype)
            for n in (length, keys, keys)
        )
        pair(q, k.transpose(1, 2))
        scores = torch.randn(batch * heads, length, keys, device="cuda", dtype=dtype)
        pair(scores, v)
        if draw.random() < 0.2:
            torch.baddbmm(scores, q, k.transpose(1, 2), beta=0.5)

    def any_of(draw: random.Random) -> None:
        count = int(2 ** draw.uniform(2, 12))
        m, n, k = (int(2 ** draw.uniform(1.6, 10.5)) for _ in "mnk")
        if draw.random() < 0.7:
            m, n, k = (max(8, -(-size // 8) * 8) for size in (m, n, k))
        if not 1e5 < count * max(m * n, m * k, n * k) < 6e7 or count * m * n * k > 4e11:
            return
        dtype = draw.choice((BF16, BF16, FP32))
        pair(
            torch.randn(count, m, k, device="cuda", dtype=dtype),
            torch.randn(count, k, n, device="cuda", dtype=dtype),
        )

    draw = random.Random(97 + part)
    return step_of(drawn(draw, 110, attention) + drawn(draw, 110, any_of))


def thin(*, part: int = 0) -> Callable[[], Any]:
    """Products of long and thin matrices, aligned or not, with a bias and in all directions."""

    def case(draw: random.Random) -> None:
        rows = int(2 ** draw.uniform(9, 20))
        inside, outside = (int(2 ** draw.uniform(1.6, 12.5)) for _ in range(2))
        unit = draw.choice((1, 2, 4, 8, 8, 8, 16, 64, 64))
        inside, outside = (max(unit, size // unit * unit) for size in (inside, outside))
        if not 1e5 < rows * max(inside, outside) < 1.2e8 or rows * inside * outside > 8e11:
            return
        dtype = draw.choice((BF16, BF16, FP32, FP16))
        if dtype is FP32 and rows * inside * outside > 8e10:
            return
        x = torch.randn(rows, inside, device="cuda", dtype=dtype, requires_grad=True)
        weight, bias = normal(outside, inside, dtype=dtype), normal(outside, dtype=dtype)
        both(lambda x, w, b: F.linear(x, w, b), x, weight, bias)

    return step_of(drawn(random.Random(113 + part), 330, case))


def along(*, part: int = 0) -> Callable[[], Any]:
    """Softmax, losses and reductions of rows of any width, and across rows."""

    def rows(draw: random.Random) -> None:
        width = draw.choice((10, 49, 64, 100, 128, 197, 256, 384, 512, 577, 1000, 1024, 1500, 2048))
        width = draw.choice((width, width, 4096, 8192, 21_128, 30_522, 32_000, 50_257, 128_256))
        number = max(8, int(10 ** draw.uniform(5.8, 8)) // width)
        x = normal(number, width, dtype=draw.choice((BF16, FP32)))
        one = x.detach()
        both(lambda x: x.softmax(-1), x)
        both(lambda x: x.log_softmax(-1), x)
        one.sum(-1), one.mean(-1), one.amax(-1), one.var(-1), one.norm(dim=-1)
        one.sum(), one.float().sum(0), one.argmax(-1)
        labels = torch.randint(0, width, (number,), device="cuda")
        both(lambda x: F.cross_entropy(x, labels), x)
        both(lambda x: F.cross_entropy(x.float(), labels), x)

    def across(draw: random.Random) -> None:
        outer, length = draw.choice((1, 8, 32, 128, 1024)), draw.choice((4, 16, 49, 196, 1024))
        inner = max(4, int(10 ** draw.uniform(5.8, 7.7)) // (outer * length))
        one = given(outer, length, inner, dtype=draw.choice((BF16, FP32)))
        one.sum(1), one.mean(1), one.amax(1), one.sum((0, 1)), one.sum((0, 2)), one.var(1)
        one.sum(0), one.norm(dim=1), one.sum(-1), one.mean((1, 2)), one.float().mean((0, 2))

    draw = random.Random(131 + part)
    return step_of(drawn(draw, 60, rows) + drawn(draw, 60, across))


def lookups(*, part: int = 0) -> Callable[[], Any]:
    """Rows of tables that are named, and the gradients that go back to them."""

    def case(draw: random.Random) -> None:
        rows, width = int(10 ** draw.uniform(1.3, 6)), draw.choice((1, 2, 8, 32, 64, 128, 256, 768))
        number = int(10 ** draw.uniform(3.3, 6.3))
        if number * width > 5e7 or rows * width > 1e8:
            return
        dtype = draw.choice((FP32, FP32, BF16))
        table = normal(rows, width, dtype=dtype)
        index = torch.randint(0, rows, (number,), device="cuda")
        both(lambda t: F.embedding(index, t), table)
        both(lambda t: t[index], table)
        both(lambda t: t.index_select(0, index), table)
        wide = index[:, None].expand(number, width)
        both(lambda t: t.gather(0, wide), table)
        e = normal(number, width, dtype=dtype)
        both(lambda e: e.new_zeros(rows, width).index_add(0, index, e), e)
        nothing = e.detach().new_zeros(rows, width)
        for kind in ("amax", "mean", "sum"):
            both(lambda e, k=kind: nothing.scatter_reduce(0, wide, e, k, include_self=False), e)
        if number < 3e5:
            one = table.detach()
            both(lambda t: t[index, index % width], table)
            one.index_put_((index, index % width), e.detach()[:, 0], accumulate=True)

    def bags(draw: random.Random) -> None:
        rows, width = int(10 ** draw.uniform(3, 6)), draw.choice((16, 32, 64, 128))
        batch, seen = draw.choice((512, 4096, 32_768)), draw.choice((1, 5, 20, 50))
        index = torch.randint(0, rows, (batch, seen), device="cuda")
        mode = draw.choice(("sum", "mean"))
        both(lambda t: F.embedding_bag(index, t, mode=mode), normal(rows, width))

    draw = random.Random(151 + part)
    return step_of(drawn(draw, 70, case) + drawn(draw, 24, bags))


def cells(*, part: int = 0) -> Callable[[], Any]:
    """cuDNN's recurrent networks as steps have them."""
    draw, cases = random.Random(173 + part), []
    while len(cases) < 70:
        kind = draw.choice((torch.nn.LSTM, torch.nn.LSTM, torch.nn.GRU))
        inside, width = draw.choice((40, 80, 128, 256, 512, 650)), draw.choice(WIDTHS_OF_CELLS)
        batch, length = draw.choice((8, 16, 20, 32, 48, 64, 128, 256)), draw.choice(LENGTHS)
        dtype, layers = draw.choice((FP32, FP32, BF16, FP16)), draw.choice((1, 1, 2, 3))
        if batch * length * width * 4 * layers * 8 > 6 * MOST_BYTES or length * layers > 900:
            continue
        network = kind(
            inside,
            width,
            layers,
            batch_first=draw.random() < 0.6,
            bidirectional=draw.random() < 0.4,
        ).to("cuda", dtype)
        sizes = (batch, length, inside) if network.batch_first else (length, batch, inside)

        def case(network: Any = network, sizes: Sizes = sizes, dtype: Any = dtype) -> None:
            x = torch.randn(*sizes, device="cuda", dtype=dtype, requires_grad=True)
            y = network(x)[0]
            torch.autograd.grad(y.sum(), [x, *network.parameters()])

        cases.append(case)
    return step_of(cases)


WIDTHS_OF_CELLS = (64, 128, 192, 256, 320, 384, 512, 600, 650, 768, 1024, 1200, 1500)
LENGTHS = (20, 35, 50, 64, 100, 128, 200, 300, 400)


def pictures(*, part: int = 0) -> Callable[[], Any]:
    """Pooling and resampling of pictures in either layout, windows taken out of them."""

    def case(draw: random.Random) -> None:
        channels, size = (
            draw.choice((16, 32, 64, 96, 128, 256, 512)),
            draw.choice((14, 28, 56, 112)),
        )
        batch = int(10 ** draw.uniform(5.7, 7.4)) // (channels * size**2)
        if not 2 <= batch <= 256:
            return
        dtype, last = draw.choice((BF16, BF16, FP32)), draw.random() < 0.5
        x = torch.randn(batch, channels, size, size, device="cuda", dtype=dtype)
        x = (x.to(memory_format=torch.channels_last) if last else x).requires_grad_()
        kernel = draw.choice((2, 3, 3, 5))
        both(lambda x: F.max_pool2d(x, kernel, draw.choice((1, 2)), kernel // 2), x)
        both(lambda x: F.avg_pool2d(x, kernel, 2, kernel // 2), x)
        both(lambda x: F.adaptive_avg_pool2d(x, 1), x)
        both(lambda x: F.adaptive_avg_pool2d(x, 7), x)
        both(lambda x: F.interpolate(x, scale_factor=2), x)
        both(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), x)
        both(lambda x: F.interpolate(x, size=(size + 3, size + 3), mode="bilinear"), x)
        both(lambda x: F.interpolate(x, size=(size + 5, size), mode="bicubic"), x)
        both(lambda x: F.unfold(x, 3, padding=1), x)
        grid = torch.rand(batch, size, size, 2, device="cuda", dtype=dtype) * 2 - 1
        both(lambda x: F.grid_sample(x, grid, align_corners=False), x)

    def waves(draw: random.Random) -> None:
        size = draw.choice((64, 96, 100, 128, 224, 256))
        number = max(1, int(10 ** draw.uniform(5.7, 7.2)) // size**2)
        x = torch.randn(number, size, size, device="cuda")
        found = torch.fft.rfft2(x)
        torch.fft.irfft2(found)
        torch.fft.fft2(found)
        torch.fft.rfft(x)
        found * found, found.abs(), torch.view_as_real(found) * 2.0

    draw = random.Random(191 + part)
    return step_of(drawn(draw, 60, case) + drawn(draw, 16, waves))
