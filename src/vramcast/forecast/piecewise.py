"""A law with a floor: memory that stays the same for small runs and grows from some size on.

While the batch is small the optimizer step sets the peak, and its memory is that of the
parameters; with a larger batch the backward pass does. One line through both is wrong at both ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

MIN_ON_FLOOR = 2  # a single run is always exactly on its own floor
# With a floor, errors of runs left out must be at most this part of those without.
MAX_ERROR_RATIO = 0.5
# A law without a floor that is as good as this is kept: a floor would explain noise.
GOOD_ENOUGH_PERCENT = 0.5
# At a run, the law may lie on the wrong side of the floor by this part of it.
FLOOR_TOLERANCE = 0.02


@dataclass(frozen=True)
class Pieces:
    """allocated = max(floor, law); the floor is the mean of the runs `on_floor`, by index."""

    floor_bytes: float
    coefficients: Any
    on_floor: tuple[int, ...]

    def at(self, values: Any) -> float:
        return max(self.floor_bytes, float(values @ self.coefficients))


def solve(matrix: Any, values: Any) -> Any:
    """Least squares, with terms of very different size."""
    scale = np.abs(matrix).max(axis=0)
    scale[scale == 0] = 1.0
    solution, *_ = np.linalg.lstsq(matrix / scale, values, rcond=None)
    return solution / scale


def find_pieces(matrix: Any, allocated: Any) -> Pieces | None:
    """A floor and a law, where they predict left-out runs much better than a law alone."""
    single = left_out_errors(matrix, allocated, ())
    candidates = [
        pieces
        for count in range(MIN_ON_FLOOR, len(allocated))
        if (pieces := _with_floor(matrix, allocated, count))
    ]
    if not candidates or single is None or _typical(single) < GOOD_ENOUGH_PERCENT:
        return None
    best = min(candidates, key=lambda pieces: _typical(_errors(matrix, allocated, pieces)))
    errors = left_out_errors(matrix, allocated, best.on_floor)
    return (
        best
        if errors is not None and _typical(errors) < MAX_ERROR_RATIO * _typical(single)
        else None
    )


def odd_one_out(matrix: Any, allocated: Any) -> int | None:
    """The smallest run, where it alone lies above the law of the others."""
    single = left_out_errors(matrix, allocated, ())
    first = int(np.argmin(allocated))
    pieces = _with_floor(matrix, allocated, 1)
    if single is None or pieces is None or _typical(single) < GOOD_ENOUGH_PERCENT:
        return None
    others = [i for i in range(len(allocated)) if i != first]
    errors = left_out_errors(matrix[others], allocated[others], ())
    return (
        first
        if errors is not None and _typical(errors) < MAX_ERROR_RATIO * _typical(single)
        else None
    )


def left_out_errors(matrix: Any, allocated: Any, on_floor: tuple[int, ...]) -> Any:
    """Percent, of every run by what was fitted to the others; None where they are too few for
    that."""
    found = []
    for index in range(len(allocated)):
        pieces = fitted_without(matrix, allocated, on_floor, index)
        if pieces is None:
            return None
        found.append(100 * (pieces.at(matrix[index]) / allocated[index] - 1))
    return np.array(found)


def fitted_without(
    matrix: Any, allocated: Any, on_floor: tuple[int, ...], index: int
) -> Pieces | None:
    """The same pieces fitted to all runs but one; None where those do not determine them."""
    floor = [i for i in on_floor if i != index]
    law = [i for i in range(len(allocated)) if i not in on_floor and i != index]
    if (on_floor and not floor) or np.linalg.matrix_rank(matrix[law]) < matrix.shape[1]:
        return None
    return Pieces(
        float(np.mean(allocated[floor])) if floor else -np.inf,
        solve(matrix[law], allocated[law]),
        on_floor,
    )


def _with_floor(matrix: Any, allocated: Any, count: int) -> Pieces | None:
    """The `count` smallest runs on the floor, the others by a law; None where that is no maximum of
    two, or proves nothing."""
    order = np.argsort(allocated, kind="stable")
    floor, law = order[:count], order[count:]
    if len(law) <= matrix.shape[1] or np.linalg.matrix_rank(matrix[law]) < matrix.shape[1]:
        return None
    pieces = Pieces(
        float(np.mean(allocated[floor])),
        solve(matrix[law], allocated[law]),
        tuple(sorted(map(int, floor))),
    )
    slack = FLOOR_TOLERANCE * pieces.floor_bytes
    below = all(float(matrix[i] @ pieces.coefficients) <= pieces.floor_bytes + slack for i in floor)
    above = all(float(matrix[i] @ pieces.coefficients) >= pieces.floor_bytes - slack for i in law)
    return pieces if below and above else None


def _errors(matrix: Any, allocated: Any, pieces: Pieces) -> Any:
    return np.array(
        [
            100 * (pieces.at(values) / size - 1)
            for values, size in zip(matrix, allocated, strict=True)
        ]
    )


def _typical(errors: Any) -> float:
    return float(np.sqrt(np.mean(errors**2)))
