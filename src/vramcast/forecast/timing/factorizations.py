"""Seconds of factorizations and triangular systems, as recorded up to 4,096 columns, which follow
each other. Several may be done side by side."""

import math
from typing import NamedTuple

from vramcast.hardware.gpus import Gpu
from vramcast.tracing.work import OperatorWork


class Kind(NamedTuple):
    column_seconds: float
    square_seconds: float  # by the square of the columns
    most_side_by_side: float = math.inf  # columns


_KINDS = {
    "linalg_solve_triangular": Kind(1.1e-7, 9e-12),
    "linalg_cholesky_ex": Kind(3.3e-7, 2.7e-11),
    "linalg_ldl_factor_ex": Kind(6.6e-7, 5.4e-11),
    "linalg_lu_factor_ex": Kind(2.0e-6, 3.5e-10),
    "_linalg_solve_ex": Kind(2.1e-6, 3.5e-10),
    "linalg_inv_ex": Kind(2.1e-6, 5.2e-10),
    "linalg_qr": Kind(3.2e-6, 8.5e-10, 0),
    "_linalg_eigh": Kind(6e-6, 3.6e-8, 32),
    "_linalg_svd": Kind(5e-6, 8.3e-8, 32),
    "linalg_eig": Kind(1e-5, 1.7e-7, 32),
}
KINDS = {f"aten::{name}": kind for name, kind in _KINDS.items()}
FIXED_SECONDS = 6e-6
COLUMNS_AT_ONCE = 64  # of several, on a multiprocessor
# Of what is solved for.
ELEMENT_SECONDS, BLOCK, BLOCK_SECONDS = 2.9e-14, 64, 1.4e-7


def is_factorization(work: OperatorWork) -> bool:
    return work.operator in KINDS and work.sizes[1] > 0


def factorization_seconds(work: OperatorWork, gpu: Gpu) -> float:
    number, columns, wanted, _ = work.sizes
    kind = KINDS[work.operator]
    is_batched = columns <= kind.most_side_by_side
    rounds: float = number
    if is_batched:
        rounds = max(1.0, number * columns / (COLUMNS_AT_ONCE * gpu.num_multiprocessors))
    one = columns * (kind.column_seconds + min(1.0, wanted / BLOCK) * BLOCK_SECONDS)
    one += columns**2 * kind.square_seconds
    return FIXED_SECONDS + rounds * one + number * columns**2 * wanted * ELEMENT_SECONDS
