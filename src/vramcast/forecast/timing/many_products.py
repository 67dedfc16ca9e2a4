"""Seconds of many products of one kind (bmm): each matrix has blocks of its own, which take their
time however few elements they have. cuBLAS does not share out the inner dimension of these."""

import math
from collections.abc import Sequence

from vramcast.tracing.work import OperatorWork

MANY, THIN = "many", "thin"  # of the keys of their rates


def is_many(work: OperatorWork) -> bool:
    return work.sizes[0] > 1


def is_thin(work: OperatorWork) -> bool:
    """Whether one dimension is a single element, for which there are kernels without tiles."""
    return min(work.sizes[1:]) == 1


def key_of(kind: str, work: OperatorWork) -> str:
    """The key of their rates, for a kind of product."""
    return f"{MANY} {THIN} {kind}" if is_thin(work) else f"{MANY} {kind}"


def blocks_seconds(work: OperatorWork, known: Sequence[float]) -> float:
    of_block, of_inner, rows_of_block, columns_of_block = known
    many, rows, columns, inner = work.sizes
    blocks = many * math.ceil(rows / rows_of_block) * math.ceil(columns / columns_of_block)
    return blocks * (of_block + inner * of_inner)
