"""cuDNN recurrent networks: nn.LSTM, nn.GRU, nn.RNN."""

from __future__ import annotations

from typing import Any

import torch

from vramcast.simulate.kernels.recurrent_workspace import Recurrent, reserve_bytes, workspace_bytes
from vramcast.simulate.kernels.registry import Target, kernel, new, note, scratch

DROPOUT_THREADS, DROPOUT_STATE_BYTES = 2048, 24  # of a multiprocessor, and of each
KINDS = ("RNN", "RNN", "LSTM", "GRU")  # by torch's mode: relu, tanh, LSTM, GRU
UNMEASURED = "cuDNN's recurrent workspaces were measured for equal lengths and no projection; here they are an estimate"


def _described(
    x: Any,
    mode: int,
    hidden: int,
    layers: int,
    bidirectional: bool,
    batch_sizes: Any,
    projection: int,
    dropout: float,
) -> Recurrent:
    """x is [time, batch, features], or packed: [all steps, features]."""
    if batch_sizes or projection or (dropout and layers > 2):
        note(UNMEASURED)
    steps, batch = (len(batch_sizes), batch_sizes[0]) if batch_sizes else (x.shape[0], x.shape[1])
    return Recurrent(
        kind=KINDS[mode],
        item_bytes=x.element_size(),
        input_size=x.shape[-1],
        hidden=hidden,
        layers=layers,
        batch=batch,
        steps=steps,
        directions=2 if bidirectional else 1,
        dropout=dropout > 0,
        is_half=x.dtype == torch.float16,
    )


@kernel("_cudnn_rnn_flatten_weight")
def flatten_weight(weights: Any, *rest: Any, **options: Any) -> torch.Tensor:
    """One buffer for all weights; they become views of it."""
    buffer = new(sum(w.numel() for w in weights), dtype=weights[0].dtype)
    offset = 0
    for weight in weights:
        weight.data = buffer.narrow(0, offset, weight.numel()).view(weight.shape)
        offset += weight.numel()
    return buffer


def _make_dropout_state() -> None:
    """The random state of every thread, made at the first use and kept as long as the process."""
    if "dropout_state" not in Target.kept:
        seed = scratch(8)
        del seed
        Target.kept["dropout_state"] = scratch(
            Target.num_multiprocessors * DROPOUT_THREADS * DROPOUT_STATE_BYTES
        )


@kernel("_cudnn_rnn")
def forward(
    x: Any,
    weights: Any,
    stride0: int,
    buffer: Any,
    hx: Any,
    cx: Any,
    mode: int,
    hidden: int,
    projection: int,
    layers: int,
    batch_first: bool,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_sizes: Any,
    dropout_state: Any,
) -> Any:
    directions = 2 if bidirectional else 1
    if train and dropout:
        _make_dropout_state()
    if batch_first:
        x = x.transpose(0, 1)
    x = x.contiguous()
    time, batch = (
        (x.shape[0], x.shape[1]) if not batch_sizes else (len(batch_sizes), batch_sizes[0])
    )
    width = (projection or hidden) * directions
    out = (
        new(time, batch, width, dtype=x.dtype)
        if not batch_sizes
        else new(x.shape[0], width, dtype=x.dtype)
    )
    hy = new(layers * directions, batch, projection or hidden, dtype=x.dtype)
    cy = (
        new(layers * directions, batch, hidden, dtype=x.dtype)
        if cx is not None
        else new(0, dtype=x.dtype)
    )
    if buffer is None or buffer.numel() == 0:
        buffer = new(sum(w.numel() for w in weights), dtype=x.dtype)
    described = _described(x, mode, hidden, layers, bidirectional, batch_sizes, projection, dropout)
    work = scratch(workspace_bytes(described, backward=False))
    reserve = scratch(reserve_bytes(described)) if train else new(0, dtype=torch.uint8)
    del work
    if batch_first:
        out = out.transpose(0, 1)
    return out, hy, cy, reserve, buffer


@kernel("_cudnn_rnn_backward")
def backward(
    x: Any,
    weights: Any,
    stride0: int,
    buffer: Any,
    hx: Any,
    cx: Any,
    out: Any,
    grad_out: Any,
    grad_hy: Any,
    grad_cy: Any,
    mode: int,
    hidden: int,
    projection: int,
    layers: int,
    batch_first: bool,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_sizes: Any,
    dropout_state: Any,
    reserve: Any,
    mask: Any,
) -> Any:
    zeros = [
        torch.zeros_like(state) for state in (hx, cx) if state is not None
    ]  # nobody asked for the last state's gradient
    grad_x, grad_hx, grad_cx, described = _data_gradients(
        x,
        out,
        grad_out,
        hx,
        cx,
        mode,
        hidden,
        projection,
        layers,
        batch_first,
        dropout,
        bidirectional,
        batch_sizes,
    )
    grad_weights = _weight_gradients(x, weights, batch_first, described) if mask[3] else []
    del zeros
    return grad_x, grad_hx, grad_cx, grad_weights


def _time_first(t: Any, batch_first: bool) -> Any:
    return t.transpose(0, 1).contiguous() if batch_first else t.contiguous()


def _data_gradients(
    x: Any,
    out: Any,
    grad_out: Any,
    hx: Any,
    cx: Any,
    mode: int,
    hidden: int,
    projection: int,
    layers: int,
    batch_first: bool,
    dropout: float,
    bidirectional: bool,
    batch_sizes: Any,
) -> Any:
    dense = [_time_first(t, batch_first) for t in (x, grad_out, out)]
    described = _described(
        dense[0], mode, hidden, layers, bidirectional, batch_sizes, projection, dropout
    )
    grad_x, grad_hx = torch.empty_like(dense[0]), torch.empty_like(hx)
    grad_cx = torch.empty_like(cx) if cx is not None else None
    work = scratch(workspace_bytes(described, backward=True))
    del work
    return grad_x.transpose(0, 1) if batch_first else grad_x, grad_hx, grad_cx, described


def _weight_gradients(
    x: Any, weights: Any, batch_first: bool, described: Recurrent
) -> list[torch.Tensor]:
    dense = _time_first(x, batch_first)  # made again
    flat = new(sum(w.numel() for w in weights), dtype=x.dtype)
    work = scratch(workspace_bytes(described, backward=True))
    del work, dense
    views, offset = [], 0
    for weight in weights:
        views.append(flat.narrow(0, offset, weight.numel()).view(weight.shape))
        offset += weight.numel()
    return views
