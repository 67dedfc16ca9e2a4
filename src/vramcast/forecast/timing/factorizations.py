"""Seconds of factorizations and triangular systems, as recorded up to 4,096 columns.

The columns of one matrix are done one after the other; several matrices may be done at the same
time.
"""

from vramcast.hardware.gpus import Gpu
from vramcast.records.calibration import Rates
from vramcast.tracing.work import OperatorWork

FIXED_SECONDS = 6e-6
COLUMNS_AT_ONCE = 64  # columns of several matrices that one multiprocessor handles at once
# for each element, and each block of columns, of the right-hand side
ELEMENT_SECONDS, BLOCK, BLOCK_SECONDS = 2.9e-14, 64, 1.4e-7


def is_factorization(work: OperatorWork, rates: Rates) -> bool:
    return work.sizes[1] > 0 and f"{work.operator} columns" in rates.kernels


def factorization_seconds(work: OperatorWork, gpu: Gpu, rates: Rates) -> float:
    number, columns, wanted, _ = work.sizes
    of_column, of_square, most_side_by_side = rates.kernels[f"{work.operator} columns"]
    rounds: float = number
    if columns <= most_side_by_side:
        rounds = max(1.0, number * columns / (COLUMNS_AT_ONCE * gpu.num_multiprocessors))
    one = columns * (of_column + min(1.0, wanted / BLOCK) * BLOCK_SECONDS) + columns**2 * of_square
    return FIXED_SECONDS + rounds * one + number * columns**2 * wanted * ELEMENT_SECONDS
