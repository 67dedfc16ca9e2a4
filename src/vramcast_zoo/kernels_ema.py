# mypy: ignore-errors
"""Triton kernels of the memory banks and of their backward pass; launch.py launches them.

    m_{j,t} = a_j m_{j,t-1} + (1 - a_j) h_t

A channel of a sample is a scan of its own: a program takes BLOCK channels of one sample through all
of time and carries its banks in registers, in float32. Reading h and writing the banks once is all
there is to do, so memory bandwidth is the limit. Each step's numbers are asked for a step early.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_steps", "batch"])
def ema_forward(
    memory,
    states,
    decay,
    num_steps,
    batch,
    WIDTH: tl.constexpr,
    BANKS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    sample = tl.program_id(0)
    channels = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = channels < WIDTH
    keeps, carried = (), ()
    for j in tl.static_range(BANKS):
        keeps = keeps + (tl.load(decay + j * WIDTH + channels, mask=inside, other=0.0),)
        carried = carried + (tl.full((BLOCK,), 0.0, tl.float32),)
    moment = batch.to(tl.int64) * WIDTH
    read = states + sample * WIDTH + channels
    write = memory + sample * (BANKS * WIDTH) + channels
    upcoming = tl.load(read, mask=inside, other=0.0)
    for step in range(num_steps):
        h = upcoming.to(tl.float32)
        read += moment
        upcoming = tl.load(read, mask=(inside & (step + 1 < num_steps)) != 0, other=0.0)
        updated = ()
        for j in tl.static_range(BANKS):
            updated = updated + (h + keeps[j] * (carried[j] - h),)
            tl.store(write + j * WIDTH, updated[j].to(memory.dtype.element_ty), mask=inside)
        carried = updated
        write += BANKS * moment


@triton.jit(do_not_specialize=["num_steps", "batch"])
def ema_backward(
    grad_states,
    grad_decay_rows,
    grad_memory,
    states,
    decay,
    memory,
    num_steps,
    batch,
    WIDTH: tl.constexpr,
    BANKS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The decay's gradient is left as one part a sample, [batch, banks, width].

    Adding them up in a fixed order is the caller's.
    """
    sample = tl.program_id(0)
    channels = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = channels < WIDTH
    keeps, carried, sums = (), (), ()
    for j in tl.static_range(BANKS):
        keeps = keeps + (tl.load(decay + j * WIDTH + channels, mask=inside, other=0.0),)
        carried = carried + (tl.full((BLOCK,), 0.0, tl.float32),)
        sums = sums + (tl.full((BLOCK,), 0.0, tl.float32),)
    moment = batch.to(tl.int64) * WIDTH
    narrow = (num_steps - 1) * moment + sample * WIDTH + channels
    wide = (num_steps - 1) * moment * BANKS + sample * (BANKS * WIDTH) + channels
    for step in range(num_steps):
        h = tl.load(states + narrow, mask=inside, other=0.0).to(tl.float32)
        not_first = (inside & (step + 1 < num_steps)) != 0
        grads, befores = (), ()
        for j in tl.static_range(BANKS):
            grads = grads + (tl.load(grad_memory + wide + j * WIDTH, mask=inside, other=0.0),)
            befores = befores + (
                tl.load(memory + wide - BANKS * moment + j * WIDTH, mask=not_first, other=0.0),
            )
        total = tl.full((BLOCK,), 0.0, tl.float32)
        updated, added = (), ()
        for j in tl.static_range(BANKS):
            updated = updated + (grads[j].to(tl.float32) + keeps[j] * carried[j],)
            total += (1 - keeps[j]) * updated[j]
            added = added + (sums[j] + updated[j] * (befores[j].to(tl.float32) - h),)
        carried, sums = updated, added
        tl.store(grad_states + narrow, total.to(grad_states.dtype.element_ty), mask=inside)
        narrow -= moment
        wide -= BANKS * moment
    for j in tl.static_range(BANKS):
        tl.store(grad_decay_rows + (sample * BANKS + j) * WIDTH + channels, sums[j], mask=inside)
