"""`vramcast predict`."""

import sys
from typing import Annotated

import typer

import vramcast
from vramcast.cli import options
from vramcast.cli.command import ExitCode, command, show, workload_and_knobs
from vramcast.cli.progress import progress_display
from vramcast.errors import UsageError


@command(
    "predict",
    question="Will it fit, what takes the memory, how fast? No GPU needed.",
    examples="""
    vramcast predict --gpu rtx-4090 -- python train.py --batch_size=12
    vramcast predict train.py:build batch_size=8 --gpu rtx-4090
    vramcast predict gpt2-124m --batch-sizes 4-32:4 --memory 24GiB
    """,
    then="vramcast max-batch finds the largest batch; --json > fits.json and vramcast report "
    "fits.json draw it; vramcast probe measures it.",
)
def predict(
    workload: options.Workload = None,
    knobs: options.Knobs = None,
    gpu: options.Gpu = None,
    memory: options.Memory = None,
    batch_sizes: Annotated[
        str | None,
        typer.Option(help="Predict many batch sizes: 1-64, 4-32:4 (every fourth) or 8,16,32."),
    ] = None,
    allocator: options.Allocator = None,
    timeout: options.Timeout = 300.0,
    as_json: options.Json = False,
    trace: Annotated[
        str | None,
        typer.Option(
            help="Keep every allocation in this folder: trace.json and a memory_viz snapshot."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write over the files of an earlier --trace.")
    ] = False,
    steps: options.ProgramSteps = None,
    whole: options.Whole = False,
) -> int:
    """Predict the GPU memory and the time of a training step, with no GPU.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 it does not fit.
    """
    if trace is not None and batch_sizes is not None:
        raise UsageError(
            "A trace is of one run; a list of batch sizes is many.",
            "Give batch_size=N with --trace, or leave --trace out.",
        )
    given, values = workload_and_knobs(workload, knobs)
    found: vramcast.Prediction | vramcast.BatchSizeCurve
    with progress_display() as progress:
        if batch_sizes is not None:
            found = vramcast.predict_batch_sizes(
                given,
                batch_sizes,
                gpu=gpu,
                memory=memory,
                allocator=allocator,
                timeout=timeout,
                progress=progress,
                knobs=values,
            )
        else:
            found = vramcast.predict(
                given,
                gpu=gpu,
                memory=memory,
                allocator=allocator,
                timeout=timeout,
                trace=trace,
                force=force,
                steps=steps,
                whole=whole,
                progress=progress,
                knobs=values,
            )
    if trace is not None:
        print(
            f"Wrote {trace}/trace.json and snapshot.pickle; "
            "https://pytorch.org/memory_viz opens the latter.",
            file=sys.stderr,
        )
    show(found, as_json)
    return ExitCode.DONE if found.fits else ExitCode.NO
