# mypy: ignore-errors
"""Triton kernels of h_t = tanh(drive_t + W h_{t-1}) and of its backward pass.

What launches them is in launch.py.

One step is a product of [batch, width] with [width, width]: far too small to fill a GPU, so what
counts is how quickly the next step can begin. Samples do not depend on each other. The batch is cut
into groups of ROWS samples and the width into slices of COLUMNS channels; a program computes one
slice of one group at every step. After a step it waits until the other slices of its group have
arrived at the group's counter, never for other groups. Its slice of W comes from the L2 cache again
at every step: keeping it in shared memory was tried, and leaves too little room for states on their
way (768 channels: the same time; 960 and 1536: 1.1 and 1.6 times as long on an H200).

Every state has a place of its own in memory and is written once, so nobody can overwrite what
another program has yet to read: one counter that only grows is the whole of the synchronisation.

Backward is the same recurrence the other way round, with c_t = g_t + gpre_{t+1} W and gpre_t = c_t
(1 - h_t²): `drive` is then the gradient of the states, `out` that of the drive, and W is read
transposed.
"""

import triton
import triton.language as tl


@triton.jit
def _tanh(x):
    return 1 - 2 / (1 + tl.exp(2 * x))


# ------------------------------------------------------------------------------- between programs
@triton.jit
def _arrivals(counter):
    """Every thread reads for itself and orders its own loads.

    An atomic would go through shared memory and two barriers.
    """
    address = counter.to(tl.int64, bitcast=True)
    return tl.inline_asm_elementwise(
        "ld.acquire.gpu.global.u32 $0, [$1];",
        "=r,l",
        [address],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def _wait_for(counter, wanted):
    seen = _arrivals(counter)
    while seen < wanted:
        seen = _arrivals(counter)


@triton.jit
def _arrive(counter):
    # all threads have stored their part; the release below then covers what every one of them
    # stored
    tl.debug_barrier()
    tl.atomic_add(counter, 1, sem="release", scope="gpu")


# --------------------------------------------------------------------------------------- one step
@triton.jit
def _load(
    where,
    outside_ok,
    inner_left,
    CHUNK: tl.constexpr,
    EVEN: tl.constexpr,
    EVEN_INNER: tl.constexpr,
    CACHE: tl.constexpr,
):
    """A tile whose rows are valid where `outside_ok`, and whose first `inner_left` columns are.

    No masks where none are needed.
    """
    if EVEN and EVEN_INNER:
        return tl.load(where, cache_modifier=CACHE)
    if EVEN_INNER:
        return tl.load(where, mask=outside_ok, other=0.0, cache_modifier=CACHE)
    return tl.load(
        where,
        mask=outside_ok & (tl.arange(0, CHUNK) < inner_left)[None, :],
        other=0.0,
        cache_modifier=CACHE,
    )


@triton.jit
def _weight_tile(weight, columns, WIDTH: tl.constexpr, CHUNK: tl.constexpr, BACKWARD: tl.constexpr):
    """Where the first chunk of the slice of W (backward: of Wᵀ) is, as [COLUMNS, CHUNK]."""
    inner = tl.arange(0, CHUNK)
    if BACKWARD:
        return weight + inner[None, :] * WIDTH + columns[:, None]
    return weight + columns[:, None] * WIDTH + inner[None, :]


@triton.jit
def _product(
    total,
    weights,
    previous,
    columns_ok,
    rows_ok,
    WIDTH: tl.constexpr,
    CHUNK: tl.constexpr,
    W_STRIDE: tl.constexpr,
    EVEN_ROWS: tl.constexpr,
    EVEN_COLUMNS: tl.constexpr,
):
    """total [COLUMNS, ROWS] plus W h of the step before."""
    EVEN_INNER: tl.constexpr = WIDTH % CHUNK == 0
    for chunk in range(0, WIDTH, CHUNK):
        w = _load(
            weights + chunk * W_STRIDE,
            columns_ok,
            WIDTH - chunk,
            CHUNK,
            EVEN_COLUMNS,
            EVEN_INNER,
            "",
        )
        h = _load(previous + chunk, rows_ok, WIDTH - chunk, CHUNK, EVEN_ROWS, EVEN_INNER, ".cg")
        total = tl.dot(w, tl.trans(h), total)
    return total


@triton.jit
def _first_step(out, drive, states, tile, inside, BACKWARD: tl.constexpr):
    x = tl.load(drive + tile, mask=inside, other=0.0).to(tl.float32)
    if BACKWARD:
        h = tl.load(states + tile, mask=inside, other=0.0).to(tl.float32)
        y = x * (1 - h * h)
    else:
        y = _tanh(x)
    tl.store(out + tile, y.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _finish(total, slope, BACKWARD: tl.constexpr):
    if BACKWARD:
        return total * slope
    return _tanh(total)


# ---------------------------------------------------------------------------------------- kernels
@triton.jit(
    do_not_specialize=["num_steps", "begin", "end", "batch", "first_row"]
)  # one compilation serves all lengths and batches
def elman_slices(
    out,
    drive,
    states,
    weight,
    counters,
    num_steps,
    begin,
    end,
    batch,
    first_row,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    CHUNK: tl.constexpr,
    EVEN_ROWS: tl.constexpr,
    BACKWARD: tl.constexpr,
    WAITS: tl.constexpr,
):
    """Steps `begin` to `end` of one slice of one group.

    With WAITS all programs must be running at once; without, one step a launch.
    """
    SLICES: tl.constexpr = (WIDTH + COLUMNS - 1) // COLUMNS
    W_STRIDE: tl.constexpr = WIDTH if BACKWARD else 1
    EVEN_COLUMNS: tl.constexpr = WIDTH % COLUMNS == 0
    group = tl.program_id(0) // SLICES
    rows = first_row + group * ROWS + tl.arange(0, ROWS)
    columns = (tl.program_id(0) % SLICES) * COLUMNS + tl.arange(0, COLUMNS)
    rows_ok, columns_ok = (rows < batch)[:, None], (columns < WIDTH)[:, None]
    tile = rows[:, None] * WIDTH + columns[None, :]
    inside = rows_ok & (columns < WIDTH)[None, :]
    source = rows[:, None] * WIDTH + tl.arange(0, CHUNK)[None, :]
    counter = counters + group * 32  # a cache line each
    weights = _weight_tile(weight, columns, WIDTH, CHUNK, BACKWARD)

    moment = batch.to(tl.int64) * WIDTH  # elements of one moment of the whole batch
    if begin == 0:
        at = (num_steps - 1) * moment if BACKWARD else 0 * moment
        _first_step(out + at, drive + at, states + at, tile, inside, BACKWARD)
        if WAITS:
            _arrive(counter)
    for step in range(tl.maximum(begin, 1), end):
        at = (num_steps - 1 - step) * moment if BACKWARD else step * moment
        # What does not depend on the step before is read before the wait, and in the layout of the
        # product.
        total = tl.trans(tl.load(drive + at + tile, mask=inside, other=0.0).to(tl.float32))
        slope = 1.0
        if BACKWARD:
            h = tl.trans(tl.load(states + at + tile, mask=inside, other=0.0).to(tl.float32))
            slope = 1 - h * h
        if WAITS:
            _wait_for(counter, step * SLICES)
        previous = out + (at + moment if BACKWARD else at - moment) + source
        total = _product(
            total,
            weights,
            previous,
            columns_ok,
            rows_ok,
            WIDTH,
            CHUNK,
            W_STRIDE,
            EVEN_ROWS,
            EVEN_COLUMNS,
        )
        y = tl.trans(_finish(total, slope, BACKWARD).to(out.dtype.element_ty))
        tl.store(out + at + tile, y, mask=inside)
        if WAITS:
            _arrive(counter)


@triton.jit(do_not_specialize=["num_steps", "batch"])
def elman_rows(
    out,
    drive,
    states,
    weight,
    num_steps,
    batch,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    CHUNK: tl.constexpr,
    EVEN_ROWS: tl.constexpr,
    BACKWARD: tl.constexpr,
):
    """All steps and all slices of one group in one program.

    Nobody to wait for, but all of W comes from the L2 cache at every step.
    """
    W_STRIDE: tl.constexpr = WIDTH if BACKWARD else 1
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    rows_ok = (rows < batch)[:, None]
    source = rows[:, None] * WIDTH + tl.arange(0, CHUNK)[None, :]
    moment = batch.to(tl.int64) * WIDTH
    for step in range(num_steps):
        at = (num_steps - 1 - step) * moment if BACKWARD else step * moment
        previous = out + (at + moment if BACKWARD else at - moment) + source
        for begin in range(0, WIDTH, COLUMNS):
            columns = begin + tl.arange(0, COLUMNS)
            tile = rows[:, None] * WIDTH + columns[None, :]
            inside = rows_ok & (columns < WIDTH)[None, :]
            if step == 0:
                _first_step(out + at, drive + at, states + at, tile, inside, BACKWARD)
            else:
                total = tl.trans(tl.load(drive + at + tile, mask=inside, other=0.0).to(tl.float32))
                slope = 1.0
                if BACKWARD:
                    h = tl.trans(tl.load(states + at + tile, mask=inside, other=0.0).to(tl.float32))
                    slope = 1 - h * h
                weights = _weight_tile(weight, columns, WIDTH, CHUNK, BACKWARD)
                columns_ok = (columns < WIDTH)[:, None]
                EVEN_COLUMNS: tl.constexpr = WIDTH % COLUMNS == 0
                total = _product(
                    total,
                    weights,
                    previous,
                    columns_ok,
                    rows_ok,
                    WIDTH,
                    CHUNK,
                    W_STRIDE,
                    EVEN_ROWS,
                    EVEN_COLUMNS,
                )
                y = tl.trans(_finish(total, slope, BACKWARD).to(out.dtype.element_ty))
                tl.store(out + at + tile, y, mask=inside)
        tl.debug_barrier()  # other threads of this program read what these have stored
