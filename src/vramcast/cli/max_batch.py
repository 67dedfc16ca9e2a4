"""`vramcast max-batch`."""

from typing import Annotated

import typer

import vramcast
from vramcast.cli import options
from vramcast.cli.command import (
    ExitCode,
    and_prepare_to_show,
    command,
    show,
    workload_and_knobs,
)
from vramcast.cli.progress import progress_display


@command(
    "max-batch",
    question="What is the largest batch that fits?",
    examples="vramcast max-batch train.py:build --gpu rtx-4090 --global-batch 256",
    then="train with the recommended size. vramcast plan does this for every sequence length.",
    is_shared=True,
)
def max_batch(
    workload: options.Workload = None,
    knobs: Annotated[
        list[str] | None,
        typer.Argument(help="Knobs of the workload, as key=value, without batch_size."),
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(help="The GPU (see `vramcast gpus`; default: the one here).")
    ] = None,
    memory: options.Memory = None,
    maximum: Annotated[
        int | None, typer.Option("--max", help="Try no batch larger than this.")
    ] = None,
    multiple_of: Annotated[int, typer.Option(help="Try only multiples of this.")] = 1,
    safety: options.Safety = 0.0,
    global_batch: Annotated[
        int | None,
        typer.Option(help="Also show the micro-batch and the accumulation steps for this batch."),
    ] = None,
    confirm: Annotated[
        bool, typer.Option(help="If there is a GPU, run the answer and the next size on it.")
    ] = True,
    allocator: options.Allocator = None,
    timeout: options.Timeout = 300.0,
    advice: options.Advice = True,
    as_json: options.Json = False,
) -> int:
    """Find the largest batch size that fits. It is predicted, and confirmed if there is a GPU.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not even the smallest fits.
    """
    given, values = workload_and_knobs(workload, knobs)
    with progress_display() as display:
        progress = and_prepare_to_show(display, as_json)
        found = vramcast.max_batch(
            given,
            gpu=gpu,
            memory=memory,
            allocator=allocator,
            maximum=maximum,
            multiple_of=multiple_of,
            safety=safety,
            global_batch=global_batch,
            confirm=confirm,
            timeout=timeout,
            progress=progress,
            knobs=values,
        )
    show(found, as_json)
    if advice and found.largest_batch is None and not as_json:
        from vramcast.cli.brief_advice import show_brief_advice

        where = {"gpu": found.gpu, "memory": memory, "allocator": allocator, "timeout": timeout}
        smallest = {**values, "batch_size": multiple_of}
        show_brief_advice(given, smallest, None, found.seconds, where)
    return ExitCode.NO if found.largest_batch is None else ExitCode.DONE
