"""Kernels that cuDNN plans on a GPU only, and their workspaces as recorded on an H200.

benchmarks/convolutions/record_plans.py recorded them. Where cuDNN chooses another kernel on a GPU
than without, it was always one of these (in 33,318 plans).
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
from vramcast.simulate.cudnn.transforms import COPIES_BYTES, transform_bytes


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
# A kernel that is compiled when it is used, which the driver does: all else about it is right.
NEEDS_DRIVER = "loadDLL"
# the depthwise weight gradient with partial sums: channels are padded, and eight sums are kept
SUMMING_DEPTHWISE, DEPTHWISE_MULTIPLE, DEPTHWISE_SUMS = 16, 32, 8
# squares of 4 results are made from 6 x 6 inputs
WINOGRAD_TILE, WINOGRAD_FILTER, WINOGRAD_POINTS = 4, (3, 3), 36


class Unknown(Exception):
    """The kernel is chosen, but what it takes is not known to the byte."""


def workspace_bytes(
    which: int, refusal: Refusal, c: Convolution, *, is_tried: bool = False
) -> int | None:
    """None for a kernel that a GPU would refuse too, or that cuDNN only tries."""
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
    """No lines; small filters where all kernels are tried, and for their gradients."""
    is_image = len(c.x) == 4 and min(c.x[2:]) > 1
    return is_image and (is_tried or which == WEIGHT_GRADIENT or min(c.weight[2:]) > 2)


def _may_round(c: Convolution) -> bool:
    return c.dtype != "fp32" or c.tf32


def _cublas_bytes(which: int, c: Convolution) -> int:
    """A weight gradient for each image, to be added up. One product of all images is split."""
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
    """Of a 1 x 1 convolution; in PRODUCTS are the bytes of those that take some."""
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
    """As recorded: for weight gradients."""
    is_recorded = which == WEIGHT_GRADIENT and max(c.padding) < 2
    if not is_recorded or not is_for_winograd(c):
        return None
    copies_bytes = 0
    if c.channels_last:
        copies_bytes = 4 * sum(math.prod(shape) for shape in (c.x, c.y, c.weight)) + COPIES_BYTES
    return winograd_bytes(c) + copies_bytes


def is_for_winograd(c: Convolution) -> bool:
    is_plain = len(c.x) == 4 and {*c.stride, *c.dilation, c.groups} == {1}
    return is_plain and c.dtype == "fp32" and tuple(c.weight[2:]) == WINOGRAD_FILTER


def winograd_bytes(c: Convolution) -> int:
    """Beside copies of the tensors."""
    channels, features = c.x[1], c.y[1]
    num_tiles = c.x[0] * math.prod(-(-size // WINOGRAD_TILE) for size in c.y[2:])
    return WINOGRAD_POINTS * 4 * (num_tiles * (channels + features) + channels * features)
