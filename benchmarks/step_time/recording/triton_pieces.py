"""A kernel of host_pieces.py."""

import triton
import triton.language as tl


@triton.jit
def add_one(x, y, x_stride, y_stride, n, value, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, at < n) + value, at < n)
