# mypy: ignore-errors
"""Triton kernels of Elleci's selective scan, where every channel has a time step of its own.

They are launched by launch.py.

    S_t = e^(dt_t a) S_{t-1} + dt_t x_t B_tᵀ,  y_t = S_t C_t + D x_t

S is [channel, N]; all channels share B and C.

A program walks a block of channels of one sample through time, the state in registers. Forward may
leave the state before every CHUNK moments in memory; backward begins at the last of them, makes the
states of its moments again, keeps them in registers and walks back.
"""

import triton
import triton.language as tl


@triton.jit
def selective_forward(
    y,
    states,
    x,
    dt,
    a,
    b,
    c,
    skip,
    length,
    width,
    N: tl.constexpr,
    CHANNELS: tl.constexpr,
    CHUNK: tl.constexpr,
    KEEPS: tl.constexpr,
):
    """With KEEPS only `states` [sample, chunk, channel, N] is written, without only `y`."""
    sample = tl.program_id(0).to(tl.int64)
    channels, number = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS), tl.arange(0, N)
    inside = channels < width
    rate, through = (
        tl.load(a + channels, mask=inside, other=0.0),
        tl.load(skip + channels, mask=inside, other=0.0),
    )
    chunks = tl.cdiv(length, CHUNK)
    wide, narrow = sample * length * width + channels, sample * length * N + number
    state = tl.zeros((CHANNELS, N), tl.float32)
    for step in range(length):
        if KEEPS:  # noqa: SIM102 (decided when this is compiled)
            if step % CHUNK == 0:
                at = ((sample * chunks + step // CHUNK) * width + channels[:, None]) * N + number[
                    None, :
                ]
                tl.store(states + at, state, mask=inside[:, None])
        u = tl.load(x + wide, mask=inside, other=0.0).to(tl.float32)
        d = tl.load(dt + wide, mask=inside, other=0.0)
        state = (
            state * tl.exp(d * rate)[:, None]
            + (d * u)[:, None] * tl.load(b + narrow).to(tl.float32)[None, :]
        )
        if not KEEPS:
            read = tl.sum(state * tl.load(c + narrow).to(tl.float32)[None, :], 1) + through * u
            tl.store(y + wide, read.to(y.dtype.element_ty), mask=inside)
        wide += width
        narrow += N


@triton.jit
def _moment(x, dt, b, t, length, width, channels, number, inside, N: tl.constexpr):
    """x, dt and B of a moment; past the end all zero: a state stays as it is."""
    there = (inside & (t < length)) != 0
    u = tl.load(x + t * width + channels, mask=there, other=0.0).to(tl.float32)
    d = tl.load(dt + t * width + channels, mask=there, other=0.0)
    return (
        u,
        d,
        tl.load(b + t * N + number, mask=((number >= 0) & (t < length)) != 0, other=0.0).to(
            tl.float32
        ),
    )


@triton.jit
def selective_backward(
    grad_x,
    grad_dt,
    grad_a_rows,
    grad_skip_rows,
    grad_b_parts,
    grad_c_parts,
    grad,
    x,
    dt,
    a,
    b,
    c,
    skip,
    states,
    length,
    width,
    N: tl.constexpr,
    CHANNELS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """The gradients of B and C come in parts, a block of channels each: [block, sample, time, N].

    Those of a and D sample by sample.
    """
    sample, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    channels, number = block * CHANNELS + tl.arange(0, CHANNELS), tl.arange(0, N)
    inside = channels < width
    rate, through = (
        tl.load(a + channels, mask=inside, other=0.0),
        tl.load(skip + channels, mask=inside, other=0.0),
    )
    chunks = tl.cdiv(length, CHUNK)
    x += sample * length * width
    dt += sample * length * width
    grad += sample * length * width
    grad_x += sample * length * width
    grad_dt += sample * length * width
    b += sample * length * N
    c += sample * length * N
    part = (block * tl.num_programs(0) + sample) * length * N
    grad_state = tl.zeros((CHANNELS, N), tl.float32)
    grad_a, grad_skip = tl.zeros((CHANNELS,), tl.float32), tl.zeros((CHANNELS,), tl.float32)
    for step in range(chunks):
        chunk = chunks - 1 - step
        at = ((sample * chunks + chunk) * width + channels[:, None]) * N + number[None, :]
        befores = (tl.load(states + at, mask=inside[:, None], other=0.0),)
        for i in tl.static_range(CHUNK - 1):
            u, d, keys = _moment(
                x, dt, b, chunk * CHUNK + i, length, width, channels, number, inside, N
            )
            befores = befores + (
                befores[i] * tl.exp(d * rate)[:, None] + (d * u)[:, None] * keys[None, :],
            )
        for i in tl.static_range(CHUNK):
            t = chunk * CHUNK + CHUNK - 1 - i
            before = befores[CHUNK - 1 - i]
            u, d, keys = _moment(x, dt, b, t, length, width, channels, number, inside, N)
            there = (inside & (t < length)) != 0
            dy = tl.load(grad + t * width + channels, mask=there, other=0.0).to(tl.float32)
            queries = tl.load(
                c + t * N + number, mask=((number >= 0) & (t < length)) != 0, other=0.0
            ).to(tl.float32)
            decay = tl.exp(d * rate)
            state = before * decay[:, None] + (d * u)[:, None] * keys[None, :]
            grad_state += dy[:, None] * queries[None, :]
            tl.store(
                grad_c_parts + part + t * N + number,
                tl.sum(state * dy[:, None], 0),
                mask=((number >= 0) & (t < length)) != 0,
            )
            tl.store(
                grad_b_parts + part + t * N + number,
                tl.sum(grad_state * (d * u)[:, None], 0),
                mask=((number >= 0) & (t < length)) != 0,
            )
            driven = tl.sum(grad_state * keys[None, :], 1)
            faded = tl.sum(grad_state * before, 1) * decay
            tl.store(
                grad_x + t * width + channels,
                (d * driven + through * dy).to(grad_x.dtype.element_ty),
                mask=there,
            )
            tl.store(grad_dt + t * width + channels, u * driven + rate * faded, mask=there)
            grad_a += d * faded
            grad_skip += u * dy
            grad_state = grad_state * decay[:, None]
    tl.store(grad_a_rows + sample * width + channels, grad_a, mask=inside)
    tl.store(grad_skip_rows + sample * width + channels, grad_skip, mask=inside)
