"""Products of two matrices, as a layer's own, for its input and for its weight, as workloads like
those in strides.py: any precision, sizes that networks have and rarer ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from operators import BF16, FP16, FP32, both, normal, step_of
from strides import drawn

CASES = 60
MOST_ELEMENTS, FLOPS = 6e8, (2e8, 3e12)
ROWS = (256, 1000, 2048, 4096, 6000, 8192, 12_288, 16_384, 24_576, 32_768, 49_152, 65_536, 100_352)
MANY_ROWS = (131_072, 200_704, 262_144, 401_408, 491_520, 802_816, 1_572_864, 2_000_000)
WIDTHS = (128, 192, 256, 320, 384, 448, 512, 576, 640, 768, 896, 960, 1024, 1152, 1280, 1536, 1600)
WIDTHS += (2048, 2304, 2560, 2816, 3072, 3584, 3840, 4096, 4608, 5120, 5632, 6144, 6400, 8192)
WIDER = (8960, 9728, 10_240, 11_008, 12_288, 14_336, 16_384, 20_480, 24_576)
NARROW = (4, 8, 16, 24, 32, 48, 49, 64, 72, 80, 96, 100, 112, 120, 144, 160, 176)
WORDS = (1000, 21_841, 28_996, 30_522, 32_000, 32_768, 50_257, 50_304, 50_368, 64_000, 128_256)
WORDS += (151_936, 256_000)
KINDS = ((BF16, False),) * 4 + ((FP16, False),) + ((FP32, True),) * 4 + ((FP32, False),)


def sizes_of(draw: random.Random) -> tuple[int, int, int]:
    while True:
        is_tall = draw.random() < 0.2
        rows = draw.choice(MANY_ROWS if is_tall else ROWS)
        usual = (NARROW, NARROW, WIDTHS) if is_tall else (WIDTHS,) * 6 + (WIDER, NARROW)
        outside, inside = draw.choice(draw.choice(usual)), draw.choice(draw.choice(usual))
        if not is_tall and draw.random() < 0.12:
            outside = draw.choice(WORDS)
        if draw.random() < 0.1:
            rows += draw.choice((1, 3, 4, 8, 60, 100))
        elements = rows * outside + rows * inside + outside * inside
        flops = 2.0 * rows * outside * inside
        if elements < MOST_ELEMENTS and FLOPS[0] < flops < FLOPS[1]:
            return rows, outside, inside


def single(*, part: int = 0) -> Callable[[], Any]:
    def case(draw: random.Random) -> None:
        rows, outside, inside = sizes_of(draw)
        dtype, is_tf32 = draw.choice(KINDS)
        if dtype is FP32 and not is_tf32 and rows * outside * inside > FLOPS[1] / 20:
            return
        x, grad = normal(rows, inside, dtype=dtype), normal(rows, outside, dtype=dtype)
        weight, bias = normal(outside, inside, dtype=dtype), normal(outside, dtype=dtype)
        torch.backends.cuda.matmul.allow_tf32 = is_tf32
        try:
            if draw.random() < 0.3:
                torch.addmm(bias, x, weight.t())
            else:
                torch.mm(x, weight.t())
            torch.mm(grad, weight)
            torch.mm(grad.t(), x)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = False

    return step_of(drawn(random.Random(f"single {part}"), CASES, case))


def grouped(*, part: int = 0) -> Callable[[], Any]:
    """Products of experts' words, which a gate shares out evenly or not."""

    def case(draw: random.Random) -> None:
        groups, words = draw.choice((4, 8, 16, 32, 60, 64, 128)), draw.choice(ROWS[6:])
        inside, outside = draw.choice(WIDTHS[4:]), draw.choice(WIDTHS[4:])
        if words * inside * outside > FLOPS[1] / 4 or groups * inside * outside > MOST_ELEMENTS:
            return
        spread = draw.choice((0.0, 0.0, 0.2, 0.6))
        shares = torch.tensor([draw.lognormvariate(0, spread) for _ in range(groups)])
        ends = (words * shares.cumsum(0) / shares.sum()).round().int().cuda()
        x = normal(words, inside, dtype=BF16)
        weight = normal(groups, outside, inside, dtype=BF16)
        both(lambda x, weight: torch._grouped_mm(x, weight.mT, offs=ends), x, weight)

    return step_of(drawn(random.Random(f"grouped {part}"), 40, case))
