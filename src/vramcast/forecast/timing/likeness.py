"""A factor on a kernel's modelled time, from recorded kernels of the same operator.

Its logarithm is a weighted sum over the recorded kernels, by how similar they are: a Gaussian
process.
"""

import math
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vramcast.tracing.work import OperatorWork

TABLE = "likeness-sm_90-torch-2.11.npz"
LIKE, MOST = 3.0, 1.0  # the distance at which similarity falls to 1/e, and the largest logarithm
WIDTHS = (8, 64)  # being a multiple of one of these is a feature


def factor(work: OperatorWork) -> float:
    recorded, name = table(TABLE), name_of(work)
    if f"{name} places" not in recorded:
        return 1.0
    near = likeness(np.array([features(work)]), recorded[f"{name} places"], LIKE)
    return math.exp(np.clip(near[0] @ recorded[f"{name} weights"], -MOST, MOST))


def name_of(work: OperatorWork) -> str:
    """The name of the kernel. An in-place operator has the same kernel; one over strided rows has
    another."""
    if work.is_evaluated:
        return f"{work.operator} evaluated"
    return work.operator.removesuffix("_") + (" across" if work.sizes[0] == 1 else "")


def features(work: OperatorWork) -> list[float]:
    """Features of the kernel, each scaled by how much it tells two kernels apart."""
    precision = work.precision
    return [
        0.7 * math.log(max(1.0, work.num_bytes)),
        0.5 * math.log(max(1.0, work.flops)),
        *(math.log(max(1, size)) for size in work.sizes),
        *(0.7 * (size % width == 0) for size in work.sizes[1:] for width in WIDTHS),
        *(2.0 * (work.item_bytes == 2), 0.5 * (precision == "fp16")),
        *(2.0 * (precision == "tf32"), 2.0 * work.access),
    ]


def likeness(these: NDArray[Any], those: NDArray[Any], like: float) -> NDArray[Any]:
    squares = (these**2).sum(1)[:, None] + (those**2).sum(1) - 2 * these @ those.T
    found: NDArray[Any] = np.exp(-np.sqrt(np.maximum(squares, 0)) / like)
    return found


@cache
def table(name: str) -> Mapping[str, Any]:
    with resources.files("vramcast.forecast.timing").joinpath("tables", name).open("rb") as file:
        return {name: values.astype(float) for name, values in np.load(file).items()}
