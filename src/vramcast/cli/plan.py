"""`vramcast plan`."""

from typing import Annotated

import typer

import vramcast
from vramcast.cli import options
from vramcast.cli.command import (
    ExitCode,
    and_prepare_to_show,
    command,
    say,
    show,
    workload_and_knobs,
)
from vramcast.cli.progress import progress_display


@command(
    "plan",
    question="Which batch for every sequence length, and how long will it take?",
    examples="vramcast plan train.py:build --seq-lens 128,512 --gpu rtx-4090 --out runs/plan",
    then="your training loop can read curriculum-GPU.yaml in the folder. vramcast report runs/plan "
    "shows the plan as a page.",
    is_shared=True,
)
def plan(
    workload: options.Workload = None,
    knobs: options.Knobs = None,
    seq_lens: Annotated[
        str | None,
        typer.Option(
            help="Sequence lengths in rising order: 128,256,512 (default: the workload's seq_len)."
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            help="The GPUs to plan for (see `vramcast gpus`). Several with commas, or all."
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(help="The memory that torch's allocator may use on each, for example 24GiB."),
    ] = None,
    tokens_per_step: Annotated[
        int | None,
        typer.Option(
            help="Tokens in an optimizer step. Gradients are accumulated if they do not fit at "
            "once."
        ),
    ] = None,
    tokens: Annotated[str, typer.Option(help="Tokens of the whole training: 10B, 1e9.")] = "1e9",
    safety: options.Safety = 0.05,
    allocator: options.Allocator = None,
    timeout: options.Timeout = 300.0,
    ray: options.Ray = None,
    out: Annotated[
        str | None,
        typer.Option(help="Folder for plan.json and a curriculum-GPU.yaml for each GPU."),
    ] = None,
    force: options.Force = False,
    price: options.Price = None,
    prices: options.Prices = None,
    world_sizes: Annotated[
        str | None, typer.Option(help="Numbers of GPUs to plan for: 1,2,4,8,16 (default: 1).")
    ] = None,
    strategies: Annotated[
        str | None,
        typer.Option(
            help="For several GPUs: values of the workload's knob `parallel` to try, such as "
            "ddp,fsdp2 (default: the workload as it is)."
        ),
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(help="How long the training may take: 12h, 7d.")
    ] = None,
    link: options.Link = None,
    network: options.Network = None,
    as_json: options.Json = False,
) -> int:
    """Plan a batch for every sequence length and GPU: memory, time, and what limits the speed.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no GPU fits all lengths, or none is in time.
    """
    given, values = workload_and_knobs(workload, knobs)
    with progress_display() as display:
        progress = and_prepare_to_show(display, as_json)
        found = vramcast.plan(
            given,
            seq_lens=seq_lens,
            gpu=gpu,
            memory=memory,
            tokens_per_step=tokens_per_step,
            tokens=tokens,
            safety=safety,
            allocator=allocator,
            timeout=timeout,
            ray=ray,
            out=out,
            force=force,
            price=price or (),
            prices=prices,
            world_sizes=world_sizes,
            strategies=strategies,
            deadline=deadline,
            link=link,
            network=network,
            progress=progress,
            knobs=values,
        )
    if out is not None:
        complete = [f"curriculum-{gpu.name}.yaml" for gpu in found.gpus if gpu.complete]
        say(f"Wrote {', '.join(['plan.json', *complete])} into {out}.")
    show(found, as_json)
    return ExitCode.DONE if found.fits else ExitCode.NO
