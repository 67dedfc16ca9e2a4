"""Joined tensors, pools, routed words and norms of volumes, as workloads like those in strides.py.

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
from sampled import picture
from strides import drawn, given

LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def joined(*, part: int = 0) -> Callable[[], Any]:
    """Whole tensors, slices, tensors that lie in another order, in two to five dimensions."""

    def words(draw: random.Random) -> None:
        batch, length = (
            draw.choice((2, 8, 16, 64)),
            draw.choice((49, 64, 196, 197, 512, 1024, 2048)),
        )
        heads, width = draw.choice((3, 6, 8, 12, 16)), draw.choice((32, 64, 80, 128))
        if not 3e5 < batch * length * heads * width < 6e7:
            return
        dtype = draw.choice((BF16, BF16, FP32, FP16))
        x = [given(batch, length, heads * width, dtype=dtype) for _ in range(3)]
        torch.cat(x[:2], -1), torch.cat(x[:2], 1), torch.cat(x, -1), torch.cat(x[:2], 0)
        torch.cat((x[0][:, :1], x[1]), 1), torch.cat((x[0][..., :4], x[1]), -1)
        torch.cat((x[0][..., : width // 2], x[1][..., width // 2 :]), -1)
        torch.cat((x[0][:, 1:], x[1][:, :1]), 1)
        h = [t.view(batch, length, heads, width).transpose(1, 2) for t in x]
        torch.cat((-h[0][..., width // 2 :], h[0][..., : width // 2]), -1)
        torch.cat(h[:2], 2), torch.cat(h, 1), torch.stack(h), torch.stack(h, 2)
        torch.stack([t.contiguous() for t in h], 2)
        torch.cat([t.transpose(2, 3) for t in h], -1)

    def pictures(draw: random.Random) -> None:
        channels, size = (
            draw.choice((16, 20, 32, 64, 96, 128, 256)),
            draw.choice((7, 14, 28, 56, 64)),
        )
        batch, dims = draw.choice((4, 16, 64, 128)), draw.choice((2, 2, 2, 3))
        if not 3e5 < batch * channels * size**dims < 6e7:
            return
        dtype, is_last = draw.choice((BF16, FP32, FP32, FP16)), draw.random() < 0.4
        more = draw.choice((channels, channels, 2 * channels, 3, channels // 2))
        x, y = (given(batch, n, *[size] * dims, dtype=dtype) for n in (channels, more))
        if is_last:
            x, y = (t.to(memory_format=LAST[t.dim()]) for t in (x, y))
        torch.cat((x, y), 1), torch.cat((x, y, x), 1), torch.cat((x[:, : channels // 2], y), 1)
        torch.cat([x[:, i : i + channels // 4] for i in range(0, channels, channels // 4)], 1)
        torch.cat((x, x), 0), torch.cat((x[:, ::2], x[:, 1::2]), 1)

    draw = random.Random(457 + part)
    return step_of(drawn(draw, 70, words) + drawn(draw, 70, pictures))


def pools(*, part: int = 0) -> Callable[[], Any]:
    """The largest and the mean of windows that overlap or do not."""

    def pictures(draw: random.Random) -> None:
        channels = draw.choice((16, 32, 64, 64, 96, 128, 256, 512, 1024))
        size, batch = (
            draw.choice((8, 13, 14, 28, 56, 84, 112, 112, 224)),
            draw.choice((4, 16, 64, 256)),
        )
        if not 5e5 < batch * channels * size**2 < 1.2e8:
            return
        x = picture(draw, batch, channels, size, size, dtype=draw.choice((BF16, FP32, FP16)))
        kernel, stride = draw.choice(
            ((3, 2), (3, 2), (2, 2), (2, 2), (3, 1), (5, 1), (4, 4), (13, 1))
        )
        both(lambda x: F.max_pool2d(x, kernel, stride, kernel // 2), x)
        both(lambda x: F.avg_pool2d(x, kernel, stride, kernel // 2), x)
        both(lambda x: F.max_pool2d(x, 2), x)
        both(lambda x: F.avg_pool2d(x, draw.choice((2, 3, 7))), x)

    def volumes(draw: random.Random) -> None:
        channels, size = draw.choice((16, 32, 64, 128)), draw.choice((16, 28, 32, 56, 64, 96))
        batch, depth = draw.choice((1, 2, 4, 8)), draw.choice((8, 16, size))
        if not 5e5 < batch * channels * depth * size**2 < 1e8:
            return
        x = picture(draw, batch, channels, depth, size, size, dtype=draw.choice((BF16, FP32)))
        both(lambda x: F.max_pool3d(x, 2), x)
        both(lambda x: F.max_pool3d(x, (1, 3, 3), (1, 2, 2), (0, 1, 1)), x)
        both(lambda x: F.max_pool3d(x, 3, 2, 1), x)
        both(lambda x: F.avg_pool3d(x, 2), x)
        scale, shift = (normal(channels) for _ in range(2))
        mean, variance = (torch.ones(channels, device="cuda") for _ in range(2))
        both(lambda x, w, b: F.batch_norm(x, mean, variance, w, b, True), x, scale, shift)
        both(lambda x, w, b: F.group_norm(x, 8, w.to(x.dtype), b.to(x.dtype)), x, scale, shift)

    draw = random.Random(461 + part)
    return step_of(drawn(draw, 70, pictures) + drawn(draw, 50, volumes))


def routed(*, part: int = 0) -> Callable[[], Any]:
    """Places of words in their experts, rows taken and put back; softmax across rows."""

    def case(draw: random.Random) -> None:
        words, number = (
            draw.choice((1024, 2048, 4096, 8192, 16_384, 32_768)),
            draw.choice((4, 8, 16, 32, 64, 128)),
        )
        width, most = draw.choice((256, 512, 768, 1024, 2048)), draw.choice((1, 2, 2, 4))
        scores = torch.randn(words, number, device="cuda", dtype=draw.choice((BF16, FP32)))
        weights, chosen = scores.softmax(-1).topk(most, -1)
        which = F.one_hot(chosen.flatten(), number)
        which.cumsum(0), which.sum(0), (which.cumsum(0) * which).sum(-1)
        which.float().cumsum(0), which.to(torch.int32).cumsum(0), which.bool().sum(0)
        chosen.flatten().sort(), chosen.flatten().argsort()
        x = normal(words, width, dtype=draw.choice((BF16, FP32)))
        order = chosen.flatten().argsort()
        taken = order // most
        both(lambda x: x[taken], x)
        both(lambda x: x.index_select(0, taken), x)
        both(lambda x: x.repeat_interleave(most, 0), x)
        y = normal(words * most, width, dtype=x.dtype)
        both(lambda y: y.new_zeros(words, width).index_add(0, taken, y), y)
        both(lambda y: y.new_zeros(words, width).scatter_add(0, taken[:, None].expand_as(y), y), y)
        both(lambda y: y.new_zeros(words * most + 1, width).index_copy(0, order, y), y)

    def across(draw: random.Random) -> None:
        sizes = [draw.choice((4, 8, 16, 32, 64)), draw.choice((8, 16, 32, 64, 100, 256, 1024))]
        sizes += [draw.choice((3, 8, 16, 32, 64, 96, 256, 1024))]
        sizes[0] = min(100_000, int(10 ** draw.uniform(5.5, 7.9)) // math.prod(sizes[1:]))
        if sizes[0] < 1:
            return
        x = normal(*sizes, dtype=draw.choice((BF16, FP32, FP32)))
        both(lambda x: x.softmax(1), x)
        both(lambda x: x.log_softmax(1), x)
        both(lambda x: x.cumsum(1), x)
        x.detach().softmax(0), x.detach().logsumexp(1)

    draw = random.Random(463 + part)
    return step_of(drawn(draw, 40, case) + drawn(draw, 60, across))
