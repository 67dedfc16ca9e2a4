"""Factorisations by cuSOLVER: they succeed, and take what they took on an H200 with torch 2.11.

The recording is tests/recordings/h200-torch-2.11-cusolver.jsonl.gz.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vramcast.simulate.kernels.registry import (
    ARGUMENT_NAMES,
    KERNELS,
    kernel,
    like,
    meta_result,
    new,
    note,
    scratch,
    set_known,
)

NOT_MODELLED = "the workspaces of cuSOLVER are not known: they are not in the memory predicted"
# syevd, by the number of rows, in single precision
EIGENVECTOR_BYTES = {
    2: 268716, 16: 314636, 32: 372940, 64: 508236, 100: 689708, 256: 1835340, 512: 4981068,
    640: 7143820, 768: 9959308, 1024: 17429388, 1536: 38661004, 2048: 68281228,
}  # fmt: skip


def _size_of(matrix: Tensor) -> tuple[int, int]:
    """The smaller of rows and columns, and the number of matrices."""
    area = matrix.shape[-1] * matrix.shape[-2]
    return min(matrix.shape[-2:]), matrix.numel() // max(1, area)


@kernel("_linalg_check_errors")
def check_errors(info: Tensor, is_matrix: bool) -> None:
    """Assumes that every matrix can be factorised."""
    if is_matrix:
        scratch(1, 1)
    else:
        info.any()


def _after_cholesky(matrix: Tensor, *_results: Tensor) -> None:
    n, batch = _size_of(matrix)
    scratch(8 * batch if batch > 1 else max(160, n * n // 256 + 128))


def _after_lu(matrix: Tensor, *_results: Tensor) -> None:
    n, batch = _size_of(matrix)
    scratch(8 * batch if batch > 1 else max(768, 12 * n))


def _solve_with_factors(factors: Tensor, other: Tensor) -> None:
    """Small systems are solved through pointers; for larger ones the rows are permuted first.
    cuBLAS solves the triangular systems, with its workspace."""
    n, batch = _size_of(factors)
    taken = (
        scratch(8 * batch, 8 * batch) if n <= 16 else scratch(*[8 * n * batch] * 3, other.nbytes)
    )
    if n > 1 and batch:
        one = factors[(0,) * (factors.dim() - 2)]
        torch.mm(one, one, out=one)
    taken.clear()


def _after_solve(matrix: Tensor, result: Tensor, *others: Tensor) -> None:
    _after_lu(matrix)
    _solve_with_factors(others[0], result)


def _after_inverse(matrix: Tensor, result: Tensor, _info: Tensor) -> None:
    n, batch = _size_of(matrix)
    factors, pivots = like(result), scratch(4 * n * batch)
    _after_lu(matrix)
    _solve_with_factors(factors, result)
    del pivots, factors


def _eigenvector_bytes(n: int, batch: int, item_bytes: int) -> int:
    if item_bytes == 4 and 32 <= n <= 512 and (batch == 1 or n > 32):  # syevj
        return 4 * n * n + 144 * n + 2080
    known = list(EIGENVECTOR_BYTES)
    last = known[-1]
    if n > last:
        size = EIGENVECTOR_BYTES[last] * n * n / last / last
    else:
        place = max(1, bisect_left(known, n))
        low, high = known[place - 1], known[place]
        share = (n * n - low * low) / (high * high - low * low)
        size = (1 - share) * EIGENVECTOR_BYTES[low] + share * EIGENVECTOR_BYTES[high]
    return int(size) * item_bytes // 4 * (batch if n <= 32 else 1)


@kernel("_linalg_eigh")
def eigh(A: Tensor, compute_v: bool = True) -> tuple[Tensor, Tensor]:
    n, batch = _size_of(A)
    real = A.real.dtype if A.is_complex() else A.dtype
    if not compute_v:
        values = new(*A.shape[:-1], dtype=real)
    vectors = new(*A.shape, dtype=A.dtype).mT
    if compute_v:
        values = new(*A.shape[:-1], dtype=real)
    info = new(batch, dtype=torch.int32)
    scratch(_eigenvector_bytes(n, batch, A.element_size()))
    check_errors(info, batch == 1)
    del info
    return values, vectors if compute_v else new(0, dtype=A.dtype)


def _decomposition_bytes(rows: int, columns: int, item_bytes: int) -> int:
    """The workspace of gesvdj. A matrix that is not square is first reduced to a square one by
    QR."""
    n = min(rows, columns)
    if rows == columns:
        return 3968 if n <= 32 else (2 * n * n + 70 * n) * item_bytes
    long = rows * columns
    size = max(3145984, (2 * long + 4 * n * n + 3 * n) * item_bytes)
    return size + (long * item_bytes if rows < columns else 0)


@kernel("_linalg_svd")
def svd(A: Tensor, full_matrices: bool = False, compute_uv: bool = True) -> tuple[Tensor, ...]:
    operator = torch.ops.aten._linalg_svd.default
    u, s, vh = meta_result(operator, A, full_matrices, compute_uv)
    rows, columns = A.shape[-2:]
    n, batch = _size_of(A)
    if compute_uv:
        u, vh, s = like(u), like(vh), like(s)
    else:
        s, u, vh = like(s), like(u), like(vh)
    info, copy = new(batch, dtype=torch.int32), scratch(A.nbytes)
    count = batch if n <= 32 else 1
    unused = [] if compute_uv else [new(count * n, size, dtype=A.dtype) for size in (rows, columns)]
    scratch(_decomposition_bytes(rows, columns, A.element_size()))
    del unused, copy
    check_errors(info, batch == 1)
    del info
    return u, s, vh


def _reflect(matrix: Tensor) -> None:
    """The workspace of geqrf: one matrix after the other, or many small ones through pointers."""
    rows, columns = matrix.shape[-2:]
    batch = _size_of(matrix)[1]
    info = scratch(4)
    if batch >= max(2, rows // 16):
        scratch(8 * batch, 8 * batch)
    else:
        scratch((4096 * max(columns, 256) + 2097280) * matrix.element_size() // 4)
    del info


@kernel("linalg_lstsq")
def lstsq(x: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """Solves by QR, applied to the right-hand side."""
    rows, columns = x.shape[-2:]
    n, batch = _size_of(x)
    info = new(batch, dtype=torch.int32)
    vectors = b if b.dim() == x.dim() else b[..., None]
    solved = new(*x.shape[:-2], vectors.shape[-1], max(rows, columns), dtype=x.dtype).mT
    factors = scratch(x.nbytes, n * batch * x.element_size())
    _reflect(x)
    scratch((3 * rows * n + 66560) * x.element_size())
    del factors
    residuals = (
        solved[..., columns:, :].square().sum(-2) if rows > columns else new(0, dtype=b.dtype)
    )
    check_errors(info, x.dim() == 2)
    solution = solved[..., :columns, :]
    empty = new(0, dtype=torch.int64), new(0, dtype=b.dtype)
    return solution if vectors is b else solution[..., 0], residuals, *empty


@kernel("linalg_qr")
def qr(A: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    q, r = (like(each) for each in meta_result(torch.ops.aten.linalg_qr.default, A, mode))
    rows = A.shape[-2]
    n, batch = _size_of(A)
    scales = scratch(n * batch * A.element_size())
    unit = A.element_size() // 4
    _reflect(A)
    info = scratch(4)
    if mode != "r":
        scratch((512 * rows + 1024 * n + 66560 if n >= 128 else 4 * rows * n + 132096) * unit)
    del info, scales
    return q, r


@kernel("linalg_lu_solve")
def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, left: bool = True) -> Tensor:
    result = like(meta_result(torch.ops.aten.linalg_lu_solve.default, LU, pivots, B, left=left))
    _solve_with_factors(LU, result)
    return result


def _after_determinant(matrix: Tensor, *_results: Tensor) -> None:
    n, batch = _size_of(matrix)
    info = scratch(4 * batch)
    _after_lu(matrix)
    scratch(4 * n, n * batch, 8 * batch, 8 * n * batch)  # whether the permutation is even
    del info


def _note(*_tensors: Tensor) -> None:
    note(NOT_MODELLED)


AFTER: dict[str, Callable[..., None]] = {
    "linalg_cholesky_ex": _after_cholesky,
    "linalg_lu_factor_ex": _after_lu,
    "_linalg_solve_ex": _after_solve,
    "linalg_inv_ex": _after_inverse,
    "_linalg_slogdet": _after_determinant,
    "_linalg_det": _after_determinant,
    "linalg_ldl_factor_ex": _note,
    "linalg_eig": _note,
}


def _solver(name: str) -> Any:
    """A kernel with the results of torch's Meta kernel. An error code, if there is one, says
    success."""
    operator = getattr(torch.ops.aten, name).default
    schema = operator._schema
    given = [(ARGUMENT_NAMES.get(a.name, a.name), a) for a in schema.arguments]

    def solve(**arguments: Any) -> tuple[Tensor, ...]:
        positional = [arguments[n] for n, a in given if n in arguments and not a.kwarg_only]
        options = {a.name: arguments[n] for n, a in given if n in arguments and a.kwarg_only}
        results = tuple(like(each) for each in meta_result(operator, *positional, **options))
        for result, described in zip(results, schema.returns, strict=True):
            if described.name == "info":
                set_known(result, torch.zeros(result.shape, dtype=result.dtype))
        AFTER[name](positional[0], *results)
        return results

    return solve


KERNELS.update({name: _solver(name) for name in AFTER})
