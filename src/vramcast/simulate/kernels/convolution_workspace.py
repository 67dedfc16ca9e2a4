"""cuDNN's workspace of a 2-d convolution that is in no calibration table, by a rule. No torch.

cuDNN's own rules are not published. This one was deduced from 500 convolutions measured on an H200
(cuDNN 9.19): it is right to 5 % in 83 of 100 forward passes, 88 data and 73 weight gradients. Fast
kernels want channels last, and a multiple of 4 or 8 of them; what is not so is converted in the
workspace. A weight gradient is a product with one long dimension: it is split and summed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from vramcast.allocator.blocks import round_up

FORWARD, DATA_GRADIENT, WEIGHT_GRADIENT = 0, 1, 2
MULTIPROCESSORS = 132
# In half precision a shorter sum is not split, and no part is shorter.
MIN_HALF_SUM, MIN_HALF_PART = 16384, 1900


class Convolution:
    def __init__(
        self,
        dtype: str,  # fp32, bf16 or fp16
        channels_last: bool,
        x: Sequence[int],
        weight: Sequence[int],
        y: Sequence[int],
    ) -> None:
        self.channels_last, self.x, self.weight, self.y = channels_last, x, weight, y
        self.is_half = dtype != "fp32"
        self.item_bytes = 2 if self.is_half else 4
        # The fast kernels take a multiple of 16 bytes.
        self.rounded_channels = round_up(x[1], 16 // self.item_bytes)
        self.is_narrow = x[1] < 16 // self.item_bytes
        self.filter_area = math.prod(weight[2:])
        # a matrix product on the data as they are
        self.is_pointwise = self.filter_area == 1 and tuple(x[2:]) == tuple(y[2:])
        # of the result: a weight gradient's long dimension
        self.num_positions = y[0] * math.prod(y[2:])
        # input and weight with their channels last and rounded up
        num_pixels = x[0] * math.prod(x[2:]) + weight[0] * self.filter_area
        self.converted_bytes = num_pixels * self.rounded_channels * self.item_bytes + 16


def workspace_bytes(which: int, c: Convolution) -> int:
    if c.is_pointwise:
        return 400 if which != WEIGHT_GRADIENT else _pointwise_weight_gradient_bytes(c)
    split = 0
    if which == WEIGHT_GRADIENT:
        split = _narrow_split_bytes(c) if c.is_narrow else _split_bytes(c)
    if c.channels_last:
        return split + (131 if c.x[1] == c.rounded_channels else c.converted_bytes)
    if which == DATA_GRADIENT and c.is_narrow and not c.is_half:
        return 0  # images have no gradient worth a fast kernel
    on_data_as_they_are = which == FORWARD or (which == DATA_GRADIENT and not c.is_half)
    if c.filter_area == 1 and c.x[1] <= 64 and on_data_as_they_are:
        return 256  # strided, few channels
    writes_result_directly = not c.is_half and not c.is_narrow and c.x[1] < 128
    if which == FORWARD and writes_result_directly and max(c.x[2:]) >= 56:
        return c.converted_bytes
    return c.converted_bytes + math.prod(c.y) * c.item_bytes + split


def _pointwise_weight_gradient_bytes(c: Convolution) -> int:
    rows, columns = c.weight[0], c.weight[1]
    if not c.channels_last:
        return c.x[0] * rows * columns * 4  # one for each image, then a sum
    if c.is_half:
        tiles = MULTIPROCESSORS * min(rows, 128) * min(columns, 128)
        return min(tiles, c.num_positions // 1320 * rows * columns) * 4
    return MULTIPROCESSORS * 128 * (256 if columns >= 512 else 128) * 4


def _narrow_split_bytes(c: Convolution) -> int:
    """Three or four input channels: 128 x 128 tiles, two blocks on each multiprocessor."""
    rows, columns = c.weight[0], c.filter_area * c.rounded_channels
    tiles = -(-rows // 128) * -(-columns // 128)
    if tiles >= 32 and not c.is_half:
        return 0
    splits = min(int(245 / tiles + 0.5), c.num_positions // (1600 if tiles > 1 else 450))
    if rows * columns < 8192:
        splits = min(splits, 23)
    return splits * rows * columns * 4


def _split_bytes(c: Convolution) -> int:
    """Partial sums in fp32 of the product [channels out, filter area x channels in]."""
    rows, columns, depth = c.weight[0], c.filter_area * c.weight[1], c.num_positions
    blocks = 120 if c.is_half else MULTIPROCESSORS
    height = 128 if rows >= 128 else 64
    width = 128 if columns % 128 == 0 and columns >= 128 else 64
    tiles = -(-rows // height) * -(-columns // width)
    if blocks // tiles == 1:  # cannot be split: halve the tiles
        width, tiles = 64, -(-rows // height) * -(-columns // 64)
    if tiles > blocks:
        tiles %= blocks  # only those of the last, partly filled wave are split
        splits = blocks // tiles if tiles and depth >= (6000 if c.is_half else 1024) else 0
    elif c.is_half:
        splits = min(blocks // tiles, depth // MIN_HALF_PART) if depth >= MIN_HALF_SUM else 0
    else:
        splits = min(blocks // tiles, depth // (2000 if tiles >= 18 else 896 if tiles > 1 else 540))
    return tiles * splits * height * width * 4 if splits > 1 else 0
