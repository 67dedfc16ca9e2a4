"""Attention with masks, with dropout, and with both, as encoders and padded texts have it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from operators import BF16, FP16, FP32, both, step_of
from strides import drawn, given

NUMBER = 60


def attention(*, part: int = 0) -> Callable[[], Any]:
    def case(draw: random.Random) -> None:
        lengths = (64, 100, 128, 128, 160, 192, 256, 256, 384, 512, 512, 768, 1024, 1024, 2048)
        length, width = draw.choice(lengths), draw.choice((32, 64, 64, 64, 80, 96, 128, 128))
        keys = length if draw.random() < 0.8 else draw.choice((77, 128, 512))
        heads = draw.choice((6, 8, 12, 16, 32))
        batch = int(10 ** draw.uniform(7, 8.3)) // (length * keys * heads) + 1
        if batch * (length + keys) * heads * width > 1 << 28:
            return
        dtype = draw.choice((BF16, BF16, BF16, FP16, FP32))
        q, k, v = (
            torch.randn(batch, heads, n, width, device="cuda", dtype=dtype, requires_grad=True)
            for n in (length, keys, keys)
        )
        more: dict[str, Any] = {}
        kind = draw.choice(("mask", "dropout", "both", "both"))
        if kind != "dropout":
            more["attn_mask"] = given(batch, 1, length, keys, dtype=dtype)
        if kind != "mask":
            more["dropout_p"] = 0.1
        both(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **more), q, k, v)

    return step_of(drawn(random.Random(977 + part), NUMBER, case))
