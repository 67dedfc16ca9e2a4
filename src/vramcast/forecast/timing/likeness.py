"""What recorded kernels of an operator took beside what its model says: the logarithm is a sum over
them by how like they are, a Gaussian process. Far from all of them the model stands alone."""

import math
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vramcast.tracing.work import OperatorWork

TABLE = "likeness-sm_90-torch-2.11.npz"
LIKE = 3.0  # a distance
MOST = 1.0  # of a logarithm
WIDTHS = (8, 64)  # multiples that kernels like


def factor(work: OperatorWork) -> float:
    recorded, name = _recorded(), name_of(work)
    if f"{name} places" not in recorded:
        return 1.0
    places, weights = recorded[f"{name} places"], recorded[f"{name} weights"]
    logarithm = float(likeness(np.array([features(work)]), places)[0] @ weights)
    return math.exp(min(MOST, max(-MOST, logarithm)))


def name_of(work: OperatorWork) -> str:
    """What works in place has the kernel of what does not, what goes across rows another."""
    return work.operator.removesuffix("_") + (" across" if work.sizes[0] == 1 else "")


def features(work: OperatorWork) -> list[float]:
    """Logarithms and flags, by how much they tell two kernels apart."""
    first, *sizes = work.sizes
    is_16_bits = work.precision in ("bf16", "fp16")
    return [
        0.7 * math.log(max(1.0, work.num_bytes)),
        0.5 * math.log(max(1.0, work.flops)),
        *(math.log(max(1, size)) for size in (first, *sizes)),
        *(0.7 * (size % width == 0) for size in sizes for width in WIDTHS),
        *(2.0 * is_16_bits, 0.5 * (work.precision == "fp16"), 2.0 * (work.precision == "tf32")),
        2.0 * work.access,
    ]


def likeness(these: NDArray[Any], those: NDArray[Any]) -> NDArray[Any]:
    squares = (these**2).sum(1)[:, None] + (those**2).sum(1) - 2 * these @ those.T
    found: NDArray[Any] = np.exp(-np.sqrt(np.maximum(squares, 0)) / LIKE)
    return found


@cache
def _recorded() -> Mapping[str, Any]:
    folder = resources.files("vramcast.forecast.timing").joinpath("tables")
    with folder.joinpath(TABLE).open("rb") as file:
        return {name: values.astype(float) for name, values in np.load(file).items()}
