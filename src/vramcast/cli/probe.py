"""`vramcast probe`."""

from typing import Annotated

import typer

import vramcast
from vramcast.cli import options
from vramcast.cli.command import (
    ExitCode,
    command,
    folder_for,
    say,
    show,
    workload_and_knobs,
)
from vramcast.cli.progress import progress_display


@command(
    "probe",
    question="What does it really take on the GPU here? Is the run stable?",
    examples="""
    vramcast probe -- python train.py --batch_size=12
    vramcast probe train.py:build batch_size=8
    vramcast probe train.py:build batch_size=8 --device cpu --steps 3
    """,
    then="vramcast report RUN shows the folder. vramcast fit RUN... finds a law for several runs. "
    "With --trace, vramcast diff compares every allocation with a prediction.",
    is_shared=True,
)
def probe(
    workload: options.Workload = None,
    knobs: options.Knobs = None,
    device: options.Device = "cuda",
    memory: options.MemoryCap = None,
    warmup: Annotated[int, typer.Option(help="Steps before measuring starts.")] = 2,
    steps: Annotated[
        int | None,
        typer.Option(
            help="Steps to measure (default: 20, the fewest for judging the 95th percentile). "
            "For a launch line: stop after this many training steps."
        ),
    ] = None,
    whole: options.Whole = False,
    allocator: options.Allocator = None,
    timeout: Annotated[float, typer.Option(help="Stop the run after this many seconds.")] = 600.0,
    out: Annotated[
        str | None, typer.Option(help="Folder of the run (default: a new one under runs/).")
    ] = None,
    force: options.Force = False,
    trace: Annotated[
        bool,
        typer.Option(
            "--trace",
            help="Keep every allocation: trace.json and snapshot.pickle (for memory_viz).",
        ),
    ] = False,
    config: Annotated[
        str | None,
        typer.Option(
            help="A configuration that vramcast tune wrote. Knobs given here override it."
        ),
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Measure real training steps in a fresh process, and judge whether the run was sound.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 out of memory or not stable.
    """
    given, values = workload_and_knobs(workload, knobs)
    folder = folder_for("probe", given, out)
    try:
        with progress_display() as progress:
            measured = vramcast.probe(
                given,
                device=device,
                memory=memory,
                allocator=allocator,
                warmup=warmup,
                steps=steps,
                whole=whole,
                timeout=timeout,
                out=folder,
                force=force,
                trace=trace,
                config=config,
                progress=progress,
                knobs=values,
            )
    except vramcast.NotSaved as problem:
        show(problem.measurement, as_json)
        raise
    show(measured, as_json, folder=str(folder))
    if not as_json:
        say(f"Written to {folder}")
    if measured.outcome not in ("ok", "out_of_memory", "paging"):
        return ExitCode.FAILED
    return ExitCode.DONE if measured.outcome == "ok" and measured.verdict.stable else ExitCode.NO
