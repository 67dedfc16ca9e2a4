"""Arguments and options that several commands have."""

from typing import Annotated

import typer

Workload = Annotated[
    str | None,
    typer.Argument(
        help="file.py:function, package.module:function, or a name of `vramcast zoo`, such as "
        "hf:gpt2. "
        "Instead of it, after --, the line that a program is started with."
    ),
]
Knobs = Annotated[list[str] | None, typer.Argument(help="Knobs of the workload as key=value.")]
Gpu = Annotated[str | None, typer.Option(help="The GPU to predict for (see `vramcast gpus`).")]
Memory = Annotated[str | None, typer.Option(help="The allocator's budget, for example 24GiB.")]
MemoryCap = Annotated[
    str | None,
    typer.Option(help="Cap the allocator, for example at 24GiB: a smaller card on a larger one."),
]
Allocator = Annotated[
    str | None,
    typer.Option(help="Allocator settings, as in PYTORCH_ALLOC_CONF (default: that variable)."),
]
ProgramSteps = Annotated[
    int | None,
    typer.Option("--steps", help="Of a launch line: stop after so many training steps."),
]
Whole = Annotated[
    bool, typer.Option("--whole", help="Of a launch line: run it to the program's own end.")
]
WorldSize = Annotated[
    int | None, typer.Option(help="How many GPUs there are; torchrun's own options say it too.")
]
GpusPerNode = Annotated[
    int | None, typer.Option(help="GPUs of a machine (default: 8, or all where there are fewer).")
]
Ranks = Annotated[
    str | None,
    typer.Option(help="Of several GPUs, those to simulate: 0,7 or all (default: first and last)."),
]
Link = Annotated[
    str | None,
    typer.Option(
        help="What connects the GPUs of a machine: nvlink-4, pcie-4, ... or a speed such as "
        "200GB/s (default: by the GPU's data sheet)."
    ),
]
Network = Annotated[
    str | None,
    typer.Option(
        help="What connects machines, for each GPU: infiniband-ndr, ethernet-100, ... or a speed "
        "such as 400Gb/s (default: infiniband-ndr)."
    ),
]
AttentionOrder = Annotated[
    str | None,
    typer.Option(
        help="Which kernels scaled_dot_product_attention tries, the first one first: "
        "flash,efficient,cudnn (default: as torch would on this GPU)."
    ),
]
Timeout = Annotated[float, typer.Option(help="Seconds after which a simulation is stopped.")]
Json = Annotated[bool, typer.Option("--json", help="JSON on stdout, nothing else.")]
Force = Annotated[
    bool, typer.Option("--force", help="Begin again, and write over what the folder holds.")
]
Device = Annotated[str, typer.Option(help="cuda, or cpu to run without a GPU.")]
Safety = Annotated[
    float,
    typer.Option(help="The fraction of the memory to leave free, for fragmentation in long runs."),
]
Ray = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Simulate on a Ray cluster: host:port, or auto."),
]
Price = Annotated[
    list[str] | None,
    typer.Option(metavar="GPU=PRICE", help="Of one GPU for an hour; may be given again."),
]
Prices = Annotated[
    str | None, typer.Option(metavar="FILE", help="A TOML file of prices: h200 = 3.5, ...")
]
Advice = Annotated[
    bool, typer.Option(help="Where it does not fit: also predict some changes that make it fit.")
]
