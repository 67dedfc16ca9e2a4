"""`vramcast tune`."""

from typing import Annotated

import typer

import vramcast
from vramcast.cli import options
from vramcast.cli.command import (
    ExitCode,
    command,
    folder_for,
    resumable,
    say,
    show,
    workload_and_knobs,
)
from vramcast.cli.progress import progress_display


@command(
    "tune",
    question="Which settings make it fastest, which fail, and why?",
    examples="""
    vramcast tune train.py:build batch_size=8 --budget 20min --out runs/tune
    vramcast tune batch_size=8 --budget 20min -- python train.py --batch_size={batch_size}
    """,
    then="vramcast probe train.py:build --config runs/tune/final.json runs the result. "
    "vramcast report runs/tune shows it as a page.",
    is_shared=True,
)
def tune(
    workload: options.Workload = None,
    knobs: Annotated[
        list[str] | None, typer.Argument(help="Knobs to start with, as key=value.")
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            help="Try only these optimisations, with commas. Those that change the model are "
            "tried only if named."
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Time limit, for example 20min. What was not started by then is listed."),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(help="The GPU here, if its name is not recognised (see `vramcast gpus`)."),
    ] = None,
    memory: options.MemoryCap = None,
    target_steps: Annotated[
        int, typer.Option(help="Steps of a whole training, to show how many days it takes.")
    ] = 200_000,
    device: options.Device = "cuda",
    outlook: Annotated[bool, typer.Option(help="Predict how fast other GPUs would be.")] = True,
    out: Annotated[
        str | None,
        typer.Option(
            help="Folder of the run. With the same folder, tune continues where it stopped."
        ),
    ] = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> int:
    """Which settings make the step fastest, which are not worth it, which fail, and why?

    Tries precision, attention, batch size, checkpointing, optimizers, torch.compile, CUDA graphs,
    allocator settings and more: each alone against the start in fresh processes, then those that
    helped on top of each other. Writes a log, and the configuration that came out.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 nothing helped or the start does not fit.
    """
    given, values = workload_and_knobs(workload, knobs)
    folder = folder_for("tune", given, out)
    with resumable(folder), progress_display() as progress:
        found = vramcast.tune(
            given,
            out=folder,
            only=only,
            budget=budget,
            gpu=gpu,
            memory=memory,
            target_steps=target_steps,
            device=device,
            outlook=outlook,
            force=force,
            progress=progress,
            knobs=values,
        )
    show(found, as_json, folder=str(folder))
    if not as_json:
        from vramcast.reporting.tune import probe_command

        again = probe_command(found, f"{folder}/final.json")
        say(f"Written to {folder}: log.md, final.json ({again})")
    helped = any(row.verdict == "applied" for row in found.rows)
    return ExitCode.DONE if helped else ExitCode.NO
