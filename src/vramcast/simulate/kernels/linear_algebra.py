"""Factorisations by cuSOLVER: they succeed, and what torch itself allocates is modelled."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vramcast.simulate.kernels.registry import (
    ARGUMENT_NAMES,
    KERNELS,
    kernel,
    like,
    meta_result,
    note,
    scratch,
    set_known,
)

NOT_MODELLED = "the workspaces of cuSOLVER are not known: they are not in the memory predicted"
SOLVERS = (
    *("linalg_cholesky_ex", "linalg_ldl_factor_ex", "linalg_lu_factor_ex", "_linalg_solve_ex"),
    *("linalg_inv_ex", "_linalg_eigh", "_linalg_svd", "linalg_qr", "linalg_eig"),
)


@kernel("_linalg_check_errors")
def check_errors() -> None:
    """Every matrix can be factorised."""


def _solver(name: str) -> Any:
    """As torch's Meta kernel says; the error code, if there is one, is that of success."""
    operator = getattr(torch.ops.aten, name).default
    schema = operator._schema
    given = [(ARGUMENT_NAMES.get(a.name, a.name), a) for a in schema.arguments]

    def solve(**arguments: Any) -> tuple[Tensor, ...]:
        note(NOT_MODELLED)
        positional = [arguments[n] for n, a in given if n in arguments and not a.kwarg_only]
        options = {a.name: arguments[n] for n, a in given if n in arguments and a.kwarg_only}
        results = tuple(like(each) for each in meta_result(operator, *positional, **options))
        for result, described in zip(results, schema.returns, strict=True):
            if described.name == "info":
                set_known(result, torch.zeros(result.shape, dtype=result.dtype))
        if name == "linalg_inv_ex":  # the factors of the matrix, and their pivots
            matrix = arguments["A"]
            scratch(matrix.nbytes, matrix.numel() // max(1, matrix.shape[-1]) * 4)
        return results

    return solve


KERNELS.update({name: _solver(name) for name in SOLVERS})
