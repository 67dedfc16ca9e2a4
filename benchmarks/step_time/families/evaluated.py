"""Batch norms of networks in `eval()`, as workloads like those in strides.py: a frozen teacher, a
reference network, a backbone with norms that are not trained.

Shapes are drawn at random as networks have them; `part` says which part of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from operators import BF16, FP16, FP32, step_of
from strides import drawn, given
from torch import nn

KINDS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
SIZES = {1: (49, 197, 500, 2000), 2: (7, 14, 28, 56, 112), 3: (4, 8, 16, 32)}
LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


def norms(*, part: int = 0) -> Callable[[], Any]:
    """Forward alone, and with a gradient of what is normalised."""

    def pictures(draw: random.Random) -> None:
        dims = draw.choice((1, 2, 2, 2, 2, 3))
        channels = draw.choice((16, 24, 32, 48, 64, 96, 120, 128, 256, 336, 512, 888, 1024, 2048))
        size = draw.choice(SIZES[dims])
        batch = draw.choice((1, 4, 16, 32, 64, 128, 256))
        if not 2e5 < batch * channels * size**dims < 8e7:
            return
        x = given(batch, channels, *[size] * dims, dtype=draw.choice((BF16, BF16, FP16, FP32)))
        if dims in LAST and draw.random() < 0.35:
            x = x.to(memory_format=LAST[dims])
        norm = KINDS[dims](channels).cuda().eval().requires_grad_(False)
        norm(x)
        y = norm(x.detach().requires_grad_())
        y.backward(torch.ones_like(y))

    return step_of(drawn(random.Random(577 + part), 70, pictures))
