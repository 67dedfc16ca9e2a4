"""A factor on a kernel's modelled time, from recorded kernels of the same operator.

Its logarithm is a weighted sum over the recorded kernels, by how similar they are: a Gaussian
process.
"""

import io
import math
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
    name = name_of(work)
    if f"{name} places" not in table(TABLE):
        return 1.0
    places, weights = (recorded(TABLE, f"{name} {what}") for what in ("places", "weights"))
    near = likeness(np.array([features(work)]), places, LIKE)
    return math.exp(np.clip(near[0] @ weights, -MOST, MOST))


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
def recorded(name: str, array: str) -> Any:
    """One array of a table. Most programs have few of the kernels, and reading all takes a third of
    the time of a small simulation."""
    return table(name)[array].astype(float)


@cache
def table(name: str) -> Any:
    """The file, of which an array is read when it is asked for. It is held in memory: forks share
    the position in a file that is open."""
    path = resources.files("vramcast.forecast.timing").joinpath("tables", name)
    return np.load(io.BytesIO(path.read_bytes()))
