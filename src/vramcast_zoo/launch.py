"""How the Triton kernels of the recurrences are launched.

Which tiles, how many programs, and what to do where they cannot all run at once.

Nothing here allocates GPU memory, so the choice is free to depend on the GPU: what a step takes
does not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, wraps
from typing import Any, Literal, ParamSpec

import torch
from torch import Tensor

Arguments = ParamSpec("Arguments")
Variant = Literal["slices", "steps", "rows"]
COUNTERS = 256 * 32  # one a group of samples, a cache line each
OLDEST_CAPABILITY = (8, 0)  # GPUs before this multiply no bfloat16
_STATIC_SHARED_BYTES = 2048


@dataclass(frozen=True)
class Plan:
    """`slices`: one launch, programs wait for each other at every step.

    `steps`: one launch a step. `rows`: one launch, nobody waits.
    """

    variant: Variant
    rows: int
    columns: int
    chunk: int
    warps: int = 4
    stages: int = 4  # chunks on their way at once


@cache
def plan_for(batch: int, width: int, multiprocessors: int, shared_bytes: int) -> Plan:
    """The smallest groups whose slices can all run at once: a program then reads fewer states."""
    columns = 64  # what the tensor cores take at once
    slices = -(-width // columns)
    if slices > multiprocessors:
        return _pipelined("rows", 16, columns, width, shared_bytes)
    rows = next(
        (size for size in (16, 32, 64) if -(-batch // size) * slices <= multiprocessors), 128
    )
    return _pipelined("slices", rows, columns, width, shared_bytes)


def _pipelined(variant: Variant, rows: int, columns: int, width: int, shared_bytes: int) -> Plan:
    """The largest chunks of which at least three fit into shared memory."""
    for chunk in (128, 64):
        fitting = (shared_bytes - _STATIC_SHARED_BYTES) // (2 * chunk * (rows + columns))
        if width % chunk == 0 and fitting >= 3:
            break
    return Plan(
        variant, rows, columns, chunk, warps=4 if rows <= 64 else 8, stages=max(2, min(4, fitting))
    )


def plan_on(device: torch.device, batch: int, width: int) -> Plan:
    properties = torch.cuda.get_device_properties(device)
    shared_bytes: int = properties.shared_memory_per_block_optin  # type: ignore[attr-defined]
    return plan_for(batch, width, properties.multi_processor_count, shared_bytes)


@cache
def available(device: torch.device) -> bool:
    """Whether this process can run Triton kernels on this device."""
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= OLDEST_CAPABILITY


def on_its_gpu(launch: Callable[Arguments, None]) -> Callable[Arguments, None]:
    """Triton launches on the current GPU, which need not be the one that the tensors are on."""

    @wraps(launch)
    def launched(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        device = next(argument.device for argument in args if isinstance(argument, Tensor))
        with (
            torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
        ):  # Triton's interpreter takes the CPU's
            launch(*args, **kwargs)

    return launched


# --------------------------------------------------------------------------------- the recurrence
@on_its_gpu
def elman(
    out: Tensor,
    drive: Tensor,
    states: Tensor,
    weight: Tensor,
    counters: Tensor,
    plan: Plan,
    *,
    backward: bool,
) -> None:
    """Writes the states to `out`, or backward the gradient of the drive.

    Forward does not read `states`; backward `drive` is the gradient of the states.
    """
    from triton.runtime.errors import OutOfResources

    try:
        _launch(out, drive, states, weight, counters, plan, backward)
    except (
        OutOfResources
    ):  # another compiler needs more shared memory than was reckoned with; nothing has run yet
        smaller = replace(plan, chunk=min(plan.chunk, 64), stages=2)
        _launch(out, drive, states, weight, counters, smaller, backward)


def _launch(
    out: Tensor,
    drive: Tensor,
    states: Tensor,
    weight: Tensor,
    counters: Tensor,
    plan: Plan,
    backward: bool,
) -> None:
    if plan.variant == "rows":
        _elman_rows(out, drive, states, weight, plan, backward)
    elif plan.variant == "steps":
        _elman_steps(out, drive, states, weight, counters, plan, backward)
    else:
        _elman_slices(out, drive, states, weight, counters, plan, backward)


def _tiles(plan: Plan, batch: int, width: int, backward: bool) -> dict[str, Any]:
    return {
        "WIDTH": width,
        "ROWS": plan.rows,
        "COLUMNS": plan.columns,
        "CHUNK": plan.chunk,
        "EVEN_ROWS": batch % plan.rows == 0,
        "BACKWARD": backward,
        "num_warps": plan.warps,
        "num_stages": plan.stages,
    }


def _elman_rows(
    out: Tensor, drive: Tensor, states: Tensor, weight: Tensor, plan: Plan, backward: bool
) -> None:
    from vramcast_zoo.kernels_elman import elman_rows

    steps, batch, width = drive.shape
    elman_rows[(-(-batch // plan.rows),)](
        out, drive, states, weight, steps, batch, **_tiles(plan, batch, width, backward)
    )


def _elman_steps(
    out: Tensor,
    drive: Tensor,
    states: Tensor,
    weight: Tensor,
    counters: Tensor,
    plan: Plan,
    backward: bool,
) -> None:
    from vramcast_zoo.kernels_elman import elman_slices

    steps, batch, width = drive.shape
    programs = -(-batch // plan.rows) * -(-width // plan.columns)
    tiles = _tiles(plan, batch, width, backward)
    for step in range(steps):
        elman_slices[(programs,)](
            out,
            drive,
            states,
            weight,
            counters,
            steps,
            step,
            step + 1,
            batch,
            0,
            WAITS=False,
            **tiles,
        )


def _elman_slices(
    out: Tensor,
    drive: Tensor,
    states: Tensor,
    weight: Tensor,
    counters: Tensor,
    plan: Plan,
    backward: bool,
) -> None:
    """As many groups at once as there are multiprocessors for.

    A cooperative launch starts all programs of a grid together or fails: no program can wait for
    one that never runs.
    """
    from vramcast_zoo.kernels_elman import elman_slices

    steps, batch, width = drive.shape
    slices, groups = -(-width // plan.columns), -(-batch // plan.rows)
    at_once = torch.cuda.get_device_properties(drive.device).multi_processor_count // slices
    assert at_once >= 1, f"a width of {width} needs {slices} programs at once"
    for group in range(0, groups, at_once):
        if group:
            counters.zero_()
        programs = min(at_once, groups - group) * slices
        elman_slices[(programs,)](
            out,
            drive,
            states,
            weight,
            counters,
            steps,
            0,
            steps,
            batch,
            group * plan.rows,
            WAITS=True,
            launch_cooperative_grid=True,
            **_tiles(plan, batch, width, backward),
        )


# -------------------------------------------------------------------------------------- the banks
_EMA_BLOCK = 256


@on_its_gpu
def ema_forward(memory: Tensor, states: Tensor, decay: Tensor) -> None:
    from vramcast_zoo.kernels_ema import ema_forward as kernel

    steps, batch, width = states.shape
    kernel[(batch, -(-width // _EMA_BLOCK))](
        memory, states, decay, steps, batch, WIDTH=width, BANKS=decay.shape[0], BLOCK=_EMA_BLOCK
    )


@on_its_gpu
def ema_backward(
    grad_states: Tensor,
    grad_decay_rows: Tensor,
    grad_memory: Tensor,
    states: Tensor,
    decay: Tensor,
    memory: Tensor,
) -> None:
    from vramcast_zoo.kernels_ema import ema_backward as kernel

    steps, batch, width = states.shape
    sizes = {"WIDTH": width, "BANKS": decay.shape[0], "BLOCK": _EMA_BLOCK}
    kernel[(batch, -(-width // _EMA_BLOCK))](
        grad_states, grad_decay_rows, grad_memory, states, decay, memory, steps, batch, **sizes
    )


# ---------------------------------------------------------------------------------------- Mamba-2
_CONV_CHANNELS, _CONV_STRETCH = 256, 128


def conv_stretches(length: int) -> int:
    return -(-length // _CONV_STRETCH)


def _conv_grid(u: Tensor) -> tuple[int, int, int]:
    return u.shape[0], -(-u.shape[2] // _CONV_CHANNELS), conv_stretches(u.shape[1])


@on_its_gpu
def conv_forward(out: Tensor, u: Tensor, weight: Tensor, bias: Tensor) -> None:
    from vramcast_zoo.kernels_conv import conv_forward as kernel

    kernel[_conv_grid(u)](
        out,
        u,
        weight,
        bias,
        *u.shape[1:],
        u.stride(1),
        CHANNELS=_CONV_CHANNELS,
        STRETCH=_CONV_STRETCH,
    )


@on_its_gpu
def conv_backward(
    grad_u: Tensor, parts: Tensor, grad: Tensor, u: Tensor, weight: Tensor, bias: Tensor
) -> None:
    from vramcast_zoo.kernels_conv import conv_backward as kernel

    sizes = {"CHANNELS": _CONV_CHANNELS, "STRETCH": _CONV_STRETCH}
    kernel[_conv_grid(u)](
        grad_u,
        parts,
        grad,
        u,
        weight,
        bias,
        *u.shape[1:],
        u.stride(1),
        conv_stretches(u.shape[1]),
        **sizes,
    )


@on_its_gpu
def ssd_forward(
    y: Tensor, mixed: Tensor, dt: Tensor, a: Tensor, skip: Tensor, state: int, chunk: int
) -> None:
    from vramcast_zoo.kernels_ssd import ssd_forward as kernel

    sizes = {"HEADS": len(a), "P": y.shape[2] // len(a), "N": state, "CHUNK": chunk}
    kernel[(len(mixed) * len(a),)](y, mixed, dt, a, skip, mixed.shape[1], **sizes)


@on_its_gpu
def ssd_backward(
    results: tuple[Tensor, ...],
    grad: Tensor,
    mixed: Tensor,
    dt: Tensor,
    a: Tensor,
    skip: Tensor,
    chunk: int,
) -> None:
    """`results`: gradients of `mixed`, `dt`, `a` and `skip`; states and their gradients.

    States are [sample, head, chunk, N, P].
    """
    from vramcast_zoo.kernels_ssd import ssd_grad_shared, ssd_grad_x, ssd_states

    grad_mixed, grad_dt, a_parts, skip_parts, states, grad_states = results
    batch, heads, chunks, state, head_dim = states.shape
    length, sizes = mixed.shape[1], {"HEADS": heads, "P": head_dim, "N": state, "CHUNK": chunk}
    ssd_states[(batch * heads,)](states, mixed, dt, a, length, **sizes)
    # Two stages: more take registers that are not there.
    by_head = (grad_mixed, grad_dt, skip_parts, grad_states, grad, mixed, dt, a, skip, length)
    ssd_grad_x[(batch * heads,)](*by_head, num_stages=2, **sizes)
    by_chunk = (grad_mixed, grad_dt, a_parts, grad, mixed, dt, a, states, grad_states, length)
    ssd_grad_shared[(batch * chunks,)](*by_chunk, num_stages=2, **sizes)


# ----------------------------------------------------------------------------------------- Elleci
_SELECTIVE_CHANNELS, _SELECTIVE_CHUNK = 32, 16
_SELECTIVE = {"CHANNELS": _SELECTIVE_CHANNELS, "CHUNK": _SELECTIVE_CHUNK, "num_warps": 2}


def selective_blocks(width: int) -> int:
    return -(-width // _SELECTIVE_CHANNELS)


def selective_chunks(length: int) -> int:
    return -(-length // _SELECTIVE_CHUNK)


@on_its_gpu
def selective_forward(
    y: Tensor, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, skip: Tensor
) -> None:
    from vramcast_zoo.kernels_selective import selective_forward as kernel

    grid = (len(x), selective_blocks(x.shape[2]))
    kernel[grid](y, y, x, dt, a, b, c, skip, *x.shape[1:], N=b.shape[2], KEEPS=False, **_SELECTIVE)


@on_its_gpu
def selective_backward(
    results: tuple[Tensor, ...],
    grad: Tensor,
    x: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    skip: Tensor,
) -> None:
    """`results`: gradients of x and dt, of a and skip by sample, of b and c in parts; states."""
    from vramcast_zoo.kernels_selective import selective_backward as gradients
    from vramcast_zoo.kernels_selective import selective_forward as forward

    grid, states = (len(x), selective_blocks(x.shape[2])), results[-1]
    forward[grid](
        x, states, x, dt, a, b, c, skip, *x.shape[1:], N=b.shape[2], KEEPS=True, **_SELECTIVE
    )
    gradients[grid](
        *results[:-1], grad, x, dt, a, b, c, skip, states, *x.shape[1:], N=b.shape[2], **_SELECTIVE
    )
