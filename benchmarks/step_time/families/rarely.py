"""More operators whose rates were known badly, as workloads like those in strides.py: attention of
short sequences, and what steps seldom have."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from operators import BF16, FP32, both, normal, step_of
from strides import drawn, given


def short(*, part: int = 0) -> Callable[[], Any]:
    """Attention of many short sequences, and of windows with masks."""

    def case(draw: random.Random) -> None:
        length = draw.choice((9, 16, 17, 29, 32, 49, 49, 64, 64, 77, 100, 128, 144, 196, 197, 256))
        keys = draw.choice((length, length, length, 49, 77))
        heads, width = (
            draw.choice((1, 2, 3, 4, 6, 8, 12)),
            draw.choice((16, 24, 32, 32, 48, 64, 64)),
        )
        batch = int(10 ** draw.uniform(6.3, 7.8)) // (length * heads * width)
        if not 1 < batch * heads < 1 << 16:
            return
        dtype = draw.choice((BF16, BF16, BF16, FP32))
        q, k, v = (
            torch.randn(batch, heads, n, width, device="cuda", dtype=dtype, requires_grad=True)
            for n in (length, keys, keys)
        )
        more: dict[str, Any] = {}
        if draw.random() < 0.4:
            mask = given(*draw.choice(((batch, 1), (1, heads))), length, keys, dtype=dtype)
            more = {"attn_mask": mask}
        elif draw.random() < 0.3:
            more = {"dropout_p": 0.1}
        both(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **more), q, k, v)

    return step_of(drawn(random.Random(211 + part), 90, case))


def rare(*, part: int = 0) -> Callable[[], Any]:
    """What steps seldom have: borders reflected, pools of whole pictures, norms of volumes, sums of
    flags, rows put into tables, bags."""

    def pictures(draw: random.Random) -> None:
        channels, size = draw.choice((32, 64, 128, 256, 512)), draw.choice((7, 14, 28, 56, 64, 128))
        batch = int(10 ** draw.uniform(5.7, 7.5)) // (channels * size**2)
        if not 1 <= batch <= 512:
            return
        dtype, last = draw.choice((BF16, FP32)), draw.random() < 0.5
        x = torch.randn(batch, channels, size, size, device="cuda", dtype=dtype)
        x = (x.to(memory_format=torch.channels_last) if last else x).requires_grad_()
        border = draw.choice((1, 3))
        both(lambda x: F.pad(x, (border,) * 4, mode="reflect"), x)
        both(lambda x: F.pad(x, (border,) * 4, mode="replicate"), x)
        both(lambda x: F.adaptive_avg_pool2d(x, draw.choice((1, 1, 2, 7))), x)
        both(lambda x: F.adaptive_max_pool2d(x, draw.choice((1, 2))), x)
        both(lambda x: x.mean((2, 3), keepdim=True), x)
        both(lambda x: x.amax((2, 3)), x)
        both(lambda x: F.hardswish(x), x)
        both(lambda x: F.mish(x), x)
        both(lambda x: F.prelu(x, torch.ones(channels, device="cuda", dtype=dtype)), x)

    def volumes(draw: random.Random) -> None:
        channels, side = (
            draw.choice((8, 16, 32, 32, 64, 128)),
            draw.choice((16, 32, 48, 64, 96, 128)),
        )
        batch = int(10 ** draw.uniform(6, 8)) // (channels * side**3)
        if not 1 <= batch <= 16:
            return
        dtype = draw.choice((BF16, FP32))
        x = torch.randn(batch, channels, side, side, side, device="cuda", dtype=dtype)
        x.requires_grad_()
        scale, shift = (normal(channels) for _ in range(2))
        both(lambda x, w, b: F.instance_norm(x, None, None, w, b), x, scale, shift)
        both(lambda x: F.max_pool3d(x, 2), x)
        both(lambda x: F.interpolate(x, scale_factor=2), x)
        both(lambda x: F.leaky_relu(x, 0.01), x)

    def rows(draw: random.Random) -> None:
        count, width = int(10 ** draw.uniform(3, 6)), draw.choice((16, 32, 64, 96, 128, 256, 512))
        number = int(10 ** draw.uniform(4, 6.2))
        if number * width > 1.5e8 or count * width > 1e8:
            return
        table = normal(count, width, dtype=draw.choice((FP32, FP32, BF16)))
        index = torch.randint(0, count, (number,), device="cuda")
        both(lambda t: t[index], table)
        seen = draw.choice((1, 4, 8, 20))
        bags = index[: number // seen * seen].view(-1, seen)
        mode = draw.choice(("sum", "mean"))
        if table.dtype is FP32:
            both(lambda t: F.embedding_bag(bags, t, mode=mode), table)
        whole = table.detach()
        (whole[:, :1] > 0).sum(0), (whole > 0).sum(-1), (whole == whole).all(), (whole > 0).sum()

    draw = random.Random(223 + part)
    return step_of(drawn(draw, 40, pictures) + drawn(draw, 24, volumes) + drawn(draw, 40, rows))
