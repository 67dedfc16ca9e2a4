"""Triton kernels for test_by_hand.py. @triton.jit wants them in a file."""

# mypy: disable-error-code="no-untyped-def"

import triton
import triton.language as tl

SCALE = tl.constexpr(3.0)
WIDTH: tl.constexpr = 2


@triton.jit
def scaled(x):
    return x.to(tl.float32) * SCALE


@triton.jit
def added(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, scaled(tl.load(x + at, mask=mask)) + tl.load(y + at, mask=mask), mask=mask)


@triton.jit
def added_in_blocks(x, y, out, n, BLOCK: tl.constexpr):
    first = tl.program_id(0) * BLOCK
    left = tl.make_block_ptr(x, (n,), (1,), (first,), (BLOCK,), (0,))
    right = tl.make_block_ptr(y, (n,), (1,), (first - BLOCK,), (BLOCK,), (0,))
    right = tl.advance(right, (BLOCK,))
    to = tl.make_block_ptr(out, (n,), (1,), (first,), (BLOCK,), (0,))
    sums = scaled(tl.load(left, boundary_check=(0,))) + tl.load(right, boundary_check=(0,))
    tl.store(to, sums, boundary_check=(0,))


@triton.jit
def running(x, out, length, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    width = tl.num_programs(0) * BLOCK
    state = tl.zeros((BLOCK,), dtype=tl.float32)
    for turn in range(length):
        state += tl.load(x + turn * width + at)
        tl.store(out + turn * width + at, state)


@triton.jit
def written_out(x, out, LENGTH: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    width = tl.num_programs(0) * BLOCK
    for turn in tl.static_range(LENGTH):
        tl.store(out + turn * width + at, tl.load(x + turn * width + at))


@triton.jit
def product(x, y, out, inner, SIDE: tl.constexpr):
    rows, columns = tl.program_id(0) * SIDE + tl.arange(0, SIDE), tl.arange(0, SIDE)
    total = tl.zeros((SIDE, SIDE), dtype=tl.float32)
    for first in range(0, inner, SIDE):
        at = first + tl.arange(0, SIDE)
        left = tl.load(x + rows[:, None] * inner + at[None, :])
        total += tl.dot(left, tl.load(y + at[:, None] * SIDE + columns[None, :]))
    tl.store(out + rows[:, None] * SIDE + columns[None, :], total)


@triton.jit
def named(table, places, out, width, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(places + tl.program_id(0))
    tl.store(out + tl.program_id(0) * width + at, tl.load(table + row * width + at))


@triton.jit
def sorted_rows(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.sort(tl.load(x + at)))


@triton.jit
def settling(x, out, BLOCK: tl.constexpr):
    left = tl.load(x)
    while left < 2:
        left = left * 1.0
    tl.store(out + tl.arange(0, BLOCK), left)


@triton.jit
def opening(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    open("a file that no kernel can open", "w")  # noqa: SIM115
    tl.store(out + at, tl.load(x + at))


@triton.jit
def waiting(flag, out, BLOCK: tl.constexpr):
    while tl.load(flag) < 2:
        pass
    tl.store(out + tl.arange(0, BLOCK), 1.0)


@triton.jit
def printing(out, BLOCK: tl.constexpr):
    print("block", tl.program_id(0))
    tl.device_print("block", tl.program_id(0))
    tl.store(out + tl.arange(0, BLOCK), 1.0)


@triton.jit
def by_name(x, out, BLOCK: tl.constexpr):
    at = tl.arange(start=0, end=BLOCK)
    values = tl.load(pointer=x + at)
    values = tl.where(condition=values > values.max(0), x=values, y=0.0)
    turned = tl.permute(values.reshape(BLOCK // 16, 16), (1, 0))
    tl.store(pointer=out + at, value=tl.ravel(turned))


@triton.jit
def wide(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for turn in range(WIDTH):
        total += tl.load(x + turn * BLOCK + at)
    tl.store(out + at, total)


@triton.jit
def counting_up(x, out, BLOCK: tl.constexpr):
    turn = 0
    while turn < 1_000_000_000:
        turn += 1
    tl.store(out + tl.arange(0, BLOCK), turn)


@triton.jit
def unrolled(x, out, BLOCK: tl.constexpr):
    values = tl.load(x + tl.arange(0, BLOCK))
    for turn in tl.static_range(100_000):
        values = values * 1.5 + turn
    tl.store(out + tl.arange(0, BLOCK), values)


@triton.jit
def too_large(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK << 14)
    tl.store(out + at, tl.load(x + at))


@triton.jit
def put(where, value):
    tl.store(where, value)


@triton.jit
def put_by_function(x, out, BLOCK: tl.constexpr):
    put(out + tl.arange(0, BLOCK), tl.load(x))


@triton.jit
def put_at_address(x, out, BLOCK: tl.constexpr):
    where = out + tl.arange(0, BLOCK)
    tl.store(
        where,
        tl.load(x),
    )


@triton.jit
def put_at_end(x, out, BLOCK: tl.constexpr):
    if tl.program_id(0) == tl.num_programs(0) - 1:
        tl.atomic_add(out, tl.load(x))


@triton.jit
def of_several(tensors, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(tensors[0] + at) + tl.load(tensors[1] + at))
