"""cuDNN's workspace for one 2-d convolution that no calibration table knows: a rule deduced from 500 measured on an H200 (cuDNN 9.19).

cuDNN chooses among kernels by heuristics that are not published. Mostly: the fast kernels want channels last and a multiple of 4 or 8
of them, and what is not so is converted in the workspace; a weight gradient is a product with one long dimension, whose parts are summed
at the end. Of those measured it is right to 5 % in 83 of 100 forward, 88 data gradients and 73 weight gradients. No torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FORWARD, DATA_GRADIENT, WEIGHT_GRADIENT = 0, 1, 2
MULTIPROCESSORS = 132
SHORTEST_HALF_SUM, SHORTEST_HALF_PART = 16384, 1900


@dataclass(frozen=True)
class Convolution:
    dtype: str  # fp32, bf16 or fp16
    channels_last: bool
    x: Sequence[int]
    weight: Sequence[int]
    y: Sequence[int]

    @property
    def is_half(self) -> bool:
        return self.dtype != "fp32"

    @property
    def item_bytes(self) -> int:
        return 2 if self.is_half else 4

    @property
    def is_pointwise(self) -> bool:
        """A matrix product on the data as they are."""
        return all(n == 1 for n in self.weight[2:]) and tuple(self.x[2:]) == tuple(self.y[2:])

    @property
    def num_positions(self) -> int:
        """Of the result: the long dimension of a weight gradient."""
        return _product(self.y) // self.y[1]

    @property
    def patch(self) -> int:
        return _product(self.weight[2:])

    def input_and_weight_bytes(self, multiple: int) -> int:
        channels = -(-self.x[1] // multiple) * multiple
        return (
            (_product(self.x) // self.x[1] + self.weight[0] * self.patch)
            * channels
            * self.item_bytes
        )

    @property
    def result_bytes(self) -> int:
        return _product(self.y) * self.item_bytes


def workspace_bytes(which: int, c: Convolution) -> int:
    if c.is_pointwise:
        return 400 if which != WEIGHT_GRADIENT else _pointwise_weight_gradient_bytes(c)
    multiple = 8 if c.is_half else 4
    narrow = c.x[1] < multiple
    split = 0
    if which == WEIGHT_GRADIENT:
        channels = -(-c.x[1] // multiple) * multiple
        split = _narrow_split_bytes(c, channels) if narrow else _split_bytes(c)
    if c.channels_last:
        return split + (c.input_and_weight_bytes(multiple) + 16 if c.x[1] % multiple else 131)
    if narrow and not c.is_half and which == DATA_GRADIENT:
        return 0  # images have no gradient worth a fast kernel
    if (
        c.patch == 1
        and c.x[1] <= 64
        and (which == FORWARD or which == DATA_GRADIENT and not c.is_half)
    ):
        return 256  # strided, few channels: on the data as they are
    if which == FORWARD and not c.is_half and c.x[1] < 128 and max(c.x[2:]) >= 56 and not narrow:
        return c.input_and_weight_bytes(multiple) + 16  # writes its result as it should be
    return c.input_and_weight_bytes(multiple) + c.result_bytes + 16 + split


def _pointwise_weight_gradient_bytes(c: Convolution) -> int:
    out, into = c.weight[0], c.weight[1]
    if not c.channels_last:
        return c.x[0] * out * into * 4  # one for each image, then a sum
    if c.is_half:
        return (
            min(
                MULTIPROCESSORS * min(out, 128) * min(into, 128),
                c.num_positions // 1320 * out * into,
            )
            * 4
        )
    return MULTIPROCESSORS * 128 * (256 if into >= 512 else 128) * 4


def _narrow_split_bytes(c: Convolution, channels: int) -> int:
    """Three or four input channels: 128 x 128 tiles, two blocks a multiprocessor."""
    rows, columns = c.weight[0], c.patch * channels
    tiles = -(-rows // 128) * -(-columns // 128)
    splits = min(int(245 / tiles + 0.5), c.num_positions // (1600 if tiles > 1 else 450))
    if rows * columns < 8192:
        splits = min(splits, 23)
    if tiles >= 32 and not c.is_half:
        splits = 0
    return splits * rows * columns * 4


def _split_bytes(c: Convolution) -> int:
    """Partial sums in fp32 of the product [channels out, patch x channels in], its tiles spread over the multiprocessors."""
    rows, columns, depth = c.weight[0], c.patch * c.weight[1], c.num_positions
    blocks = 120 if c.is_half else MULTIPROCESSORS
    high = 128 if rows >= 128 else 64
    wide = 128 if columns % 128 == 0 and columns >= 128 else 64
    tiles = -(-rows // high) * -(-columns // wide)
    if blocks // tiles == 1:  # cannot be split: halve the tiles
        wide, tiles = 64, -(-rows // high) * -(-columns // 64)
    if tiles > blocks:
        tiles %= blocks  # only those of the last, partly filled wave are split
        splits = blocks // tiles if tiles and depth >= (6000 if c.is_half else 1024) else 0
    elif c.is_half:
        splits = (
            min(blocks // tiles, depth // SHORTEST_HALF_PART) if depth >= SHORTEST_HALF_SUM else 0
        )
    else:
        splits = min(blocks // tiles, depth // (2000 if tiles >= 18 else 896 if tiles > 1 else 540))
    return tiles * splits * high * wide * 4 if splits > 1 else 0


def _product(numbers: Sequence[int]) -> int:
    result = 1
    for number in numbers:
        result *= number
    return result
