"""What recorded kernels of an operator took beside what its model says: the logarithm is a sum over
them by how like they are, a Gaussian process."""

import math
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vramcast.tracing.work import OperatorWork

TABLE = "likeness-sm_90-torch-2.11.npz"
LIKE, MOST = 3.0, 1.0  # a distance, a logarithm
WIDTHS = (8, 64)  # multiples that kernels like


def factor(work: OperatorWork) -> float:
    recorded, name = table(TABLE), name_of(work)
    if f"{name} places" not in recorded:
        return 1.0
    near = likeness(np.array([features(work)]), recorded[f"{name} places"], LIKE)
    return math.exp(np.clip(near[0] @ recorded[f"{name} weights"], -MOST, MOST))


def name_of(work: OperatorWork) -> str:
    """What works in place has the kernel of what does not, what goes across rows another."""
    return work.operator.removesuffix("_") + (" across" if work.sizes[0] == 1 else "")


def features(work: OperatorWork) -> list[float]:
    """By how much they tell two kernels apart."""
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
