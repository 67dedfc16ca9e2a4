"""nn.LSTM, nn.GRU and nn.RNN by cuDNN; nn.GRUCell and nn.LSTMCell, a fused kernel each."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vramcast.simulate.kernels.recurrent_workspace import Recurrent, reserve_bytes, workspace_bytes
from vramcast.simulate.kernels.registry import Target, kernel, new, note, scratch, take_random

# threads of a multiprocessor, and the random state of each
DROPOUT_THREADS, DROPOUT_STATE_BYTES = 2048, 24
# a GRU cell has, per hidden unit, so many activations kept for the backward pass, and so many gates
GRU_ACTIVATIONS, GRU_GATES = 5, 3
KINDS = ("RNN", "RNN", "LSTM", "GRU")  # by torch's mode: relu, tanh, LSTM, GRU
UNMEASURED = "cuDNN's workspace of a wide input or packed samples with projections is an estimate"


def _describe(x: Tensor, arguments: dict[str, Any], is_training: bool = True) -> Recurrent:
    """x is [time, batch, features], or packed: [all steps, features]."""
    batch_sizes, layers = arguments["batch_sizes"], arguments["num_layers"]
    if arguments["proj_size"] and (batch_sizes or x.shape[-1] > arguments["hidden_size"]):
        note(UNMEASURED)
    steps, batch = (len(batch_sizes), batch_sizes[0]) if batch_sizes else x.shape[:2]
    return Recurrent(
        kind=KINDS[arguments["mode"]],
        item_bytes=x.element_size(),
        input_size=x.shape[-1],
        hidden=arguments["hidden_size"],
        projection=arguments["proj_size"],
        layers=layers,
        batch=batch,
        steps=steps,
        all_steps=x.shape[0] if batch_sizes else steps * batch,
        directions=2 if arguments["bidirectional"] else 1,
        dropout=arguments["dropout"] > 0,
        is_half=x.dtype == torch.float16,
        is_packed=bool(batch_sizes),
        is_training=is_training,
    )


def _flat_buffer(weights: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    return new(sum(weight.numel() for weight in weights), dtype=dtype)


def _views(buffer: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    parts = buffer.split([weight.numel() for weight in weights])
    return [part.view(weight.shape) for part, weight in zip(parts, weights, strict=True)]


@kernel("_cudnn_rnn_flatten_weight")
def flatten_weight(weight_arr: Sequence[Tensor]) -> Tensor:
    """Allocates one buffer for all weights, which become views of it."""
    buffer = _flat_buffer(weight_arr, weight_arr[0].dtype)
    for weight, view in zip(weight_arr, _views(buffer, weight_arr), strict=True):
        weight.data = view
    return buffer


def _make_dropout_state() -> None:
    """Allocates the random state of every thread at its first use, and keeps it."""
    kept = Target.gpu.library_memory
    if "dropout_state" not in kept:
        scratch(8)
        num_threads = Target.gpu.model.num_multiprocessors * DROPOUT_THREADS
        kept["dropout_state"] = scratch(num_threads * DROPOUT_STATE_BYTES)


def _time_first(x: Tensor, batch_first: bool) -> Tensor:
    return (x.transpose(0, 1) if batch_first else x).contiguous()


@kernel("_cudnn_rnn")
def forward(
    x: Tensor,
    weight: Sequence[Tensor],
    weight_buf: Tensor | None,
    cx: Tensor | None,
    batch_first: bool,
    train: bool,
    **others: Any,
) -> Any:
    if train and others["dropout"]:
        _make_dropout_state()
        take_random(1)
    x = _time_first(x, batch_first)
    described = _describe(x, others, train)
    states, width = described.layers * described.directions, others["proj_size"] or described.hidden
    out = new(*x.shape[:-1], width * described.directions, dtype=x.dtype)
    hy = new(states, described.batch, width, dtype=x.dtype)
    cy_shape = (states, described.batch, described.hidden) if cx is not None else (0,)
    cy = new(*cy_shape, dtype=x.dtype)
    if weight_buf is None or weight_buf.numel() == 0:
        weight_buf = _flat_buffer(weight, x.dtype)
    work = scratch(workspace_bytes(described, backward=False))
    reserve = new(reserve_bytes(described) if train else 0, dtype=torch.uint8)
    del work
    return out.transpose(0, 1) if batch_first else out, hy, cy, reserve, weight_buf


@kernel("_cudnn_rnn_backward")
def backward(
    x: Tensor,
    weight: Sequence[Tensor],
    hx: Tensor,
    cx: Tensor | None,
    output: Tensor,
    grad: Tensor | None,
    grad_hy: Tensor | None,
    grad_cy: Tensor | None,
    batch_first: bool,
    wanted: Sequence[bool],
    **others: Any,
) -> Any:
    # outputs that the loss does not depend on have gradients of zero
    if grad is None:
        grad = torch.zeros_like(output, memory_format=torch.contiguous_format)
    states = ((hx, grad_hy), (cx, grad_cy))
    zeros = [torch.zeros_like(s) for s, given in states if s is not None and given is None]
    dense = [_time_first(t, batch_first) for t in (x, grad, output)]
    described = _describe(dense[0], others)
    grad_x, grad_hx = torch.empty_like(dense[0]), torch.empty_like(hx)
    grad_cx = torch.empty_like(cx) if cx is not None else None
    scratch(workspace_bytes(described, backward=True))
    dense.clear()
    grad_weights = _weight_gradients(x, weight, batch_first, described) if wanted[3] else []
    del zeros
    return grad_x.transpose(0, 1) if batch_first else grad_x, grad_hx, grad_cx, grad_weights


def _weight_gradients(
    x: Tensor, weights: Sequence[Tensor], batch_first: bool, described: Recurrent
) -> list[Tensor]:
    dense = _time_first(x, batch_first)  # copied a second time
    flat = _flat_buffer(weights, x.dtype)
    scratch(workspace_bytes(described, backward=True))
    del dense
    return _views(flat, weights)


def _dense_like(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@kernel("_thnn_fused_gru_cell")
def gru_cell(hx: Tensor) -> Any:
    batch, hidden = hx.shape
    workspace = new(batch, hidden * GRU_ACTIVATIONS, dtype=hx.dtype)
    return _dense_like(hx), workspace


@kernel("_thnn_fused_gru_cell_backward")
def gru_cell_backward(grad_hy: Tensor, workspace: Tensor, has_bias: bool) -> Any:
    batch, hidden = workspace.shape[0], workspace.shape[1] // GRU_ACTIVATIONS
    gates = [new(batch, hidden * GRU_GATES, dtype=workspace.dtype) for _ in ("input", "hidden")]
    grad_hx = _dense_like(grad_hy)
    return *gates, grad_hx, *(gate.sum(0) if has_bias else None for gate in gates)


@kernel("_thnn_fused_lstm_cell")
def lstm_cell(input_gates: Tensor, cx: Tensor) -> Any:
    workspace = _dense_like(input_gates)
    return _dense_like(cx), _dense_like(cx), workspace


@kernel("_thnn_fused_lstm_cell_backward_impl")
def lstm_cell_backward(cx: Tensor, workspace: Tensor, has_bias: bool) -> Any:
    grad_gates, grad_cx = _dense_like(workspace), _dense_like(cx)
    return grad_gates, grad_cx, grad_gates.sum(0) if has_bias else None
