"""Triton kernels as people write them, each with launches of drawn sizes.

`CASES` has functions that draw the sizes of a launch and return what launches it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
import triton
import triton.language as tl

BF16, FP32 = torch.bfloat16, torch.float32


@triton.jit
def _log_add(one, other):
    largest = tl.maximum(one, other)
    return largest + tl.log(tl.exp(one - largest) + tl.exp(other - largest))


@triton.jit
def scaled_sum(x, y, out, n, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) * scale + tl.load(y + at, mask=mask), mask=mask)


@triton.jit
def dropped(x, out, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n)
    is_kept = tl.rand(seed, at) > p
    tl.store(out + at, tl.where(is_kept, values / (1 - p), 0.0), mask=at < n)


@triton.jit
def softmax_rows(x, out, stride, num_rows, num_columns, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), num_rows, tl.num_programs(0)):
        values = tl.load(
            x + row * stride + columns, mask=columns < num_columns, other=-float("inf")
        )
        raised = tl.exp(values.to(tl.float32) - tl.max(values, axis=0).to(tl.float32))
        tl.store(
            out + row * stride + columns,
            raised / tl.sum(raised, axis=0),
            mask=columns < num_columns,
        )


@triton.jit
def norm_in_parts(x, weight, out, num_columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * num_columns
    total = tl.zeros([BLOCK], dtype=tl.float32)
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(0, num_columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        values = tl.load(x + row + at, mask=at < num_columns, other=0.0).to(tl.float32)
        total += values
        squares += values * values
    mean = tl.sum(total) / num_columns
    inverse = tl.rsqrt(tl.sum(squares) / num_columns - mean * mean + eps)
    for first in range(0, num_columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        mask = at < num_columns
        values = tl.load(x + row + at, mask=mask, other=0.0).to(tl.float32)
        scaled = (values - mean) * inverse * tl.load(weight + at, mask=mask)
        tl.store(out + row + at, scaled, mask=mask)


@triton.jit
def quantized_rows(x, out, scales, num_columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * num_columns + at, mask=at < num_columns, other=0.0).to(tl.float32)
    scale = tl.max(tl.abs(values), axis=0) / 127.0
    tl.store(scales + row, scale)
    rounded = tl.floor(values / scale + 0.5).to(tl.int8)
    tl.store(out + row * num_columns + at, rounded, mask=at < num_columns)


@triton.jit
def widened_4_bits(packed, scales, out, n, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    pair = tl.load(packed + at // 2, mask=mask, other=0)
    value = ((pair >> ((at % 2) * 4)) & 15).to(tl.float32) - 8.0
    tl.store(out + at, value * tl.load(scales + at // GROUP, mask=mask), mask=mask)


@triton.jit
def named_rows(table, places, out, width, BLOCK: tl.constexpr):
    token, at = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(places + token)
    values = tl.load(table + row * width + at, mask=at < width)
    tl.store(out + token.to(tl.int64) * width + at, values, mask=at < width)


@triton.jit
def counted(places, counts, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = tl.load(places + at, mask=at < n, other=0)
    tl.atomic_add(counts + place, 1.0, mask=at < n)


@triton.jit
def turned(x, out, num_rows, num_columns, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = (rows[:, None] < num_rows) & (columns[None, :] < num_columns)
    values = tl.load(x + rows[:, None] * num_columns + columns[None, :], mask=mask)
    tl.store(out + columns[None, :] * num_rows + rows[:, None], values, mask=mask)


@triton.jit
def sums_of_columns(x, out, num_rows, num_columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for first in range(0, num_rows, ROWS):
        rows = first + tl.arange(0, ROWS)
        mask = (rows[:, None] < num_rows) & (columns[None, :] < num_columns)
        total += tl.load(x + rows[:, None] * num_columns + columns[None, :], mask=mask, other=0.0)
    tl.store(out + columns, tl.sum(total, axis=0), mask=columns < num_columns)


@triton.jit
def updated(p, g, m, v, lr, beta1, beta2, eps, decay, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    value, gradient = tl.load(p + at, mask=mask), tl.load(g + at, mask=mask)
    first = beta1 * tl.load(m + at, mask=mask) + (1 - beta1) * gradient
    second = beta2 * tl.load(v + at, mask=mask) + (1 - beta2) * gradient * gradient
    value = value * (1 - lr * decay) - lr * first / (tl.sqrt(second) + eps)
    tl.store(p + at, value, mask=mask)
    tl.store(m + at, first, mask=mask)
    tl.store(v + at, second, mask=mask)


@triton.jit
def running_log_sums(x, out, length, BLOCK: tl.constexpr):
    """Each block goes along a sequence, for some channels."""
    channels = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    width = tl.num_programs(1) * BLOCK
    start = tl.program_id(0) * length * width + channels
    state = tl.full((BLOCK,), -1e9, dtype=tl.float32)
    for t in range(length):
        state = _log_add(state, tl.load(x + start + t * width).to(tl.float32))
        tl.store(out + start + t * width, state)


@triton.jit
def product(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr
):
    pid = tl.program_id(0)
    num_down, num_right = tl.cdiv(M, BM), tl.cdiv(N, BN)
    in_group = GROUP * num_right
    first = pid // in_group * GROUP
    size = min(num_down - first, GROUP)
    down, right = first + pid % in_group % size, pid % in_group // size
    rows = (down * BM + tl.arange(0, BM)) % M
    columns = (right * BN + tl.arange(0, BN)) % N
    inner = tl.arange(0, BK)
    at_a = a + rows[:, None] * K + inner[None, :]
    at_b = b + inner[:, None] * N + columns[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        mask = inner < K - k * BK
        left = tl.load(at_a, mask=mask[None, :], other=0.0)
        total = tl.dot(left, tl.load(at_b, mask=mask[:, None], other=0.0), total)
        at_a += BK
        at_b += BK * N
    rows, columns = down * BM + tl.arange(0, BM), right * BN + tl.arange(0, BN)
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(tl.bfloat16), mask=mask)


@triton.jit
def attended(
    q,
    k,
    v,
    out,
    scale,
    length,
    CAUSAL: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    D: tl.constexpr,
):
    block, head = tl.program_id(0), tl.program_id(1)
    base = head.to(tl.int64) * length * D
    rows, wide = block * BM + tl.arange(0, BM), tl.arange(0, D)
    queries = tl.load(q + base + rows[:, None] * D + wide[None, :])
    most = tl.full((BM,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    found = tl.zeros((BM, D), dtype=tl.float32)
    end = length
    if CAUSAL:
        end = (block + 1) * BM
    for first in range(0, end, BN):
        columns = first + tl.arange(0, BN)
        keys = tl.load(k + base + columns[None, :] * D + wide[:, None])
        scores = tl.dot(queries, keys) * scale
        if CAUSAL:
            scores = tl.where(rows[:, None] >= columns[None, :], scores, -1e9)
        largest = tl.maximum(most, tl.max(scores, 1))
        weights = tl.exp2(scores - largest[:, None])
        change = tl.exp2(most - largest)
        total = total * change + tl.sum(weights, 1)
        values = tl.load(v + base + columns[:, None] * D + wide[None, :])
        found = tl.dot(weights.to(tl.bfloat16), values, found * change[:, None])
        most = largest
    tl.store(
        out + base + rows[:, None] * D + wide[None, :], (found / total[:, None]).to(tl.bfloat16)
    )


Launch = Callable[[], object]


def some(*sizes: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.randn(sizes, device="cuda", dtype=dtype)


def rows_and_width(draw: random.Random, most: float = 8.4) -> tuple[int, int]:
    width = draw.choice((512, 768, 1000, 1024, 1600, 2048, 3072, 4096, 5120, 8192, 14336, 32000))
    return int(10 ** draw.uniform(6.8, most)) // width, width


def elementwise(draw: random.Random) -> Launch:
    n, dtype = int(10 ** draw.uniform(6.5, 8.6)), draw.choice((BF16, FP32))
    block, warps = draw.choice((512, 1024, 1024, 2048)), draw.choice((4, 4, 8))
    x, y = some(n, dtype=dtype), some(n, dtype=dtype)
    out, grid = torch.empty_like(x), (triton.cdiv(n, block),)
    if draw.random() < 0.5:
        return lambda: scaled_sum[grid](x, y, out, n, 2.0, BLOCK=block, num_warps=warps)
    return lambda: dropped[grid](x, out, n, 0.1, 7, BLOCK=block, num_warps=warps)


def softmax(draw: random.Random) -> Launch:
    num_rows, width = rows_and_width(draw)
    x, block = some(num_rows, width), triton.next_power_of_2(width)
    out, warps = torch.empty_like(x), draw.choice((4, 8, 16))
    blocks = draw.choice((num_rows, min(num_rows, 132 * 4)))
    return lambda: softmax_rows[(blocks,)](x, out, width, num_rows, width, block, num_warps=warps)


def norm(draw: random.Random) -> Launch:
    num_rows, width = rows_and_width(draw)
    x, weight = some(num_rows, width), some(width, dtype=FP32)
    out, block = torch.empty_like(x), draw.choice((512, 1024, 2048))
    return lambda: norm_in_parts[(num_rows,)](x, weight, out, width, 1e-5, BLOCK=block)


def quantize(draw: random.Random) -> Launch:
    num_rows, width = rows_and_width(draw)
    x, block = some(num_rows, width), triton.next_power_of_2(width)
    out = torch.empty(num_rows, width, device="cuda", dtype=torch.int8)
    scales, warps = some(num_rows, dtype=FP32), draw.choice((4, 8))
    return lambda: quantized_rows[(num_rows,)](x, out, scales, width, BLOCK=block, num_warps=warps)


def widen(draw: random.Random) -> Launch:
    n, group = int(10 ** draw.uniform(6.5, 8.5)) // 256 * 256, draw.choice((32, 64, 128))
    packed = torch.randint(0, 255, (n // 2,), device="cuda", dtype=torch.uint8)
    scales, out = some(n // group, dtype=FP32), torch.empty(n, device="cuda", dtype=BF16)
    grid = (triton.cdiv(n, 1024),)
    return lambda: widened_4_bits[grid](packed, scales, out, n, GROUP=group, BLOCK=1024)


def gather(draw: random.Random) -> Launch:
    tokens, width = 1 << draw.randint(13, 16), draw.choice((256, 768, 1024, 2048, 4096))
    rows, block = draw.choice((8192, 50257, 128256)), draw.choice((256, 512, 1024))
    table, out = some(rows, width), torch.empty(tokens, width, device="cuda", dtype=BF16)
    places = torch.randint(0, rows, (tokens,), device="cuda")
    grid = tokens, triton.cdiv(width, block)
    return lambda: named_rows[grid](table, places, out, width, BLOCK=block)


def histogram(draw: random.Random) -> Launch:
    n, bins = int(10 ** draw.uniform(6, 7.8)), draw.choice((256, 4096, 65536, 1 << 20))
    places = torch.randint(0, bins, (n,), device="cuda")
    counts = torch.zeros(bins, device="cuda")
    return lambda: counted[(triton.cdiv(n, 1024),)](places, counts, n, BLOCK=1024)


def transpose(draw: random.Random) -> Launch:
    num_rows, width = rows_and_width(draw, 8.2)
    x, block = some(num_rows, width, dtype=draw.choice((BF16, FP32))), draw.choice((32, 64))
    out = torch.empty(width, num_rows, device="cuda", dtype=x.dtype)
    grid = triton.cdiv(num_rows, block), triton.cdiv(width, block)
    return lambda: turned[grid](x, out, num_rows, width, BLOCK=block)


def columns(draw: random.Random) -> Launch:
    num_rows, width = rows_and_width(draw)
    x, out = some(num_rows, width), some(width, dtype=FP32)
    down, right = draw.choice(((16, 64), (32, 128), (64, 32)))
    grid = (triton.cdiv(width, right),)
    return lambda: sums_of_columns[grid](x, out, num_rows, width, ROWS=down, COLUMNS=right)


def update(draw: random.Random) -> Launch:
    n = int(10 ** draw.uniform(6.5, 8.4))
    p, g, m, v = (some(n, dtype=FP32) for _ in range(4))
    v, grid = v.abs(), (triton.cdiv(n, 1024),)
    return lambda: updated[grid](p, g, m, v, 1e-3, 0.9, 0.999, 1e-8, 0.1, n, BLOCK=1024)


def scan(draw: random.Random) -> Launch:
    batch, width = draw.choice((4, 8, 16, 64)), draw.choice((512, 1024, 2048, 4096))
    length, block = draw.choice((256, 512, 1024, 2048)), draw.choice((32, 64, 128))
    x, grid = some(batch, length, width), (batch, width // block)
    out = torch.empty_like(x, dtype=FP32)
    return lambda: running_log_sums[grid](x, out, length, BLOCK=block, num_warps=block // 32)


def matmul(draw: random.Random) -> Launch:
    m, n, k = (draw.choice((512, 1024, 2048, 4096, 8192, 11008)) for _ in range(3))
    bm, bn, bk, warps = draw.choice(
        ((128, 256, 64, 8), (128, 128, 64, 8), (64, 64, 32, 4), (128, 64, 32, 4), (64, 128, 64, 4))
    )
    a, b, c = some(m, k), some(k, n), some(m, n)
    grid = (triton.cdiv(m, bm) * triton.cdiv(n, bn),)
    sides = {"BM": bm, "BN": bn, "BK": bk, "GROUP": 8}
    return lambda: product[grid](a, b, c, m, n, k, **sides, num_warps=warps, num_stages=3)


def attention(draw: random.Random) -> Launch:
    heads, length = draw.choice((16, 32, 64, 128)), draw.choice((512, 1024, 2048, 4096))
    width, bm, bn = draw.choice((64, 128)), draw.choice((64, 128)), draw.choice((32, 64))
    q, k, v = (some(heads, length, width) for _ in range(3))
    out, grid, is_causal = torch.empty_like(q), (length // bm, heads), draw.random() < 0.5
    sides = {"CAUSAL": is_causal, "BM": bm, "BN": bn, "D": width, "num_warps": bm // 16}
    return lambda: attended[grid](q, k, v, out, 0.18, length, **sides)


CASES: tuple[Callable[[random.Random], Launch], ...] = (
    elementwise,
    softmax,
    norm,
    quantize,
    widen,
    gather,
    histogram,
    transpose,
    columns,
    update,
    scan,
    matmul,
    attention,
)
