"""cuDNN recurrent networks: nn.LSTM, nn.GRU, nn.RNN."""

from __future__ import annotations

from typing import Any

import torch

from vramcast.simulate.kernels.registry import kernel, new, note, scratch

RELU, TANH, LSTM, GRU = 0, 1, 2, 3
GATES = {RELU: 1, TANH: 1, LSTM: 4, GRU: 3}
RESERVED = {RELU: 1, TANH: 1, LSTM: 5, GRU: 6}  # activations kept for the backward pass, per hidden unit and step


def _weight_bytes(weights: Any) -> int:
    return sum(w.numel() * w.element_size() for w in weights)


def _workspace(mode: int, steps: int, weights: int, hidden: int, layers: int, directions: int, item_bytes: int) -> int:
    note("cuDNN chooses its recurrent workspaces by heuristics that are not published; theirs is an estimate")
    return steps * (GATES[mode] + 2) * hidden * item_bytes * directions + int(2.3 * weights)


@kernel("_cudnn_rnn_flatten_weight")
def flatten_weight(weights: Any, *rest: Any, **options: Any) -> torch.Tensor:
    """One buffer for all weights; they become views of it."""
    buffer = new(sum(w.numel() for w in weights), dtype=weights[0].dtype)
    offset = 0
    for weight in weights:
        weight.data = buffer.narrow(0, offset, weight.numel()).view(weight.shape)
        offset += weight.numel()
    return buffer


@kernel("_cudnn_rnn")
def forward(x: Any, weights: Any, stride0: int, buffer: Any, hx: Any, cx: Any, mode: int, hidden: int, projection: int, layers: int, batch_first: bool, dropout: float, train: bool, bidirectional: bool, batch_sizes: Any, dropout_state: Any) -> Any:
    directions = 2 if bidirectional else 1
    if batch_first:
        x = x.transpose(0, 1)
    x = x.contiguous()
    time, batch = (x.shape[0], x.shape[1]) if not batch_sizes else (len(batch_sizes), batch_sizes[0])
    steps = x.shape[0] * x.shape[1] if not batch_sizes else x.shape[0]
    width = (projection or hidden) * directions
    out = new(time, batch, width, dtype=x.dtype) if not batch_sizes else new(x.shape[0], width, dtype=x.dtype)
    hy = new(layers * directions, batch, projection or hidden, dtype=x.dtype)
    cy = new(layers * directions, batch, hidden, dtype=x.dtype) if cx is not None else new(0, dtype=x.dtype)
    if buffer is None or buffer.numel() == 0:
        buffer = new(sum(w.numel() for w in weights), dtype=x.dtype)
    work = scratch(_workspace(mode, steps, _weight_bytes(weights), hidden, layers, directions, x.element_size()))
    reserve = scratch(RESERVED[mode] * steps * hidden * layers * directions * x.element_size() + 256) if train else new(0, dtype=torch.uint8)
    if train and dropout > 0 and layers > 1:
        reserve = scratch(reserve.numel() + steps * hidden * (layers - 1) * directions * (x.element_size() + 1))
    del work
    if batch_first:
        out = out.transpose(0, 1)
    return out, hy, cy, reserve, buffer


@kernel("_cudnn_rnn_backward")
def backward(x: Any, weights: Any, stride0: int, buffer: Any, hx: Any, cx: Any, out: Any, grad_out: Any, grad_hy: Any, grad_cy: Any, mode: int, hidden: int, projection: int, layers: int, batch_first: bool, dropout: float, train: bool, bidirectional: bool, batch_sizes: Any, dropout_state: Any, reserve: Any, mask: Any) -> Any:
    directions = 2 if bidirectional else 1
    steps = x.shape[0] * x.shape[1] if not batch_sizes else x.shape[0]
    grad_hy_dense = torch.zeros_like(hx)
    grad_cy_dense = torch.zeros_like(cx) if cx is not None else None
    dense = [t.transpose(0, 1).contiguous() for t in (x, grad_out, out)] if batch_first else []
    grad_x, grad_hx = torch.empty_like(x), torch.empty_like(hx)
    grad_cx = torch.empty_like(cx) if cx is not None else None
    num_bytes = _workspace(mode, steps, _weight_bytes(weights), hidden, layers, directions, x.element_size())
    work = scratch(num_bytes)
    del work
    grad_weights: list[torch.Tensor] = []
    if mask[3]:
        flat = new(sum(w.numel() for w in weights), dtype=x.dtype)
        work = scratch(num_bytes)
        offset = 0
        for weight in weights:
            grad_weights.append(flat.narrow(0, offset, weight.numel()).view(weight.shape))
            offset += weight.numel()
        del work
    del dense, grad_hy_dense, grad_cy_dense
    return grad_x, grad_hx, grad_cx, grad_weights
