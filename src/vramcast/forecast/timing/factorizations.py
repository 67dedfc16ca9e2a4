"""Seconds of factorizations and triangular systems, of which none was recorded.

Column follows column: each waits for reads of the one before. How many is assumed.
"""

from __future__ import annotations

import math

from vramcast.forecast.timing.rates import peak_flops
from vramcast.hardware.gpus import Gpu
from vramcast.tracing.work import OperatorWork

# Reads of a column that follow each other, and operations by the cube of the columns.
_KINDS = {
    "linalg_solve_triangular": (1, 0.0),
    "linalg_cholesky_ex": (4, 1 / 3),
    "linalg_ldl_factor_ex": (8, 1 / 3),
    "linalg_lu_factor_ex": (8, 2 / 3),
    "_linalg_solve_ex": (9, 2 / 3),
    "linalg_inv_ex": (9, 2.0),
    "linalg_qr": (8, 4 / 3),
    "_linalg_eigh": (20, 9.0),
    "_linalg_svd": (40, 20.0),
    "linalg_eig": (40, 25.0),
}
KINDS = {f"aten::{name}": kind for name, kind in _KINDS.items()}
READ_SECONDS = 2.4e-7  # as in reductions
OF_PEAK = 0.3


def is_factorization(work: OperatorWork) -> bool:
    return work.operator in KINDS and work.sizes[1] > 0


def factorization_seconds(work: OperatorWork, gpu: Gpu) -> float:
    """Of several, each multiprocessor has its share."""
    number, columns, wanted, _ = work.sizes
    reads, cubes = KINDS[work.operator]
    flops = number * columns**2 * (cubes * columns + wanted)
    rounds = math.ceil(number / gpu.num_multiprocessors)
    arithmetic = flops / (OF_PEAK * peak_flops(gpu, "fp32"))
    return READ_SECONDS * reads * columns * rounds + arithmetic
