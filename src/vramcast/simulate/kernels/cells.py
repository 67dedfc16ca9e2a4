"""nn.GRUCell and nn.LSTMCell: one fused kernel each, which keeps its activations for the backward pass in a workspace."""

from __future__ import annotations

from typing import Any

import torch

from vramcast.simulate.kernels.registry import kernel, new

GRU_ACTIVATIONS, GRU_GATES = 5, 3  # kept, and computed, per hidden unit


@kernel("_thnn_fused_gru_cell")
def gru_cell(
    input_gates: Any, hidden_gates: Any, hx: Any, input_bias: Any = None, hidden_bias: Any = None
) -> Any:
    workspace = new(hx.shape[0], hx.shape[1] * GRU_ACTIVATIONS, dtype=hx.dtype)
    return torch.empty_like(hx, memory_format=torch.contiguous_format), workspace


@kernel("_thnn_fused_gru_cell_backward")
def gru_cell_backward(grad_hy: Any, workspace: Any, has_bias: bool) -> Any:
    batch, hidden = workspace.shape[0], workspace.shape[1] // GRU_ACTIVATIONS
    grad_input = new(batch, hidden * GRU_GATES, dtype=workspace.dtype)
    grad_hidden = new(batch, hidden * GRU_GATES, dtype=workspace.dtype)
    grad_hx = torch.empty_like(grad_hy, memory_format=torch.contiguous_format)
    if not has_bias:
        return grad_input, grad_hidden, grad_hx, None, None
    return grad_input, grad_hidden, grad_hx, grad_input.sum(0), grad_hidden.sum(0)


@kernel("_thnn_fused_lstm_cell")
def lstm_cell(
    input_gates: Any, hidden_gates: Any, cx: Any, input_bias: Any = None, hidden_bias: Any = None
) -> Any:
    workspace = torch.empty_like(input_gates, memory_format=torch.contiguous_format)
    hy = torch.empty_like(cx, memory_format=torch.contiguous_format)
    return hy, torch.empty_like(cx, memory_format=torch.contiguous_format), workspace


@kernel("_thnn_fused_lstm_cell_backward_impl")
def lstm_cell_backward(
    grad_hy: Any, grad_cy: Any, cx: Any, cy: Any, workspace: Any, has_bias: bool
) -> Any:
    grad_gates = torch.empty_like(workspace, memory_format=torch.contiguous_format)
    grad_cx = torch.empty_like(cx, memory_format=torch.contiguous_format)
    return grad_gates, grad_cx, grad_gates.sum(0) if has_bias else None
