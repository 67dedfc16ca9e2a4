"""Mamba-2's convolution and scan as operators, like those of fused.py.

One call each, with fake kernels that say what they allocate.

`mixed` is [batch, time, heads · P + 2N]: x, B and C side by side. An operator that reads and writes
them together needs no copies to take them apart and to put their gradients together. kernels_ssd.py
has the equations; here they are in plain torch, for where there is no Triton.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vramcast_zoo import launch
from vramcast_zoo.fused import DEVICES, runs_kernel

TAPS = 4
CHUNK = 64
SIZES = (16, 32, 64, 128)  # of a head and of its state: what the kernels' tiles can be


def fits(heads: int, mixed: Tensor, state: int) -> bool:
    head_dim = (mixed.shape[-1] - 2 * state) // heads
    return head_dim in SIZES and state in SIZES


# ------------------------------------------------------------- silu(causal depthwise convolution)
@torch.library.custom_op("vramcast_zoo::causal_conv", mutates_args=(), device_types=DEVICES)
def causal_conv(u: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """u [batch, time, channel], its channels side by side in memory; weight [channel, 1, 4].

    Moments before the first are zero.
    """
    out = _conv_like(u, weight, bias)
    if runs_kernel(u):
        launch.conv_forward(out, u, weight, bias)
        return out
    return out.copy_(F.silu(_convolved(u, weight, bias)))


@torch.library.custom_op(
    "vramcast_zoo::causal_conv_backward", mutates_args=(), device_types=DEVICES
)
def causal_conv_backward(
    grad: Tensor, u: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradient of u.

    Those of the weights and, last, of the bias in parts to be added up: [part, 5, channel].
    """
    grad_u, parts = _conv_gradients_like(grad, u, weight, bias)
    if runs_kernel(u):
        launch.conv_backward(grad_u, parts, grad, u, weight, bias)
        return grad_u, parts
    pre = _convolved(u, weight, bias)
    sigmoid = pre.sigmoid()
    g = grad * sigmoid * (1 + pre * (1 - sigmoid))
    taps = weight[:, 0].unbind(-1)
    grad_u.copy_(
        torch.stack([_shifted(g, i + 1 - TAPS) * tap for i, tap in enumerate(taps)]).sum(0)
    )
    parts.zero_()
    parts[: len(u)] = torch.stack(
        [*((g * _shifted(u, TAPS - 1 - i)).sum(1) for i in range(TAPS)), g.sum(1)], 1
    )
    return grad_u, parts


def _convolved(u: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return bias + torch.stack(
        [_shifted(u, TAPS - 1 - i) * tap for i, tap in enumerate(weight[:, 0].unbind(-1))]
    ).sum(0)


def _shifted(u: Tensor, by: int) -> Tensor:
    """Later by so many moments, or earlier; what is not there is zero."""
    length = u.shape[1]
    by = max(-length, min(length, by))
    return (
        F.pad(u[:, : length - by], (0, 0, by, 0)) if by >= 0 else F.pad(u[:, -by:], (0, 0, 0, -by))
    )


def _conv_like(u: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return u.new_empty(u.shape)


def _conv_gradients_like(
    grad: Tensor, u: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    parts = u.shape[0] * launch.conv_stretches(u.shape[1])
    wide = torch.promote_types(u.dtype, torch.float32)
    return u.new_empty(u.shape), u.new_empty(parts, TAPS + 1, u.shape[2], dtype=wide)


causal_conv.register_fake(_conv_like)
causal_conv_backward.register_fake(_conv_gradients_like)


def _keep_inputs(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _conv_gradients(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    u, weight, bias = ctx.saved_tensors
    grad_u, parts = causal_conv_backward(grad.contiguous(), u, weight, bias)
    sums = parts.sum(0)
    return grad_u, sums[:TAPS].t().unsqueeze(1).to(weight.dtype), sums[TAPS].to(bias.dtype)


causal_conv.register_autograd(_conv_gradients, setup_context=_keep_inputs)


# --------------------------------------------------------------------------------------- the scan
@torch.library.custom_op("vramcast_zoo::ssd", mutates_args=(), device_types=DEVICES)
def ssd(mixed: Tensor, dt: Tensor, a: Tensor, skip: Tensor, state: int) -> Tensor:
    """y_t = S_t C_t + D x_t: [batch, time, heads · P].

    `dt` is [batch, time, heads], a and skip [heads], all three at least float32.
    """
    y = _ssd_like(mixed, dt, a, skip, state)
    if runs_kernel(mixed):
        launch.ssd_forward(y, mixed, dt, a, skip, state, CHUNK)
        return y
    parts = _Chunks(mixed, dt, a, state)
    inside = torch.einsum(
        "kzts,kzhts,kzsh,kzshp->kzthp", parts.scores, parts.decay, parts.dt, parts.x
    )
    before = torch.einsum("kztn,kzth,kzhpn->kzthp", parts.c, parts.cum.exp(), parts.states())
    return y.copy_(parts.joined(inside + before + parts.x * skip[:, None]).flatten(2))


@torch.library.custom_op("vramcast_zoo::ssd_backward", mutates_args=(), device_types=DEVICES)
def ssd_backward(
    grad: Tensor, mixed: Tensor, dt: Tensor, a: Tensor, skip: Tensor, state: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of `mixed` and `dt`.

    Those of `a` chunk by chunk and of `skip` sample by sample; and scratch memory: the state before
    every chunk and the gradient of the state after it.
    """
    results = _ssd_gradients_like(grad, mixed, dt, a, skip, state)
    if runs_kernel(mixed):
        launch.ssd_backward(results, grad, mixed, dt, a, skip, CHUNK)
        return results
    for result, value in zip(
        results, _plain_gradients(grad, mixed, dt, a, skip, state), strict=True
    ):
        result.copy_(value)
    return results


class _Chunks:
    """A scan's arguments with time cut into chunks, and what both passes need of each.

    Past the end dt is 0, and nothing happens.
    """

    def __init__(self, mixed: Tensor, dt: Tensor, a: Tensor, state: int) -> None:
        self.length, heads = mixed.shape[1], len(a)
        self.wide = dt.dtype
        self.dt = self.cut(dt)
        x, self.b, self.c = self.cut(mixed.to(self.wide)).split(
            (mixed.shape[-1] - 2 * state, state, state), dim=-1
        )
        self.x = x.unflatten(-1, (heads, -1))
        self.cum = (self.dt * a).cumsum(2)  # never rising
        by_head = self.cum.transpose(2, 3)
        gap = by_head.unsqueeze(-1) - by_head.unsqueeze(-2)
        future = torch.ones(gap.shape[-2:], dtype=torch.bool, device=gap.device).triu(1)
        self.decay = gap.masked_fill(future, -math.inf).exp()  # [batch, chunk, head, t, s]
        self.to_end = (self.cum[:, :, -1:] - self.cum).exp()
        self.scores = torch.einsum("kztn,kzsn->kzts", self.c, self.b)

    def cut(self, tensor: Tensor) -> Tensor:
        return F.pad(tensor, (0, 0, 0, -tensor.shape[1] % CHUNK)).unflatten(1, (-1, CHUNK))

    def joined(self, tensor: Tensor) -> Tensor:
        return tensor.flatten(1, 2)[:, : self.length]

    def states(self) -> Tensor:
        """The state before every chunk: [batch, chunk, head, channel, state]."""
        added = torch.einsum("kzsn,kzsh,kzshp->kzhpn", self.b, self.dt * self.to_end, self.x)
        return self._carried(added, range(added.shape[1]))

    def grad_states(self, dy: Tensor) -> Tensor:
        """The gradient of the state after every chunk."""
        added = torch.einsum("kztn,kzth,kzthp->kzhpn", self.c, self.cum.exp(), dy)
        return self._carried(added, range(added.shape[1] - 1, -1, -1))

    def _carried(self, added: Tensor, order: range) -> Tensor:
        kept, state = torch.empty_like(added), torch.zeros_like(added[:, 0])
        for z in order:
            kept[:, z] = state
            state = state * self.cum[:, z, -1].exp()[..., None, None] + added[:, z]
        return kept


def _plain_gradients(
    grad: Tensor, mixed: Tensor, dt: Tensor, a: Tensor, skip: Tensor, state: int
) -> tuple[Tensor, ...]:
    parts = _Chunks(mixed, dt, a, state)
    dy = parts.cut(grad.to(parts.wide)).unflatten(-1, (len(a), -1))
    before, after = parts.states(), parts.grad_states(dy)
    met = (
        torch.einsum("kzthp,kzshp->kzhts", dy, parts.x)
        * parts.decay
        * parts.dt.transpose(2, 3).unsqueeze(-2)
    )
    came = torch.einsum("kzthp,kzth,kzhpn->kzthn", dy, parts.cum.exp(), before)
    goes = torch.einsum("kzshp,kzsh,kzhpn->kzshn", parts.x, parts.dt * parts.to_end, after)
    grad_c = torch.einsum("kzhts,kzsn->kztn", met, parts.b) + came.sum(3)
    grad_b = torch.einsum("kzhts,kztn->kzsn", met, parts.c) + goes.sum(3)
    # The decay of a moment moves whatever crosses it: pairs of the chunk around it, what comes in
    # and what goes out.
    crossed, goes_out = met * parts.scores.unsqueeze(2), (goes * parts.b.unsqueeze(3)).sum(-1)
    along = (
        (crossed.sum(-1) - crossed.sum(-2)).transpose(2, 3)
        + (came * parts.c.unsqueeze(3)).sum(-1)
        - goes_out
    )
    beyond = parts.cum[:, :, -1].exp() * (before * after).sum((-1, -2)) + goes_out.sum(2)
    grad_decay = along.flip(2).cumsum(2).flip(2) + beyond.unsqueeze(2)
    driven = torch.einsum("kzts,kzhts,kzthp->kzshp", parts.scores, parts.decay, dy)
    driven = driven + torch.einsum("kzsn,kzsh,kzhpn->kzshp", parts.b, parts.to_end, after)
    grad_x = driven * parts.dt.unsqueeze(-1) + dy * skip[:, None]
    grad_mixed = torch.cat(
        (parts.joined(grad_x).flatten(2), parts.joined(grad_b), parts.joined(grad_c)), -1
    )
    grad_dt = parts.joined(a * grad_decay + (driven * parts.x).sum(-1))
    by_state = (before.permute(0, 2, 1, 4, 3), after.permute(0, 2, 1, 4, 3))
    return (
        grad_mixed,
        grad_dt,
        (parts.dt * grad_decay).sum(2),
        (parts.x * dy).sum((1, 2, 4)),
        *by_state,
    )


def _ssd_like(mixed: Tensor, dt: Tensor, a: Tensor, skip: Tensor, state: int) -> Tensor:
    return mixed.new_empty(*mixed.shape[:2], mixed.shape[2] - 2 * state)


def _ssd_gradients_like(
    grad: Tensor, mixed: Tensor, dt: Tensor, a: Tensor, skip: Tensor, state: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    (batch, length, width), heads = mixed.shape, len(a)
    chunks = -(-length // CHUNK)
    kept = (batch, heads, chunks, state, (width - 2 * state) // heads)
    return (  # in this order: a simulator takes them to be allocated as they are returned
        mixed.new_empty(mixed.shape),
        dt.new_empty(dt.shape),
        a.new_empty(batch, chunks, heads),
        a.new_empty(batch, heads),
        mixed.new_empty(kept),
        mixed.new_empty(kept),
    )


ssd.register_fake(_ssd_like)
ssd_backward.register_fake(_ssd_gradients_like)


def _keep_scanned(
    ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, Tensor, int], output: Tensor
) -> None:
    ctx.save_for_backward(*inputs[:4])
    ctx.state = inputs[4]


def _ssd_gradients(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None]:
    grad_mixed, grad_dt, a_parts, skip_parts, *_ = ssd_backward(
        grad.contiguous(), *ctx.saved_tensors, ctx.state
    )
    return grad_mixed, grad_dt, a_parts.sum((0, 1)), skip_parts.sum(0), None


ssd.register_autograd(_ssd_gradients, setup_context=_keep_scanned)
