"""Operators of sequences as workloads, like those in operators.py: attention by each of its
kernels, running sums and softmax along rows and across them, recurrent networks."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from operators import BF16, FP16, FP32, MOST_BYTES, Case, both, normal, step_of
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}
# batch, heads, length of the queries, of the keys, width of a head
SHORT = (
    *((4096, 8, 16, 16, 24), (1024, 8, 40, 40, 32), (2048, 4, 8, 8, 64), (512, 12, 10, 10, 64)),
    *((4096, 8, 12, 12, 8), (1024, 4, 100, 100, 16), (256, 6, 49, 49, 32), (768, 12, 49, 49, 32)),
    *((64, 12, 197, 197, 64), (96, 3, 197, 197, 64), (32, 16, 50, 50, 64), (128, 8, 32, 32, 64)),
    *((32, 8, 64, 64, 64), (16, 8, 128, 128, 32), (8, 12, 256, 256, 64), (16, 4, 27, 27, 16)),
)
LONG = (
    *((8, 12, 512, 512, 64), (4, 16, 1024, 1024, 64), (2, 32, 2048, 2048, 128)),
    *((1, 32, 4096, 4096, 128), (1, 16, 8192, 8192, 64), (4, 8, 577, 577, 80)),
    *((2, 16, 1500, 1500, 64), (2, 8, 4096, 77, 40), (2, 8, 1024, 77, 80), (4, 8, 100, 850, 32)),
    *((1, 8, 4096, 4096, 40), (1, 32, 8192, 8192, 128), (16, 8, 300, 300, 96)),
    *((4, 8, 1024, 1024, 256), (1, 12, 16384, 16384, 64), (8, 16, 384, 384, 64)),
)


def attention(*, backend: str = "flash", part: int = 0, parts: int = 1) -> Callable[[], Any]:
    """By one of the kernels that torch has: plain, causal, with dropout, with a mask."""
    draw = random.Random(5)
    sixteen = (BF16, BF16, BF16, FP16)
    dtypes = {"efficient": (FP32, FP32, *sixteen)}.get(backend, sixteen)
    chosen = []
    for sizes in (*SHORT, *LONG):
        for number in range(1 if backend == "cudnn" else 3):
            chosen.append((sizes, number, draw.choice(dtypes)))
    if backend == "cudnn":  # preparing one takes long
        chosen += [(sizes, 1, BF16) for sizes in (*SHORT[::3], *LONG[::3])]

    def case(sizes: tuple[int, ...], number: int, dtype: torch.dtype) -> None:
        batch, heads, length, keys, width = sizes
        q = normal(batch, heads, length, width, dtype=dtype)
        k, v = (normal(batch, heads, keys, width, dtype=dtype) for _ in range(2))
        more: dict[str, Any] = {}
        if number == 1:
            more["is_causal"] = length == keys
        if number == 2:
            more["dropout_p"] = 0.1
        if number == 2 and backend == "efficient" and length * keys < 1 << 20:
            more["attn_mask"] = torch.zeros(1, 1, length, keys, device="cuda", dtype=dtype)
        with sdpa_kernel(BACKENDS[backend]):
            both(lambda *x: F.scaled_dot_product_attention(*x, **more), q, k, v)

    random.Random(1).shuffle(chosen)
    return step_of(lambda c=c: case(*c) for c in chosen[part::parts])


def heads_in_the_middle(*, backend: str = "cudnn") -> Callable[[], Any]:
    """As models call it: [batch, length, heads, width] seen the other way round, and with fewer
    heads of keys and values than of queries."""

    def case(batch: int, heads: int, of_keys: int, length: int, width: int, causal: bool) -> None:
        whole = normal(batch, length, (heads + 2 * of_keys) * width, dtype=BF16)
        parts = whole.split([heads * width, of_keys * width, of_keys * width], -1)
        q, k, v = (x.view(batch, length, -1, width).transpose(1, 2) for x in parts)
        with sdpa_kernel(BACKENDS[backend]):
            y = F.scaled_dot_product_attention(
                q, k, v, is_causal=causal, enable_gqa=heads != of_keys
            )
        torch.autograd.grad(y, whole, torch.ones_like(y))

    sizes = (
        *((8, 12, 12, 1024, 64, True), (4, 32, 8, 2048, 64, True), (1, 32, 8, 8192, 128, True)),
        *((2, 32, 8, 4096, 128, True), (16, 12, 12, 384, 64, False), (64, 12, 12, 197, 64, False)),
        *((2048, 8, 8, 30, 32, False), (32, 16, 16, 512, 64, True), (4096, 4, 4, 20, 32, False)),
    )
    return step_of(lambda s=s: case(*s) for s in sizes)


def scans() -> Callable[[], Any]:
    """Along the last of two dimensions, which has a kernel of its own, and across rows."""

    def along(rows: int, length: int, dtype: torch.dtype) -> None:
        x = normal(rows, length, dtype=dtype)
        one = x.detach()
        both(lambda x: x.cumsum(-1), x)
        one.cumprod(-1)
        one.logcumsumexp(-1)
        one.cummax(-1)
        both(lambda x: x.softmax(-1), x)
        both(lambda x: x.log_softmax(-1), x)
        one.topk(min(5, length), -1)
        one.sort(-1)
        one.argmax(-1)
        edges = torch.linspace(-2, 2, 64, device="cuda", dtype=dtype)
        torch.bucketize(one, edges)
        if rows < 40_000:
            both(lambda x: x.cumsum(0), x)

    def across(outer: int, length: int, inner: int, dtype: torch.dtype) -> None:
        x = normal(outer, length, inner, dtype=dtype)
        both(lambda x: x.cumsum(1), x)
        both(lambda x: x.softmax(1), x)
        both(lambda x: x.log_softmax(1), x)
        labels = torch.randint(0, length, (outer, inner), device="cuda")
        both(lambda x: F.cross_entropy(x, labels), x)

    lengths = (2, 8, 11, 32, 64, 100, 256, 1000, 4096, 32_000)
    cases: list[Case] = [
        lambda s=s: along(*s)
        for s in product((1, 64, 1024, 30_000, 300_000, 2_000_000), lengths, (FP32, BF16))
        if 2048 <= s[0] * s[1] <= 1 << 25 and (s[2] is FP32 or s[0] in (64, 30_000))
    ]
    cases += [
        lambda s=s: across(*s)
        for s in product(
            (1, 16, 64, 512),
            (4, 21, 150, 1000, 16_000),
            (4, 30, 100, 400, 4096, 65_536),
            (FP32, BF16),
        )
        if 4096 <= s[0] * s[1] * s[2] <= 1 << 25 and (s[3] is FP32 or s[0] == 16)
    ]
    return step_of(cases)


def recurrent() -> Callable[[], Any]:
    """cuDNN's networks, drawn at random."""
    draw = random.Random(11)
    cases: list[Case] = []
    while len(cases) < 56:
        kind = draw.choice((torch.nn.LSTM, torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN))
        inside, width = draw.choice((16, 64, 256, 512)), draw.choice((32, 64, 128, 256, 512, 1024))
        batch, length = (
            draw.choice((1, 4, 16, 32, 64, 128, 256)),
            draw.choice((10, 25, 50, 100, 200)),
        )
        dtype = draw.choice((FP32, FP32, FP16))
        is_both, num_layers = draw.random() < 0.3, draw.choice((1, 1, 2, 3))
        if batch * length * width * 4 * num_layers * 8 > 2 * MOST_BYTES:
            continue
        network = kind(
            inside, width, num_layers, batch_first=draw.random() < 0.5, bidirectional=is_both
        )
        network = network.to("cuda", dtype)
        sizes = (batch, length, inside) if network.batch_first else (length, batch, inside)

        def case(
            network: Any = network, sizes: tuple[int, ...] = sizes, dtype: Any = dtype
        ) -> None:
            y = network(torch.randn(*sizes, device="cuda", dtype=dtype))[0]
            torch.autograd.grad(y.sum(), list(network.parameters()))

        cases.append(case)
    return step_of(cases)


def dropped(*, backend: str = "cudnn") -> Callable[[], Any]:
    """Attention with dropout, with a mask of scores, and with both."""

    def case(sizes: tuple[int, ...], dropout: float, is_masked: bool, causal: bool) -> None:
        batch, heads, length, width = sizes
        q, k, v = (normal(batch, heads, length, width, dtype=BF16) for _ in range(3))
        mask = torch.zeros(batch, 1, length, length, device="cuda", dtype=BF16)
        more = {"attn_mask": mask if is_masked else None, "dropout_p": dropout, "is_causal": causal}
        with sdpa_kernel(BACKENDS[backend]):
            both(lambda *x: F.scaled_dot_product_attention(*x, **more), q, k, v)

    ways = ((0.1, False, False), (0.0, True, False), (0.1, True, False), (0.1, False, True))
    sizes = ((32, 12, 512, 64), (8, 16, 1024, 64), (128, 8, 128, 64), (4, 16, 2048, 64))
    return step_of(lambda s=s, w=w: case(s, *w) for s in sizes for w in ways)
