"""nn.GRUCell and nn.LSTMCell: a fused kernel each that keeps activations for the backward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vramcast.simulate.kernels.registry import kernel, new

# per hidden unit: activations that are kept, and gates
GRU_ACTIVATIONS, GRU_GATES = 5, 3


def _dense_like(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@kernel("_thnn_fused_gru_cell")
def gru_cell(hx: Tensor) -> Any:
    workspace = new(hx.shape[0], hx.shape[1] * GRU_ACTIVATIONS, dtype=hx.dtype)
    return _dense_like(hx), workspace


@kernel("_thnn_fused_gru_cell_backward")
def gru_cell_backward(grad_hy: Tensor, workspace: Tensor, has_bias: bool) -> Any:
    batch, hidden = workspace.shape[0], workspace.shape[1] // GRU_ACTIVATIONS
    grad_input = new(batch, hidden * GRU_GATES, dtype=workspace.dtype)
    grad_hidden = new(batch, hidden * GRU_GATES, dtype=workspace.dtype)
    grad_hx = _dense_like(grad_hy)
    if not has_bias:
        return grad_input, grad_hidden, grad_hx, None, None
    return grad_input, grad_hidden, grad_hx, grad_input.sum(0), grad_hidden.sum(0)


@kernel("_thnn_fused_lstm_cell")
def lstm_cell(input_gates: Tensor, cx: Tensor) -> Any:
    workspace = _dense_like(input_gates)
    return _dense_like(cx), _dense_like(cx), workspace


@kernel("_thnn_fused_lstm_cell_backward_impl")
def lstm_cell_backward(cx: Tensor, workspace: Tensor, has_bias: bool) -> Any:
    grad_gates, grad_cx = _dense_like(workspace), _dense_like(cx)
    return grad_gates, grad_cx, grad_gates.sum(0) if has_bias else None
