"""Elleci's selective scan.

S_t = e^(dt_t a) S_{t-1} + dt_t x_t B_tᵀ, y_t = S_t C_t + D x_t, where every channel has a time step
of its own.

x and dt are [batch, time, channel], a and D [channel], B and C [batch, time, state].
`selective_scan` is plain torch and runs anywhere; `scan` is the same as an operator with Triton
kernels behind it, like those of fused.py.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from vramcast_zoo import launch
from vramcast_zoo.fused import DEVICES, runs_kernel

CHUNK = 32


# ------------------------------------------------------------------------------------ plain torch
def selective_scan(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, chunk: int = CHUNK
) -> Tensor:
    """y_t = S_t C_t.

    Only the state at the start of each chunk is kept for backward; what is inside a chunk is
    computed again.
    """
    state = x.new_zeros(x.shape[0], x.shape[2], b.shape[2], dtype=dt.dtype)
    outputs = []
    for parts in zip(*(t.split(chunk, dim=1) for t in (x, dt, b, c))):
        y, state = checkpoint(_scan_chunk, state, a, *parts, use_reentrant=False)
        outputs.append(y)
    return torch.cat(outputs, 1)


def _scan_chunk(
    state: Tensor, a: Tensor, x: Tensor, dt: Tensor, b: Tensor, c: Tensor
) -> tuple[Tensor, Tensor]:
    """All states of a chunk by doubling.

    After the round with offset o each holds what its last 2o moments added, decayed until now.
    """
    decay, added = (dt * a).exp(), (dt * x).unsqueeze(-1) * b.unsqueeze(2)
    offset = 1
    while offset < x.shape[1]:
        added = added + decay.unsqueeze(-1) * F.pad(added[:, :-offset], (0, 0, 0, 0, offset, 0))
        decay = decay * F.pad(decay[:, :-offset], (0, 0, offset, 0), value=1.0)
        offset *= 2
    states = added + decay.unsqueeze(-1) * state.unsqueeze(1)
    return (states * c.unsqueeze(2)).sum(-1), states[:, -1]


# --------------------------------------------------------------------------------- as an operator
@torch.library.custom_op("vramcast_zoo::selective_scan", mutates_args=(), device_types=DEVICES)
def scan(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, skip: Tensor) -> Tensor:
    """dt, a and skip at least float32; the result is of x's type."""
    y = x.new_empty(x.shape)
    if runs_kernel(x):
        launch.selective_forward(y, x, dt, a, b, c, skip)
        return y
    for t, state in enumerate(_all_states(x, dt, a, b)):
        y[:, t] = (state * c[:, t].unsqueeze(1)).sum(-1) + skip * x[:, t]
    return y


@torch.library.custom_op(
    "vramcast_zoo::selective_scan_backward", mutates_args=(), device_types=DEVICES
)
def scan_backward(
    grad: Tensor, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, skip: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of x, dt, a, B, C and skip, and scratch memory.

    Those of a and skip are sample by sample, those of B and C in parts to be added up:
    [part, batch, time, state]. The scratch memory holds the state before every so many moments.
    """
    results = _gradients_like(grad, x, dt, a, b, c, skip)
    if runs_kernel(x):
        launch.selective_backward(results, grad, x, dt, a, b, c, skip)
        return results
    grad_x, grad_dt, grad_a, grad_skip, grad_b, grad_c, states = results
    for result in (grad_a, grad_skip, grad_b, grad_c, states):
        result.zero_()
    after = torch.stack(_all_states(x, dt, a, b))
    before = torch.cat((torch.zeros_like(after[:1]), after[:-1]))
    grad_state = torch.zeros_like(after[0])
    for t in reversed(range(x.shape[1])):
        dy, u, d, decay = (
            grad[:, t].to(dt.dtype),
            x[:, t].to(dt.dtype),
            dt[:, t],
            (dt[:, t] * a).exp(),
        )
        grad_state = grad_state + dy.unsqueeze(-1) * c[:, t].unsqueeze(1)
        grad_c[0, :, t] = (after[t] * dy.unsqueeze(-1)).sum(1)
        grad_b[0, :, t] = (grad_state * (d * u).unsqueeze(-1)).sum(1)
        driven, faded = (
            (grad_state * b[:, t].unsqueeze(1)).sum(-1),
            (grad_state * before[t]).sum(-1) * decay,
        )
        grad_x[:, t], grad_dt[:, t] = d * driven + skip * dy, u * driven + a * faded
        grad_a += d * faded
        grad_skip += u * dy
        grad_state = grad_state * decay.unsqueeze(-1)
    return results


def _all_states(x: Tensor, dt: Tensor, a: Tensor, b: Tensor) -> list[Tensor]:
    """One moment after the other: [batch, channel, state] each."""
    state, states = dt.new_zeros(x.shape[0], x.shape[2], b.shape[2]), []
    for t in range(x.shape[1]):
        state = state * (dt[:, t] * a).exp().unsqueeze(-1) + (dt[:, t] * x[:, t]).unsqueeze(-1) * b[
            :, t
        ].unsqueeze(1)
        states.append(state)
    return states


def _gradients_like(
    grad: Tensor, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, skip: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    (batch, length, width), state = x.shape, b.shape[2]
    blocks, chunks = launch.selective_blocks(width), launch.selective_chunks(length)
    return (  # in this order: a simulator takes them to be allocated as they are returned
        x.new_empty(x.shape),
        dt.new_empty(dt.shape),
        dt.new_empty(batch, width),
        dt.new_empty(batch, width),
        dt.new_empty(blocks, batch, length, state),
        dt.new_empty(blocks, batch, length, state),
        dt.new_empty(batch, chunks, width, state),
    )


scan.register_fake(lambda x, dt, a, b, c, skip: x.new_empty(x.shape))
scan_backward.register_fake(_gradients_like)


def _keep_inputs(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
    saved = ctx.saved_tensors  # once: inside a checkpointed block they cannot be asked for again
    b, c = saved[3:5]
    grad_x, grad_dt, a_rows, skip_rows, b_parts, c_parts, _ = scan_backward(
        grad.contiguous(), *saved
    )
    return (
        grad_x,
        grad_dt,
        a_rows.sum(0),
        b_parts.sum(0).to(b.dtype),
        c_parts.sum(0).to(c.dtype),
        skip_rows.sum(0),
    )


scan.register_autograd(_gradients, setup_context=_keep_inputs)
