"""Arguments and options that several commands have."""

from typing import Annotated

import typer

Workload = Annotated[
    str, typer.Argument(help="file.py:function, package.module:function, or a name of the zoo.")
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
