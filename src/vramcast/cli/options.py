"""Arguments and options that several commands have."""

from typing import Annotated

import typer

Workload = Annotated[
    str | None,
    typer.Argument(
        help="file.py:function, package.module:function, or a name of `vramcast zoo` such as "
        "hf:gpt2. Or give the line that starts your program, after --."
    ),
]
Knobs = Annotated[list[str] | None, typer.Argument(help="Knobs of the workload, as key=value.")]
Gpu = Annotated[str | None, typer.Option(help="The GPU to predict for (see `vramcast gpus`).")]
Memory = Annotated[
    str | None, typer.Option(help="The memory that torch's allocator may use, for example 24GiB.")
]
MemoryCap = Annotated[
    str | None,
    typer.Option(help="Limit torch's allocator, for example to 24GiB, to act as a smaller GPU."),
]
Allocator = Annotated[
    str | None,
    typer.Option(
        help="Settings of torch's allocator, as in PYTORCH_ALLOC_CONF (default: that variable)."
    ),
]
ProgramSteps = Annotated[
    int | None,
    typer.Option("--steps", help="Launch lines only: stop after this many training steps."),
]
Whole = Annotated[
    bool, typer.Option("--whole", help="Launch lines only: run the program to its end.")
]
WorldSize = Annotated[
    int | None, typer.Option(help="Number of GPUs. A torchrun line sets it by itself.")
]
GpusPerNode = Annotated[
    int | None, typer.Option(help="GPUs in each machine (default: 8, or all if there are fewer).")
]
Ranks = Annotated[
    str | None,
    typer.Option(help="Which ranks to simulate: 0,7 or all (default: the first and the last)."),
]
Link = Annotated[
    str | None,
    typer.Option(
        help="Connection between the GPUs of a machine: nvlink-4, pcie-4, ... or a speed such as "
        "200GB/s (default: from the GPU's data sheet)."
    ),
]
Network = Annotated[
    str | None,
    typer.Option(
        help="Connection between machines, per GPU: infiniband-ndr, ethernet-100, ... or a speed "
        "such as 400Gb/s (default: infiniband-ndr)."
    ),
]
AttentionOrder = Annotated[
    str | None,
    typer.Option(
        help="Order in which scaled_dot_product_attention tries its kernels: "
        "flash,efficient,cudnn (default: torch's own order on this GPU)."
    ),
]
Timeout = Annotated[float, typer.Option(help="Stop a simulation after this many seconds.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Force = Annotated[
    bool, typer.Option("--force", help="Start again and overwrite what the folder holds.")
]
Device = Annotated[str, typer.Option(help="cuda, or cpu to run without a GPU.")]
Safety = Annotated[
    float,
    typer.Option(help="Fraction of the memory to leave free for fragmentation in long runs."),
]
Ray = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Simulate on a Ray cluster: host:port, or auto."),
]
Price = Annotated[
    list[str] | None,
    typer.Option(metavar="GPU=PRICE", help="Price of one GPU for an hour. Can be repeated."),
]
Prices = Annotated[
    str | None, typer.Option(metavar="FILE", help="TOML file with prices: h200 = 3.5, ...")
]
Advice = Annotated[
    bool, typer.Option(help="If it does not fit, also predict changes that would make it fit.")
]
