"""Layer, RMS, group and batch normalisation."""

from __future__ import annotations

from typing import Any

import torch

from vramcast.simulate.kernels.registry import Target, kernel, like, meta_result, new

aten = torch.ops.aten


def _sums_in_two_passes(rows: int, columns: int) -> int:
    """Very tall inputs: partial sums of the weight gradient per block of rows, then one more reduction. 0: a single pass."""
    if rows <= 64 * 1024 or columns // 32 >= Target.num_multiprocessors // 2:
        return 0
    return min(32 * 1024 // -(-columns // 32), -(-rows // 32))


def _rows_and_columns(x: torch.Tensor, shape: list[int]) -> tuple[int, int]:
    columns = 1
    for n in shape:
        columns *= n
    return x.numel() // max(columns, 1), columns


@kernel("native_layer_norm")
def layer_norm(x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    rows = list(x.shape[: x.dim() - len(shape)]) + [1] * len(shape)
    dense = x if x.is_contiguous() else x.contiguous()
    return (
        torch.empty_like(dense),
        new(*rows, dtype=_statistics(x)),
        new(*rows, dtype=_statistics(x)),
    )


@kernel("native_layer_norm_backward")
def layer_norm_backward(
    grad: Any, x: Any, shape: Any, mean: Any, rstd: Any, weight: Any, bias: Any, mask: Any
) -> Any:
    if not x.is_contiguous():
        x = x.contiguous()
    if not grad.is_contiguous():
        grad = grad.contiguous()
    rows, columns = _rows_and_columns(x, shape)
    grad_x = torch.empty_like(x) if mask[0] else None
    grad_weight = torch.empty_like(weight) if mask[1] else None
    grad_bias = torch.empty_like(bias) if mask[2] else None
    blocks = _sums_in_two_passes(rows, columns) if grad_weight is not None else 0
    if blocks and grad_weight is not None:
        partial_weight = new(blocks, columns, dtype=grad_weight.dtype)
        partial_bias = (
            new(blocks, columns, dtype=grad_weight.dtype) if grad_bias is not None else None
        )
        grad_weight = partial_weight.sum(0).view(weight.shape)
        if partial_bias is not None:
            grad_bias = partial_bias.sum(0).view(weight.shape)
    return grad_x, grad_weight, grad_bias


@kernel("_fused_rms_norm")
def rms_norm(x: Any, shape: Any, weight: Any, eps: Any) -> Any:
    if not x.is_contiguous():
        x = x.contiguous()
    rows_shape = list(x.shape[: x.dim() - len(shape)]) + [1] * len(shape)
    out = torch.empty_like(x)
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    return out, new(*rows_shape, dtype=dtype)


@kernel("_fused_rms_norm_backward")
def rms_norm_backward(grad: Any, x: Any, shape: Any, rstd: Any, weight: Any, mask: Any) -> Any:
    if not x.is_contiguous():
        x = x.contiguous()
    if not grad.is_contiguous():
        grad = grad.contiguous()
    rows, columns = _rows_and_columns(x, shape)
    grad_x = torch.empty_like(x) if mask[0] else None
    grad_weight = torch.empty_like(weight) if mask[1] and weight is not None else None
    blocks = _sums_in_two_passes(rows, columns) if grad_weight is not None else 0
    if blocks and grad_weight is not None:
        partial = new(blocks, columns, dtype=grad_weight.dtype)
        grad_weight = partial.sum(0).view(weight.shape)
    return grad_x, grad_weight


def _statistics(x: torch.Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


@kernel("native_group_norm")
def group_norm(
    x: Any, weight: Any, bias: Any, n: int, channels: int, pixels: int, groups: int, eps: float
) -> Any:
    results = [
        like(m)
        for m in meta_result(
            aten.native_group_norm.default, x, weight, bias, n, channels, pixels, groups, eps
        )
    ]
    if pixels > 1:
        a, b = new(n, channels, dtype=_statistics(x)), new(n, channels, dtype=_statistics(x))
        del a, b
    return tuple(results)


@kernel("native_group_norm_backward")
def group_norm_backward(
    grad: Any,
    x: Any,
    mean: Any,
    rstd: Any,
    weight: Any,
    n: int,
    channels: int,
    pixels: int,
    groups: int,
    mask: Any,
) -> Any:
    grad_x = torch.empty_like(x) if mask[0] else None
    grad_weight = torch.empty_like(weight) if mask[1] else None
    grad_bias = torch.empty_like(weight) if mask[2] else None
    dtype = _statistics(x)
    ds, db = new(n, channels, dtype=dtype), new(n, channels, dtype=dtype)
    if grad_x is not None:
        c2, c3 = new(n, groups, dtype=dtype), new(n, groups, dtype=dtype)
        c1 = new(n, channels, dtype=dtype) if weight is not None else None
        del c2, c3, c1
    del ds, db
    return grad_x, grad_weight, grad_bias
