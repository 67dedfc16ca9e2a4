"""The recurrences as operators of torch's own kind.

One call for all steps, with a fake kernel that says what it allocates.

Whoever simulates a GPU sees exactly what the real one allocates, because an operator allocates its
results and nothing else: scratch memory is a result too (`counters`), and whatever calls other
operators (the gradient of the weight) is outside. Whether an operator is used depends on the tensor
alone, never on what is installed: where Triton is missing the same operator goes through a plain
loop.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from vramcast_zoo import launch

Recurrence = Literal["auto", "fused", "plain"]
HALVES = (torch.bfloat16, torch.float16)
DEVICES = (
    "cpu",
    "cuda",
)  # named: an operator for all devices is one that a simulator looks into, and finds the loop
MOST_BANKS = 16  # each is a register or four of every thread


def wanted(recurrence: Recurrence, x: Tensor) -> bool:
    """Whether the fused operators are used: "auto" takes them for halves on a CUDA device."""
    if recurrence not in ("auto", "fused", "plain"):
        raise ValueError(f"recurrence={recurrence!r} is none of auto, fused, plain")
    fits = x.dtype in HALVES
    if recurrence == "fused" and x.is_cuda and not fits:
        raise ValueError(
            "recurrence='fused' computes in bfloat16 or float16, "
            f"not in {str(x.dtype).removeprefix('torch.')}"
        )
    return recurrence == "fused" or (recurrence == "auto" and x.is_cuda and fits)


def runs_kernel(x: Tensor) -> bool:
    return x.is_cuda and x.dtype in HALVES and launch.available(x.device)


def _launch_elman(
    out: Tensor, drive: Tensor, states: Tensor, weight: Tensor, counters: Tensor, *, backward: bool
) -> None:
    plan = launch.plan_on(drive.device, *drive.shape[1:])
    launch.elman(out, drive, states, weight, counters, plan, backward=backward)


# ---------------------------------------------------------------- h_t = tanh(drive_t + W h_{t-1})
@torch.library.custom_op("vramcast_zoo::elman", mutates_args=(), device_types=DEVICES)
def elman(drive: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The states of all steps, and scratch memory that nobody needs."""
    states, counters = _like_and_counters(drive)
    if runs_kernel(drive):
        _launch_elman(states, drive, states, weight, counters.zero_(), backward=False)
        return states, counters
    torch.tanh(drive[0], out=states[0])
    for t in range(1, len(drive)):
        torch.tanh(torch.addmm(drive[t], states[t - 1], weight.t()), out=states[t])
    return states, counters


@torch.library.custom_op("vramcast_zoo::elman_backward", mutates_args=(), device_types=DEVICES)
def elman_backward(grad: Tensor, states: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of the drive of all steps, and scratch memory."""
    result, counters = _like_and_counters(states)
    if runs_kernel(states):
        _launch_elman(result, grad, states, weight, counters.zero_(), backward=True)
        return result, counters
    carry = torch.zeros_like(states[0])
    for t in reversed(range(len(states))):
        result[t] = (grad[t] + carry) * (1 - states[t].square())
        carry = result[t] @ weight
    return result, counters


def _like_and_counters(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty(launch.COUNTERS, dtype=torch.int32)


elman.register_fake(lambda drive, weight: _like_and_counters(drive))
elman_backward.register_fake(lambda grad, states, weight: _like_and_counters(states))


def _keep_states(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[0], inputs[1])


def _elman_gradients(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
    states, weight = ctx.saved_tensors
    grad_drive, _ = elman_backward(grad.contiguous(), states, weight)
    return grad_drive, _summed_outer(grad_drive, states)


def _summed_outer(grad_drive: Tensor, states: Tensor) -> Tensor:
    """The sum over time and samples of gradient times state before: one product after the loop.

    The first step has no state before.
    """
    return grad_drive[1:].flatten(0, 1).t() @ states[:-1].flatten(0, 1)


elman.register_autograd(_elman_gradients, setup_context=_keep_states)


class LowRankElman(torch.autograd.Function):
    """With W = U V: the steps take W whole, because one product a step is one wait and two are two.

    The gradients take U and V.
    """

    @staticmethod
    def forward(ctx: Any, drive: Tensor, up: Tensor, down: Tensor) -> Tensor:
        states, _ = elman(drive, up @ down)
        ctx.save_for_backward(states, up, down)
        return states

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        states, up, down = ctx.saved_tensors
        grad_drive, _ = elman_backward(grads[0].contiguous(), states, up @ down)
        flat, before = grad_drive[1:].flatten(0, 1), states[:-1].flatten(0, 1)
        return grad_drive, flat.t() @ (before @ down.t()), (flat @ up).t() @ before


# -------------------------------------------------------- m_{j,t} = a_j m_{j,t-1} + (1 - a_j) h_t
@torch.library.custom_op("vramcast_zoo::ema_banks", mutates_args=(), device_types=DEVICES)
def ema_banks(states: Tensor, decay: Tensor) -> Tensor:
    memory = _memory_like(states, decay)
    if runs_kernel(states):
        launch.ema_forward(memory, states, decay)
        return memory
    carry = decay.new_zeros(memory.shape[1:])
    for t in range(len(states)):
        carry = torch.lerp(states[t].unsqueeze(1).to(decay.dtype), carry, decay)
        memory[t] = carry
    return memory


@torch.library.custom_op("vramcast_zoo::ema_banks_backward", mutates_args=(), device_types=DEVICES)
def ema_banks_backward(
    grad: Tensor, states: Tensor, decay: Tensor, memory: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradient of the states, and that of the decay sample by sample."""
    grad_states, grad_rows = _ema_gradients_like(grad, states, decay, memory)
    if runs_kernel(states):
        launch.ema_backward(grad_states, grad_rows, grad, states, decay, memory)
        return grad_states, grad_rows
    grad_rows.zero_()
    carry = torch.zeros_like(grad_rows)
    for t in reversed(range(len(states))):
        carry = grad[t] + decay * carry
        grad_states[t] = ((1 - decay) * carry).sum(1)
        before = memory[t - 1] if t else torch.zeros_like(memory[0])
        grad_rows += carry * (before - states[t].unsqueeze(1))
    return grad_states, grad_rows


def _memory_like(states: Tensor, decay: Tensor) -> Tensor:
    return states.new_empty(*states.shape[:2], *decay.shape)


def _ema_gradients_like(
    grad: Tensor, states: Tensor, decay: Tensor, memory: Tensor
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(states), decay.new_empty(states.shape[1], *decay.shape)


ema_banks.register_fake(_memory_like)
ema_banks_backward.register_fake(_ema_gradients_like)


def _keep_banks(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs, output)


def _ema_gradients(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    grad_states, grad_rows = ema_banks_backward(grad.contiguous(), *ctx.saved_tensors)
    return grad_states, grad_rows.sum(0)


ema_banks.register_autograd(_ema_gradients, setup_context=_keep_banks)
