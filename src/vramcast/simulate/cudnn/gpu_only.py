"""Kernels that cuDNN chooses only where there is a GPU, and their workspaces, recorded on an H200.

Recorded by benchmarks/convolutions/record_plans.py: in 33,318 plans, whenever cuDNN chose another
kernel with a GPU than without, it was one of these.
"""

import gzip
import json
import math
from collections.abc import Sequence
from enum import Enum, auto
from functools import cache

from vramcast.allocator.blocks import round_up
from vramcast.hardware.calibration.table import SHIPPED
from vramcast.simulate.cudnn.convolution import (
    DATA_GRADIENT,
    FORWARD,
    WEIGHT_GRADIENT,
    Convolution,
)
from vramcast.simulate.cudnn.refusals import Refusal
from vramcast.simulate.cudnn.transforms import transform_bytes


class Method(Enum):
    CUBLAS = auto()
    DEPTHWISE = auto()
    FOURIER = auto()
    WINOGRAD = auto()


METHODS = {
    FORWARD: {58: Method.CUBLAS, 5: Method.DEPTHWISE, 3: Method.FOURIER, 6: Method.WINOGRAD},
    DATA_GRADIENT: {
        63: Method.CUBLAS,
        6: Method.DEPTHWISE,
        50: Method.FOURIER,
        7: Method.WINOGRAD,
    },
    WEIGHT_GRADIENT: {
        62: Method.CUBLAS,
        16: Method.DEPTHWISE,
        19: Method.DEPTHWISE,
        18: Method.FOURIER,
        17: Method.WINOGRAD,
    },
}
# made by benchmarks/convolutions/products.py
PRODUCTS = SHIPPED / "convolutions-by-cublas.json.gz"
# a kernel that the driver compiles when it is used
NEEDS_DRIVER = "loadDLL"
# the depthwise weight gradient with partial sums: channels are padded, and eight sums are kept
SUMMING_DEPTHWISE, DEPTHWISE_MULTIPLE, DEPTHWISE_SUMS = 16, 32, 8
# by filter: the side of a square of results, and a multiple of images
WINOGRAD_TILES: dict[tuple[int, ...], tuple[int, int]] = {(3, 3): (4, 1), (5, 5): (9, 16)}
WORKSPACE_MULTIPLE = 16


class Unknown(Exception):
    """cuDNN chooses this kernel, but its workspace is not known exactly."""


def workspace_bytes(
    which: int, refusal: Refusal, c: Convolution, *, is_tried: bool = False
) -> int | None:
    """The workspace of a kernel that cuDNN refused because there is no GPU. None for a kernel that
    it would refuse on a GPU too. `is_tried`: for cudnn.benchmark, which tries more kernels."""
    method = METHODS[which].get(refusal.engine)
    if method is Method.CUBLAS:
        return _cublas_bytes(which, c) if c.is_matrix_product and _may_round(c) else None
    if method is Method.DEPTHWISE:
        return _depthwise_bytes(refusal.engine, refusal.reasons, c, which)
    if method is Method.FOURIER:
        is_allowed = _can_be_transformed(which, c, is_tried)
        return next(transform_bytes(which, c), None) if is_allowed else None
    return _winograd_bytes(which, c) if method is Method.WINOGRAD else None


def _can_be_transformed(which: int, c: Convolution, is_tried: bool) -> bool:
    """Whether cuDNN uses a Fourier transform here: only for images of more than one line. In a
    forward pass or data gradient, filters with a side of 1 or 2 are transformed only where all
    kernels are tried."""
    is_image = len(c.x) == 4 and min(c.x[2:]) > 1
    return is_image and (is_tried or which == WEIGHT_GRADIENT or min(c.weight[2:]) > 2)


def _may_round(c: Convolution) -> bool:
    return c.dtype != "fp32" or c.tf32


def _cublas_bytes(which: int, c: Convolution) -> int:
    """The workspace of a 1 x 1 convolution by cuBLAS. A weight gradient that is not channels_last
    is computed for each image, and these are added up. With channels_last it is one product over
    all images, which cuBLAS splits."""
    sizes = c.x[0], *c.weight[:2], math.prod(c.x[2:])
    own_bytes = _products().get(product_key(which, c.dtype, c.channels_last, *sizes))
    if which != WEIGHT_GRADIENT or c.channels_last:
        if own_bytes is None and which == WEIGHT_GRADIENT:
            raise Unknown
        return own_bytes or 0
    return c.x[0] * math.prod(c.weight) * 4 + (own_bytes or 0)


def product_key(
    which: int, dtype: str, channels_last: bool, batch: int, rows: int, channels: int, area: int
) -> str:
    """The key of a 1 x 1 convolution in PRODUCTS, which has only those with a workspace."""
    return f"{which} {dtype} {channels_last:d} {batch}x{rows}x{channels}x{area}"


@cache
def _products() -> dict[str, int]:
    with gzip.open(PRODUCTS, "rt") as file:
        found: dict[str, int] = json.load(file)
    return found


def _depthwise_bytes(engine: int, reasons: Sequence[str], c: Convolution, which: int) -> int | None:
    if not any(NEEDS_DRIVER in reason for reason in reasons):
        return None
    is_summing = which == WEIGHT_GRADIENT and engine == SUMMING_DEPTHWISE and c.channels_last
    if not is_summing:
        return 0
    features = round_up(c.weight[0], DEPTHWISE_MULTIPLE)
    return c.x[0] * features * c.filter_area * DEPTHWISE_SUMS * 4


def _winograd_bytes(which: int, c: Convolution) -> int | None:
    """The workspace of cuDNN's Winograd kernel, as recorded. None where it does not apply."""
    if which != WEIGHT_GRADIENT or not is_for_winograd(c) or max(c.padding) > c.weight[-1] // 2:
        return None
    num_bytes = winograd_bytes(c)
    if c.channels_last:
        num_bytes += 4 * sum(math.prod(shape) for shape in (c.x, c.y, c.weight)) + 1
    return round_up(num_bytes, WORKSPACE_MULTIPLE)


def is_for_winograd(c: Convolution) -> bool:
    is_plain = len(c.x) == 4 and {*c.stride, *c.dilation, c.groups} == {1}
    return is_plain and c.dtype == "fp32" and tuple(c.weight[2:]) in WINOGRAD_TILES


def winograd_bytes(c: Convolution) -> int:
    """The transformed tiles of input, result and weight, without copies in another layout."""
    side, multiple = WINOGRAD_TILES[tuple(c.weight[2:])]
    channels, features = c.x[1], c.y[1]
    num_tiles = round_up(c.x[0], multiple) * math.prod(-(-size // side) for size in c.y[2:])
    num_points = (side + c.weight[-1] - 1) ** 2
    return num_points * 4 * (num_tiles * (channels + features) + channels * features)
