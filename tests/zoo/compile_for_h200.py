"""Compiles the kernels of the recurrences for an H200 and prints what each would take.

It needs Triton but no GPU. A test runs it.
"""

from __future__ import annotations

import json

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from vramcast_zoo import (
    kernels_conv,
    kernels_elman,
    kernels_ema,
    kernels_selective,
    kernels_ssd,
    launch,
)

FLOATS = (
    "grad_a_rows",
    "grad_skip_rows",
    "grad_b_parts",
    "grad_c_parts",
    "decay",
    "grad_decay_rows",
    "dt",
    "a",
    "skip",
    "grad_dt",
    "grad_a_parts",
    "grad_skip_parts",
    "grad_parts",
)
POINTERS = {"counters": "*i32"} | dict.fromkeys(FLOATS, "*fp32")
SCALARS = (
    "num_steps",
    "begin",
    "end",
    "batch",
    "first_row",
    "length",
    "width",
    "stride",
    "stretches",
)


def compiled(
    kernel: triton.JITFunction, constants: dict[str, int], options: dict[str, int]
) -> dict[str, object]:
    kinds = {
        name: "constexpr"
        if name in constants
        else "i32"
        if name in SCALARS
        else POINTERS.get(name, "*bf16")
        for name in kernel.arg_names
    }
    aligned = {
        (index,): [["tt.divisibility", 16]]
        for index, name in enumerate(kernel.arg_names)
        if kinds[name].startswith("*")
    }
    values = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    result = triton.compile(
        ASTSource(kernel, kinds, values, aligned), target=GPUTarget("cuda", 90, 32), options=options
    )
    return {
        "kernel": kernel.__name__,
        "shared_bytes": result.metadata.shared,
        "tensor_cores": "wgmma.mma_async" in result.asm["ptx"],
    }


def elman(width: int, batch: int, plan: launch.Plan, *, backward: bool) -> dict[str, object]:
    tiles = launch._tiles(plan, batch, width, backward)
    options = {name: tiles.pop(name) for name in ("num_warps", "num_stages")}
    if plan.variant == "rows":
        return compiled(kernels_elman.elman_rows, tiles, options)
    waits = plan.variant == "slices"
    constants = {**tiles, "WAITS": waits}
    return compiled(
        kernels_elman.elman_slices, constants, {**options, "launch_cooperative_grid": waits}
    )


if __name__ == "__main__":
    for width, batch in ((768, 256), (960, 256), (2688, 114), (77, 5)):
        for backward in (False, True):
            print(
                json.dumps(
                    elman(
                        width, batch, launch.plan_for(batch, width, 132, 232448), backward=backward
                    )
                ),
                flush=True,
            )
    print(json.dumps(elman(768, 256, launch.Plan("rows", 16, 64, 128), backward=True)))
    for kernel in (kernels_ema.ema_forward, kernels_ema.ema_backward):
        print(json.dumps(compiled(kernel, {"WIDTH": 960, "BANKS": 4, "BLOCK": 256}, {})))
    for kernel in (kernels_conv.conv_forward, kernels_conv.conv_backward):
        print(json.dumps(compiled(kernel, {"CHANNELS": 256, "STRETCH": 128}, {})))
    scan = {"HEADS": 21, "P": 64, "N": 64, "CHUNK": 64}
    for kernel in (
        kernels_ssd.ssd_forward,
        kernels_ssd.ssd_states,
        kernels_ssd.ssd_grad_x,
        kernels_ssd.ssd_grad_shared,
    ):
        print(json.dumps(compiled(kernel, scan, {"num_stages": 2})))
    selective = {"N": 16, "CHANNELS": 32, "CHUNK": 16}
    for keeps in (False, True):
        print(
            json.dumps(
                compiled(
                    kernels_selective.selective_forward,
                    {**selective, "KEEPS": keeps},
                    {"num_warps": 2},
                )
            )
        )
    print(json.dumps(compiled(kernels_selective.selective_backward, selective, {"num_warps": 2})))
