"""A small case for each CUDA kernel that allocates more than its result.

record_kernels.py runs them for real; the tests simulate them. A case is a function that prepares
its inputs and returns a callable; what the callable allocates and frees is the record.
"""

from kernel_cases import (  # noqa: F401
    attention,
    indexing_and_sorting,
    layers_and_optimizers,
    products_and_losses,
    rarer,
    reductions_and_norms,
    repeatable,
)
from kernel_cases.base import CASES

__all__ = ["CASES"]
