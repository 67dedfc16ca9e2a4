"""Operators that read or add at places that a tensor tells, as workloads like those in strides.py:
pictures and volumes sampled at points, rows of graphs, resized pictures, slices of scores.

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

LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def picture(draw: random.Random, *sizes: int, dtype: torch.dtype) -> torch.Tensor:
    """Channels are sometimes neighbours in memory."""
    x = torch.randn(*sizes, device="cuda", dtype=dtype)
    is_last = len(sizes) > 3 and draw.random() < 0.3
    return (x.to(memory_format=LAST[x.dim()]) if is_last else x).requires_grad_()


def grids(*, part: int = 0) -> Callable[[], Any]:
    """Pictures and volumes sampled at random points, and at points near those of a regular grid."""

    def case(draw: random.Random) -> None:
        dims = draw.choice((2, 2, 2, 3))
        channels = draw.choice((1, 2, 3, 4, 8, 16, 16, 32, 32, 64, 64, 128, 256, 512))
        sides = (16, 28, 32, 64, 96, 128, 256, 512) if dims == 2 else (12, 16, 24, 32, 64, 96, 128)
        size = [draw.choice(sides)] * dims
        batch = draw.choice((1, 1, 2, 3, 4, 8, 16, 32, 64))
        number = int(10 ** draw.uniform(3, 6)) if draw.random() < 0.5 else math.prod(size)
        if not 1e5 < batch * channels * number < 8e7 or batch * channels * math.prod(size) > 1.2e8:
            return
        dtype = draw.choice((FP32, FP32, FP32, BF16, FP16))
        x = picture(draw, batch, channels, *size, dtype=dtype)
        if number == math.prod(size):
            lines = [torch.linspace(-1, 1, n, device="cuda") for n in reversed(size)]
            still = torch.stack(torch.meshgrid(*lines, indexing="xy"), -1).expand(
                batch, *size, dims
            )
            grid = still + draw.choice((0.0, 0.01, 0.1)) * torch.randn_like(still)
        else:
            places = (1,) * (dims - 1) if draw.random() < 0.5 else (4,) * (dims - 1)
            number = max(1, number // math.prod(places))
            grid = 2 * torch.rand(batch, *places, number, dims, device="cuda") - 1
        grid = grid.to(dtype)
        mode = draw.choice(("bilinear", "bilinear", "bilinear", "nearest"))
        border = draw.choice(("zeros", "zeros", "border", "reflection"))
        more = {"mode": mode, "padding_mode": border, "align_corners": draw.random() < 0.3}
        both(lambda x: F.grid_sample(x, grid, **more), x)
        both(lambda x, g: F.grid_sample(x, g, **more), x, grid.clone().requires_grad_())

    return step_of(drawn(random.Random(401 + part), 220, case))


def rows(*, part: int = 0) -> Callable[[], Any]:
    """Of graphs: some nodes have many more edges than others. Sums over heads as attention of
    graphs has them."""

    def case(draw: random.Random) -> None:
        nodes = int(10 ** draw.uniform(3.3, 5.6))
        edges = int(nodes * draw.choice((2, 5, 10, 15, 25, 50)))
        width = draw.choice((1, 2, 3, 4, 8, 16, 32, 64, 64, 96, 128, 128, 200, 256, 512))
        if not 2e5 < edges * width < 1.2e8 or nodes * width > 1e8:
            return
        dtype, power = draw.choice((FP32, FP32, FP32, BF16)), draw.choice((1, 1, 2, 4))
        x, e = normal(nodes, width, dtype=dtype), normal(edges, width, dtype=dtype)
        index = (torch.rand(edges, device="cuda") ** power * nodes).long().clamp_(max=nodes - 1)
        index = index.sort().values if draw.random() < 0.3 else index
        wide = index[:, None].expand(edges, width)
        both(lambda x: x[index], x)
        both(lambda x: x.index_select(0, index), x)
        both(lambda x: F.embedding(index, x), x)
        both(lambda x: x.gather(0, wide), x)
        both(lambda e: e.new_zeros(nodes, width).index_add_(0, index, e), e)
        both(lambda e: e.new_zeros(nodes, width).scatter_add_(0, wide, e), e)
        none = e.detach().new_zeros(nodes, width)
        none.scatter_reduce_(0, wide, e.detach(), draw.choice(("amax", "mean")), include_self=False)

    def heads(draw: random.Random) -> None:
        nodes, number = int(10 ** draw.uniform(3.5, 5.2)), draw.choice((2, 4, 8))
        edges, width = nodes * draw.choice((5, 10, 20)), draw.choice((8, 16, 32, 64, 128))
        if not 1e6 < edges * number * width < 1.2e8:
            return
        x, e = normal(nodes, number, width), normal(edges, number)
        index = torch.randint(0, nodes, (edges,), device="cuda")
        both(lambda x: x[index], x)
        both(lambda x: x.index_select(0, index), x)
        seen = normal(edges, number, width)
        weight = normal(1, number, width)
        both(lambda s, w: (s * w).sum(-1), seen, weight)
        both(lambda s, e: s * e[..., None], seen, e)
        both(lambda e: e.new_zeros(nodes, number).index_add_(0, index, e), e)
        both(lambda s: s.new_zeros(nodes, number, width).index_add_(0, index, s), seen)
        both(lambda s: s.mean(1), seen)

    draw = random.Random(419 + part)
    return step_of(drawn(draw, 90, case) + drawn(draw, 40, heads))


def resized(*, part: int = 0) -> Callable[[], Any]:
    """Lines, pictures and volumes, larger and smaller, with and without antialiasing."""

    def lines(draw: random.Random) -> None:
        channels, length = draw.choice((1, 32, 80, 128, 512)), draw.choice((128, 400, 2048, 16_384))
        batch = draw.choice((2, 4, 16, 64))
        scale = draw.choice((0.5, 1.5, 2, 2, 4, 160))
        if not 2e5 < batch * channels * length * max(1, scale) < 8e7:
            return
        x = normal(batch, channels, length, dtype=draw.choice((BF16, FP32, FP32)))
        for mode in ("linear", "nearest", "nearest-exact"):
            both(lambda x, m=mode: F.interpolate(x, scale_factor=scale, mode=m), x)
        both(
            lambda x: F.interpolate(x, size=length + 7, mode="linear", align_corners=True),
            x,
        )

    def pictures(draw: random.Random) -> None:
        channels = draw.choice((1, 3, 3, 19, 21, 32, 64, 128, 150, 256, 768))
        size, batch = (
            draw.choice((14, 16, 28, 32, 56, 64, 128, 224)),
            draw.choice((1, 2, 8, 16, 64)),
        )
        scale = draw.choice((0.25, 0.5, 1.3, 2, 2, 2, 4, 4, 8))
        if not 3e5 < batch * channels * size**2 * max(1, scale**2) < 1e8:
            return
        x = picture(draw, batch, channels, size, size, dtype=draw.choice((BF16, FP32, FP32, FP16)))
        for mode in ("nearest", "bilinear", "bicubic"):
            both(lambda x, m=mode: F.interpolate(x, scale_factor=scale, mode=m), x)
        corners = draw.random() < 0.5
        sizes = int(size * scale), int(size * scale)
        both(
            lambda x: F.interpolate(x, size=sizes, mode="bilinear", align_corners=corners),
            x,
        )
        if draw.random() < 0.4:
            both(
                lambda x: F.interpolate(x, size=sizes, mode="bicubic", antialias=True),
                x,
            )

    def volumes(draw: random.Random) -> None:
        channels, size = draw.choice((1, 4, 16, 32, 64, 128, 256)), draw.choice((8, 16, 24, 32, 64))
        batch, scale = draw.choice((1, 2, 4, 8)), draw.choice((0.5, 2, 2, 2, 4))
        if not 3e5 < batch * channels * size**3 * max(1, scale**3) < 1e8:
            return
        x = picture(draw, *(batch, channels, size, size, size), dtype=draw.choice((BF16, FP32)))
        for mode in ("nearest", "trilinear", "trilinear"):
            both(lambda x, m=mode: F.interpolate(x, scale_factor=scale, mode=m), x)
        flat = draw.choice(((1, 2, 2), (2, 1, 1)))
        both(lambda x: F.interpolate(x, scale_factor=flat), x)

    draw = random.Random(431 + part)
    return step_of(drawn(draw, 60, lines) + drawn(draw, 90, pictures) + drawn(draw, 60, volumes))


def slices(*, part: int = 0) -> Callable[[], Any]:
    """Softmax and losses of a slice of scores, which is copied before."""

    def case(draw: random.Random) -> None:
        width = draw.choice((32, 100, 256, 1000, 4096, 30_522, 32_000, 50_257, 128_256))
        length, batch = draw.choice((33, 65, 129, 257, 513, 1025)), draw.choice((2, 4, 8, 16, 64))
        if not 3e5 < batch * length * width < 4e8:
            return
        dtype = draw.choice((BF16, FP32))
        x = normal(batch, length, width, dtype=dtype)
        both(lambda x: x[:, :-1].softmax(-1), x)
        both(lambda x: x[:, :-1].log_softmax(-1), x)
        both(lambda x: x[:, :-1].float().log_softmax(-1), x)
        both(lambda x: x[:, :-1].contiguous(), x)
        labels = torch.randint(0, width, (batch, length - 1), device="cuda")
        both(lambda x: F.cross_entropy(x[:, :-1].reshape(-1, width), labels.flatten()), x)
        both(lambda x: F.cross_entropy(x[:, :-1].transpose(1, 2), labels), x)
        both(lambda x: x[:, :-1].log_softmax(-1).gather(2, labels[..., None]), x)
        both(lambda x: x[..., : width // 2].softmax(-1), x)
        both(lambda x: x[..., ::2].softmax(-1), x)

    def heads(draw: random.Random) -> None:
        batch, number = draw.choice((2, 4, 8, 16)), draw.choice((4, 8, 12, 16))
        length, more = draw.choice((128, 197, 256, 512)), draw.choice((1, 2, 16))
        if not 2e6 < batch * number * length**2 < 1.2e8:
            return
        x = normal(*(batch, number, length, length + more), dtype=draw.choice((BF16, FP32)))
        both(lambda x: x[..., more:].softmax(-1), x)
        both(lambda x: x[..., :-more].float().softmax(-1).to(x.dtype), x)
        both(lambda x: x[:, :, 1:, 1:].contiguous(), x)
        both(lambda x: x.softmax(1), x)
        both(lambda x: x.softmax(2), x)

    draw = random.Random(443 + part)
    return step_of(drawn(draw, 60, case) + drawn(draw, 30, heads))
