"""Dropout, softmax and log-sigmoid."""

from typing import Any

import torch
from torch import Tensor

from vramcast.simulate.kernels.registry import draw_elements, kernel, new


@kernel("native_dropout")
def dropout(x: Tensor, p: float, train: bool | None) -> Any:
    if train is False or p == 0 or x.numel() == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    mask = torch.empty_like(x, dtype=torch.bool)
    draw_elements(x.numel())
    return torch.empty_like(x), mask


@kernel("_softmax", "_log_softmax")
def softmax(x: Tensor, half_to_float: bool) -> Tensor:
    out = new(*x.shape, dtype=torch.float32 if half_to_float else x.dtype)
    x.contiguous()  # a copy, where x is not dense
    torch.ops.vramcast.carry_order(out, x)
    return out


@kernel("_softmax_backward_data")
def softmax_backward(grad: Tensor, output: Tensor, input_dtype: torch.dtype) -> Tensor:
    out = new(*grad.shape, dtype=input_dtype)
    product = grad * output
    dense = product.contiguous(), output.contiguous()
    del dense, product
    return out


@kernel("_log_softmax_backward_data")
def log_softmax_backward(grad: Tensor, output: Tensor, input_dtype: torch.dtype) -> Tensor:
    out = new(*grad.shape, dtype=input_dtype)
    dense = grad.contiguous(), output.contiguous()
    del dense
    return out


@kernel("log_sigmoid_forward")
def log_sigmoid(x: Tensor) -> Any:
    return torch.empty_like(x), new(0, dtype=x.dtype)
