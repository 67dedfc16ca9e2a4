"""Workspaces of convolutions by Fourier transforms, which cudnn.benchmark tries in fp32.

cuDNN does not plan these without a GPU. Every plane of the input, the weight and the result is
transformed in a square whose side is a power of two. The sizes are as recorded on an H200
(benchmarks/convolutions).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from vramcast.simulate.cudnn.convolution import FORWARD, Convolution

SMALLEST_SIDE, LARGEST_SIDE = 16, 256
# two complex numbers for each point of half a plane
POINT_BYTES = 16


def transform_bytes(which: int, c: Convolution) -> Iterator[int]:
    """Of none or one kernel."""
    is_plain = {*c.stride, *c.dilation, c.groups} == {1} and len(c.x) <= 4
    if c.dtype != "fp32" or not is_plain:
        return
    longest = max(size + 2 * pad for size, pad in zip(c.x[2:], c.padding, strict=True))
    side = max(SMALLEST_SIDE, 1 << (longest - 1).bit_length())
    if side > LARGEST_SIDE:
        return
    plane_bytes = side * (side // 2 + 1) * POINT_BYTES
    x, y, weight = (math.prod(shape[:2]) for shape in (c.x, c.y, c.weight))
    if which == FORWARD:
        yield max(x + weight, y) * plane_bytes + math.prod(c.weight) * c.item_bytes
    else:
        yield max(x + y, weight) * plane_bytes + math.prod(c.y) * c.item_bytes
