"""Many products at once (bmm), as einsum, experts, ensembles and attention by hand call them: any
layout of both matrices, as workloads like those in strides.py."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from operators import BF16, FP16, FP32, normal, step_of
from strides import drawn

CASES = 140
MOST_ELEMENTS, MOST_FLOPS = 2e8, 6e11
FEW, SOME, MANY = (2, 3, 4, 6, 8, 8, 12, 16), (24, 32, 48, 64, 96, 128), (256, 500, 1024, 2048)
THOUSANDS = (4096, 8192, 16_384, 30_000, 65_536)
NARROW = (4, 8, 16, 20, 26, 32, 39, 48, 49, 50, 64, 80, 96, 100)
WIDE = (128, 196, 197, 256, 384, 512, 577, 768, 1024, 1536, 2048, 3072, 4096, 8192)


def products(*, part: int = 0) -> Callable[[], Any]:
    def case(draw: random.Random) -> None:
        while True:
            batch = draw.choice(draw.choice((FEW, SOME, SOME, MANY, THOUSANDS)))
            kinds = (NARROW, WIDE) if batch < 2000 else (NARROW, NARROW, NARROW, WIDE[:5])
            m, n, k = (draw.choice(draw.choice(kinds)) for _ in range(3))
            if batch < 20 and draw.random() < 0.4:
                m = draw.choice((8192, 16_384, 24_576, 65_536))
                m, n, k = draw.sample((m, n, k), 3)
            elements = batch * (m * k + n * k + m * n)
            if 1e5 < elements < MOST_ELEMENTS and 2.0 * batch * m * n * k < MOST_FLOPS:
                break
        dtype, is_tf32 = draw.choice(
            ((BF16, False), (BF16, False), (FP16, False), (FP32, True), (FP32, True), (FP32, False))
        )
        a = normal(batch, m, k, dtype=dtype)
        b = normal(batch, k, n, dtype=dtype)
        if draw.random() < 0.4:
            a = normal(batch, k, m, dtype=dtype).mT
        if draw.random() < 0.4:
            b = normal(batch, n, k, dtype=dtype).mT
        torch.backends.cuda.matmul.allow_tf32 = is_tf32
        try:
            torch.bmm(a, b)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = False

    return step_of(drawn(random.Random(f"batched {part}"), CASES, case))
