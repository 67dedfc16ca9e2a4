"""The recurrences of E1, E5 and E10, time first: tensors are [time, batch, width].

Each is one function with a backward pass of its own that keeps only what it must: the states. A
loop written in autograd keeps every intermediate of every step instead. The loops below are plain
torch and run anywhere; `recurrence` says when the operators of fused.py, which do all steps in one
kernel, are used instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vramcast_zoo import fused
from vramcast_zoo.fused import Recurrence


def elman(drive: Tensor, weight: Tensor, recurrence: Recurrence = "auto") -> Tensor:
    """h_t = tanh(drive_t + W h_{t-1}), h_0 = 0."""
    weight = weight.to(drive.dtype)
    if fused.wanted(recurrence, drive):
        states, _ = fused.elman(drive.contiguous(), weight.contiguous())
        return states
    return _Elman.apply(drive, weight)


def low_rank_elman(
    drive: Tensor, up: Tensor, down: Tensor, recurrence: Recurrence = "auto"
) -> Tensor:
    """h_t = tanh(drive_t + U V h_{t-1}), h_0 = 0, with U [width, rank] and V [rank, width]."""
    up, down = up.to(drive.dtype), down.to(drive.dtype)
    if fused.wanted(recurrence, drive):
        return fused.LowRankElman.apply(drive.contiguous(), up, down)
    return _LowRankElman.apply(drive, up, down)


def ema_banks(states: Tensor, decay: Tensor, recurrence: Recurrence = "auto") -> Tensor:
    """m_{j,t} = a_j m_{j,t-1} + (1 - a_j) h_t, m_0 = 0.

    [time, batch, width] and a [banks, width] -> [time, batch, banks, width].
    """
    if fused.wanted(recurrence, states) and len(decay) <= fused.MOST_BANKS:
        at_least_float32 = torch.promote_types(decay.dtype, torch.float32)
        return fused.ema_banks(states.contiguous(), decay.to(at_least_float32).contiguous())
    return _EmaBanks.apply(states, decay)


def _unroll(drive: Tensor, pre_activation: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """States 0 to T in one tensor: all but the last and all but the first are views, not copies."""
    states = drive.new_empty(drive.shape[0] + 1, *drive.shape[1:])
    states[0] = 0
    for t in range(drive.shape[0]):
        torch.tanh(pre_activation(drive[t], states[t]), out=states[t + 1])
    return states


def _unroll_back(grad: Tensor, states: Tensor, back: Callable[[Tensor], Tensor]) -> Tensor:
    """The gradient of every pre-activation; `back` takes one of them to the state before it."""
    result = torch.empty_like(states[1:])
    carry = torch.zeros_like(states[0])
    for t in reversed(range(grad.shape[0])):
        result[t] = (grad[t] + carry) * (1 - states[t + 1].square())
        carry = back(result[t])
    return result


class _Elman(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, drive: Tensor, weight: Tensor) -> Tensor:
        states = _unroll(drive, lambda drive_t, state: torch.addmm(drive_t, state, weight.t()))
        ctx.save_for_backward(states, weight)
        return states[1:]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        states, weight = ctx.saved_tensors
        grad_drive = _unroll_back(grads[0], states, lambda grad: grad @ weight)
        return grad_drive, grad_drive.flatten(0, 1).t() @ states[:-1].flatten(0, 1)


class _LowRankElman(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, drive: Tensor, up: Tensor, down: Tensor) -> Tensor:
        states = _unroll(
            drive, lambda drive_t, state: torch.addmm(drive_t, state @ down.t(), up.t())
        )
        ctx.save_for_backward(states, up, down)
        return states[1:]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        states, up, down = ctx.saved_tensors
        grad_drive = _unroll_back(grads[0], states, lambda grad: (grad @ up) @ down)
        before, flat = states[:-1].flatten(0, 1), grad_drive.flatten(0, 1)
        return grad_drive, flat.t() @ (before @ down.t()), (flat @ up).t() @ before


class _EmaBanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, decay: Tensor) -> Tensor:
        # A slow average moves by less than half precision can tell apart: what is carried from step
        # to step is at least float32.
        decay = decay.to(torch.promote_types(decay.dtype, torch.float32))
        memory = states.new_empty(*states.shape[:2], *decay.shape)
        carry = decay.new_zeros(memory.shape[1:])
        for t in range(states.shape[0]):
            carry = torch.lerp(states[t].unsqueeze(1).to(decay.dtype), carry, decay)
            memory[t] = carry
        ctx.save_for_backward(states, decay, memory)
        return memory

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        states, decay, memory = ctx.saved_tensors
        grad_states, grad_decay = torch.empty_like(states), torch.zeros_like(decay)
        carry = torch.zeros_like(memory[0], dtype=decay.dtype)
        for t in reversed(range(states.shape[0])):
            carry = grads[0][t] + decay * carry
            grad_states[t] = ((1 - decay) * carry).sum(1)
            before = memory[t - 1] if t else torch.zeros_like(memory[0])
            grad_decay += (carry * (before - states[t].unsqueeze(1))).sum(0)
        return grad_states, grad_decay
