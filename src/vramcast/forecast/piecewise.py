"""A law with a floor: memory that stays the same for small runs and grows from some size on.

While the batch is small the optimizer step sets the peak, with a larger one the backward pass.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

MIN_ON_FLOOR = 2  # a single run is always exactly on its own floor
# A floor must bring the errors of left-out runs down to this fraction.
MAX_ERROR_RATIO = 0.5
# Where a law without a floor is as good as this, a floor would only fit noise.
GOOD_ENOUGH_PERCENT = 0.5
# At a run, the law may be on the wrong side of the floor by this fraction of it.
FLOOR_TOLERANCE = 0.02


@dataclass(frozen=True)
class Pieces:
    """allocated = max(floor, law); the floor is the mean of the runs `on_floor`, by index."""

    floor_bytes: float
    coefficients: Any
    on_floor: tuple[int, ...] = ()

    def at(self, values: Any) -> Any:
        return np.maximum(self.floor_bytes, values @ self.coefficients)


def solve(matrix: Any, values: Any) -> Any:
    """Least squares, with terms of very different size."""
    scale = np.abs(matrix).max(axis=0)
    scale[scale == 0] = 1.0
    return np.linalg.lstsq(matrix / scale, values, rcond=None)[0] / scale


def find_floor(matrix: Any, allocated: Any) -> tuple[Pieces | None, int | None]:
    """A floor with a law, where they predict left-out runs much better than a law alone; else None.
    Then the index of the smallest run, where it alone lies above the law of the others; else
    None."""
    single = _left_out_error(matrix, allocated)
    if single < GOOD_ENOUGH_PERCENT:
        return None, None
    counts = range(MIN_ON_FLOOR, len(allocated))
    candidates = [found for count in counts if (found := _with_floor(matrix, allocated, count))]
    if candidates:
        best = min(candidates, key=lambda pieces: _typical(pieces.at(matrix) / allocated))
        if _left_out_error(matrix, allocated, best.on_floor) < MAX_ERROR_RATIO * single:
            return best, None
    if _with_floor(matrix, allocated, 1):
        odd = int(np.argmin(allocated))
        others = np.delete(matrix, odd, axis=0), np.delete(allocated, odd)
        if _left_out_error(*others) < MAX_ERROR_RATIO * single:
            return None, odd
    return None, None


def fit_pieces(
    matrix: Any, allocated: Any, on_floor: Collection[int], without: int | None = None
) -> Pieces | None:
    """The floor and the law fitted to all runs, or to all but one. None where the runs do not
    determine them."""
    floor = [i for i in on_floor if i != without]
    law = [i for i in range(len(allocated)) if i not in on_floor and i != without]
    if (on_floor and not floor) or np.linalg.matrix_rank(matrix[law]) < matrix.shape[1]:
        return None
    floor_bytes = float(np.mean(allocated[floor])) if floor else -np.inf
    return Pieces(floor_bytes, solve(matrix[law], allocated[law]), tuple(on_floor))


def _left_out_error(matrix: Any, allocated: Any, on_floor: Collection[int] = ()) -> float:
    """The typical error, in percent, of runs predicted from the others. NaN, with which every
    comparison is false, where there are too few."""
    ratios = []
    for index, size in enumerate(allocated):
        pieces = fit_pieces(matrix, allocated, on_floor, without=index)
        ratios.append(pieces.at(matrix[index]) / size if pieces else np.nan)
    return _typical(np.array(ratios))


def _typical(ratios: Any) -> float:
    """The root mean square error in percent, from ratios of predicted to measured."""
    return 100 * float(np.sqrt(np.mean((ratios - 1) ** 2)))


def _with_floor(matrix: Any, allocated: Any, count: int) -> Pieces | None:
    """The `count` smallest runs on the floor, the others by a law. None where the law crosses the
    floor in between, or where there are too few runs to prove it."""
    floor = sorted(np.argsort(allocated, kind="stable")[:count].tolist())
    pieces = fit_pieces(matrix, allocated, floor)
    if pieces is None or len(allocated) - count <= matrix.shape[1]:
        return None
    above = matrix @ pieces.coefficients / pieces.floor_bytes - 1
    is_below = (above[floor] <= FLOOR_TOLERANCE).all()
    return pieces if is_below and (np.delete(above, floor) >= -FLOOR_TOLERANCE).all() else None
