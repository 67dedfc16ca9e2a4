# mypy: ignore-errors
"""Triton kernels of Mamba-2's scan and of its backward pass.

They are launched by launch.py; scan.py has the same equations in plain torch.

`mixed` [batch, time, heads · P + 2N] holds x, B and C side by side, as the convolution before the
scan leaves them. Time is cut into chunks. With cum the sum of dt · a since the chunk's start, S the
state before it and G the gradient of the state after it:

    y_t  = Σ_{s<=t} (C_t · B_s) e^(cum_t - cum_s) dt_s x_s + e^(cum_t) S C_t + D x_t
    S   <- e^(cum_end) S + Σ_s e^(cum_end - cum_s) dt_s x_s B_sᵀ
    G   <- e^(cum_end) G + Σ_t e^(cum_t) dy_t C_tᵀ                           backwards in time

Forward, a program takes one head of one sample through all of time, its state in registers.
Backward, such programs leave S and G of every chunk in memory and find the gradient of x on their
way; then a program takes one chunk of one sample through all heads and adds up the gradients of B
and C, which the heads share, in registers: no atomics, the same bits every time.

Tiles are [N, P] for states and [CHUNK, ...] for moments. Powers of e are at most 0, so nothing can
overflow.
"""

import triton
import triton.language as tl


@triton.jit
def _moments(begin, length, CHUNK: tl.constexpr):
    t = begin + tl.arange(0, CHUNK)
    return t, t < length


@triton.jit
def _tile(base, t, ok, stride, SIZE: tl.constexpr):
    return tl.load(
        base + t[:, None] * stride + tl.arange(0, SIZE)[None, :], mask=ok[:, None], other=0.0
    )


@triton.jit
def _decays(dt, t, ok, rate, HEADS: tl.constexpr):
    """dt of a chunk's moments, the sum of dt · a up to each of them and up to the last.

    Past the end dt is 0: no decay, no input.
    """
    d = tl.load(dt + t * HEADS, mask=ok, other=0.0)
    return d, tl.cumsum(d * rate, 0), tl.sum(d * rate, 0)


@triton.jit
def ssd_forward(
    y,
    mixed,
    dt,
    a,
    skip,
    length,
    HEADS: tl.constexpr,
    P: tl.constexpr,
    N: tl.constexpr,
    CHUNK: tl.constexpr,
):
    head, sample = tl.program_id(0) % HEADS, (tl.program_id(0) // HEADS).to(tl.int64)
    WIDTH: tl.constexpr = HEADS * P + 2 * N
    rate = tl.load(a + head)
    mixed += sample * length * WIDTH
    y += sample * length * (HEADS * P) + head * P
    dt += sample * length * HEADS + head
    state = tl.zeros((N, P), tl.float32)
    for begin in range(0, length, CHUNK):
        t, ok = _moments(begin, length, CHUNK)
        x = _tile(mixed + head * P, t, ok, WIDTH, P)
        b = _tile(mixed + HEADS * P, t, ok, WIDTH, N)
        c = _tile(mixed + HEADS * P + N, t, ok, WIDTH, N)
        d, cum, total = _decays(dt, t, ok, rate, HEADS)
        scores = tl.dot(c, tl.trans(b)) * d[None, :]
        scores = tl.where(
            t[:, None] >= t[None, :], scores * tl.exp(cum[:, None] - cum[None, :]), 0.0
        )
        out = tl.dot(c, state.to(c.dtype)) * tl.exp(cum)[:, None]
        out = tl.dot(scores.to(x.dtype), x, out)
        out += tl.load(skip + head) * x.to(tl.float32)
        tl.store(
            y + t[:, None] * (HEADS * P) + tl.arange(0, P)[None, :],
            out.to(y.dtype.element_ty),
            mask=ok[:, None],
        )
        added = (x.to(tl.float32) * (d * tl.exp(total - cum))[:, None]).to(x.dtype)
        state = tl.dot(tl.trans(b), added, state * tl.exp(total))


@triton.jit
def ssd_states(
    states,
    mixed,
    dt,
    a,
    length,
    HEADS: tl.constexpr,
    P: tl.constexpr,
    N: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """`states` [sample, head, chunk, N, P]: the state before every chunk."""
    head, sample = tl.program_id(0) % HEADS, (tl.program_id(0) // HEADS).to(tl.int64)
    WIDTH: tl.constexpr = HEADS * P + 2 * N
    rate = tl.load(a + head)
    mixed += sample * length * WIDTH
    dt += sample * length * HEADS + head
    chunks = tl.cdiv(length, CHUNK)
    states += (sample * HEADS + head) * chunks * (N * P)
    place = tl.arange(0, N)[:, None] * P + tl.arange(0, P)[None, :]
    state = tl.zeros((N, P), tl.float32)
    for chunk in range(chunks):
        tl.store(states + chunk * (N * P) + place, state.to(states.dtype.element_ty))
        t, ok = _moments(chunk * CHUNK, length, CHUNK)
        x = _tile(mixed + head * P, t, ok, WIDTH, P)
        b = _tile(mixed + HEADS * P, t, ok, WIDTH, N)
        d, cum, total = _decays(dt, t, ok, rate, HEADS)
        added = (x.to(tl.float32) * (d * tl.exp(total - cum))[:, None]).to(b.dtype)
        state = tl.dot(tl.trans(b), added, state * tl.exp(total))


@triton.jit
def ssd_grad_x(
    grad_mixed,
    grad_dt,
    grad_skip_parts,
    grad_states,
    grad,
    mixed,
    dt,
    a,
    skip,
    length,
    HEADS: tl.constexpr,
    P: tl.constexpr,
    N: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """One head of one sample, backwards in time.

    The gradients of x and D, that of dt as far as it goes through dt x, and the gradient of the
    state after every chunk.
    """
    head, sample = tl.program_id(0) % HEADS, (tl.program_id(0) // HEADS).to(tl.int64)
    WIDTH: tl.constexpr = HEADS * P + 2 * N
    rate, through = tl.load(a + head), tl.load(skip + head)
    mixed += sample * length * WIDTH
    grad_mixed += sample * length * WIDTH + head * P
    grad += sample * length * (HEADS * P) + head * P
    dt += sample * length * HEADS + head
    grad_dt += sample * length * HEADS + head
    chunks = tl.cdiv(length, CHUNK)
    grad_states += (sample * HEADS + head) * chunks * (N * P)
    place = tl.arange(0, N)[:, None] * P + tl.arange(0, P)[None, :]
    after, grad_skip = tl.zeros((N, P), tl.float32), 0.0
    for step in range(chunks):
        chunk = chunks - 1 - step
        tl.store(grad_states + chunk * (N * P) + place, after.to(grad_states.dtype.element_ty))
        t, ok = _moments(chunk * CHUNK, length, CHUNK)
        x = _tile(mixed + head * P, t, ok, WIDTH, P).to(tl.float32)
        dy = _tile(grad, t, ok, HEADS * P, P)
        b = _tile(mixed + HEADS * P, t, ok, WIDTH, N)
        c = _tile(mixed + HEADS * P + N, t, ok, WIDTH, N)
        d, cum, total = _decays(dt, t, ok, rate, HEADS)
        scores = tl.where(
            t[:, None] <= t[None, :],
            tl.dot(b, tl.trans(c)) * tl.exp(cum[None, :] - cum[:, None]),
            0.0,
        )  # [s, t]
        driven = tl.dot(b, after.to(b.dtype)) * tl.exp(total - cum)[:, None]
        driven = tl.dot(scores.to(dy.dtype), dy, driven)
        wide = dy.to(tl.float32)
        at = t[:, None] * WIDTH + tl.arange(0, P)[None, :]
        tl.store(
            grad_mixed + at,
            (driven * d[:, None] + through * wide).to(grad_mixed.dtype.element_ty),
            mask=ok[:, None],
        )
        tl.store(grad_dt + t * HEADS, tl.sum(driven * x, 1), mask=ok)
        grad_skip += tl.sum(tl.sum(x * wide, 1), 0)
        added = (wide * tl.exp(cum)[:, None]).to(c.dtype)
        after = tl.dot(tl.trans(c), added, after * tl.exp(total))
    tl.store(grad_skip_parts + sample * HEADS + head, grad_skip)


@triton.jit
def ssd_grad_shared(
    grad_mixed,
    grad_dt,
    grad_a_parts,
    grad,
    mixed,
    dt,
    a,
    states,
    grad_states,
    length,
    HEADS: tl.constexpr,
    P: tl.constexpr,
    N: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """One chunk of one sample, all heads: the gradients of B, C and a, and the rest of that of dt.

    A decay moves whatever crosses its moment: C_t · dC_t of all later moments less B_s · dB_s of
    them, where pairs of later moments cancel. Beyond the chunk's end that is the state's product
    with its gradient: what came in and goes through, and what the chunk adds.
    """
    chunks = tl.cdiv(length, CHUNK)
    chunk, sample = tl.program_id(0) % chunks, (tl.program_id(0) // chunks).to(tl.int64)
    WIDTH: tl.constexpr = HEADS * P + 2 * N
    mixed += sample * length * WIDTH
    grad_mixed += sample * length * WIDTH + HEADS * P
    grad += sample * length * (HEADS * P)
    dt += sample * length * HEADS
    grad_dt += sample * length * HEADS
    kept = (sample * HEADS * chunks + chunk) * (N * P)
    part = (sample * chunks + chunk) * HEADS
    place = tl.arange(0, N)[:, None] * P + tl.arange(0, P)[None, :]
    t, ok = _moments(chunk * CHUNK, length, CHUNK)
    b = _tile(mixed + HEADS * P, t, ok, WIDTH, N)
    c = _tile(mixed + HEADS * P + N, t, ok, WIDTH, N)
    grad_b, grad_c = tl.zeros((CHUNK, N), tl.float32), tl.zeros((CHUNK, N), tl.float32)
    for head in range(HEADS):
        x = _tile(mixed + head * P, t, ok, WIDTH, P)
        dy = _tile(grad + head * P, t, ok, HEADS * P, P)
        here = kept + head * chunks * (N * P) + place
        before = tl.load(states + here)
        after = tl.load(grad_states + here)
        rate = tl.load(a + head)
        d, cum, total = _decays(dt + head, t, ok, rate, HEADS)
        met = tl.dot(dy, tl.trans(x)) * d[None, :]
        met = tl.where(t[:, None] >= t[None, :], met * tl.exp(cum[:, None] - cum[None, :]), 0.0).to(
            x.dtype
        )
        read = tl.dot((dy.to(tl.float32) * tl.exp(cum)[:, None]).to(x.dtype), tl.trans(before))
        came_in = tl.sum(tl.sum(read * c.to(tl.float32), 1), 0)
        read = tl.dot(met, b, read)
        grad_c += read
        along = tl.sum(read * c.to(tl.float32), 1)
        written = tl.dot(
            (x.to(tl.float32) * (d * tl.exp(total - cum))[:, None]).to(x.dtype), tl.trans(after)
        )
        written = tl.dot(tl.trans(met), c, written)
        grad_b += written
        along -= tl.sum(written * b.to(tl.float32), 1)
        # The same rounded products on both sides, so that what should cancel does.
        beyond = (
            came_in
            - tl.sum(along, 0)
            + tl.exp(total) * tl.sum(tl.sum(before.to(tl.float32) * after.to(tl.float32), 1), 0)
        )
        grad_decay = tl.cumsum(along, 0, reverse=True) + beyond
        through_x = tl.load(grad_dt + t * HEADS + head, mask=ok, other=0.0)
        tl.store(grad_dt + t * HEADS + head, rate * grad_decay + through_x, mask=ok)
        tl.store(grad_a_parts + part + head, tl.sum(d * grad_decay, 0))
    at = t[:, None] * WIDTH + tl.arange(0, N)[None, :]
    tl.store(grad_mixed + at, grad_b.to(grad_mixed.dtype.element_ty), mask=ok[:, None])
    tl.store(grad_mixed + at + N, grad_c.to(grad_mixed.dtype.element_ty), mask=ok[:, None])
