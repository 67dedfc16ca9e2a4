"""Workspaces of convolutions by Fourier transforms in fp32, as recorded on an H200."""

import math
from collections.abc import Iterator

from vramcast.simulate.cudnn.convolution import DATA_GRADIENT, FORWARD, Convolution

SMALLEST_SIDE, LARGEST_SIDE = 16, 256
# two complex numbers for each point of half a plane
POINT_BYTES = 16
# data gradients are computed in squares of this side, one complex number for each point
TILE_SIDE = 32
TILE_BYTES = TILE_SIDE * (TILE_SIDE // 2 + 1) * 8
COPIES_BYTES = 16  # beside copies in another layout


def transform_bytes(which: int, c: Convolution) -> Iterator[int]:
    """The workspace of the Fourier kernel. Nothing where it does not apply."""
    if c.dtype != "fp32" or len(c.x) > 4 or {*c.dilation, c.groups} != {1}:
        return
    is_strided = set(c.stride) != {1}
    copies_bytes = _copies_bytes(c) if c.channels_last or is_strided else 0
    x, y, weight = (math.prod(shape[:2]) for shape in (c.x, c.y, c.weight))
    if which == DATA_GRADIENT:
        if c.filter_area > 1 and max(c.weight[2:]) <= TILE_SIDE:
            yield _tiles_bytes(c) + copies_bytes
        return
    longest = max(size + 2 * pad for size, pad in zip(c.x[2:], c.padding, strict=True))
    side = max(SMALLEST_SIDE, 1 << (longest - 1).bit_length())
    if is_strided or side > LARGEST_SIDE:
        return
    plane_bytes = side * (side // 2 + 1) * POINT_BYTES
    if which == FORWARD:
        planes, other = max(x + weight, y), c.weight
    else:
        planes, other = max(x + y, weight), c.y
    yield planes * plane_bytes + math.prod(other) * c.item_bytes + copies_bytes


def _tiles_bytes(c: Convolution) -> int:
    """The transformed tiles of a data gradient. With a stride it becomes several smaller
    convolutions. Where an image has several tiles, two at a time are computed."""
    parts = math.prod(c.stride)
    x, y, weight = (math.prod(shape[:2]) for shape in (c.x, c.y, c.weight))
    is_one_tile = all(
        -(-size // step) <= TILE_SIDE - -(-filter_size // step) + 1
        for size, step, filter_size in zip(c.x[2:], c.stride, c.weight[2:], strict=True)
    )
    num_tiles = 1 if is_one_tile else 2
    return (parts * weight + num_tiles * (parts * x + y)) * TILE_BYTES


def _copies_bytes(c: Convolution) -> int:
    """Copies of the tensors in the layout that the kernel needs."""
    sizes = [c.x, c.y, *([c.weight] if c.filter_area > 1 else [])]
    return c.item_bytes * sum(map(math.prod, sizes)) + (COPIES_BYTES if c.channels_last else 0)
