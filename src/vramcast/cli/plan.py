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
    then="curriculum-GPU.yaml in the folder is for your training loop; vramcast report runs/plan "
    "draws it.",
    is_shared=True,
)
def plan(
    workload: options.Workload = None,
    knobs: options.Knobs = None,
    seq_lens: Annotated[
        str | None,
        typer.Option(
            help="Sequence lengths in rising order: 128,256,512 (default: seq_len as it is)."
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(help="The GPUs to plan for, with commas, or all (see `vramcast gpus`)."),
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="The allocator's budget on each, for example 24GiB.")
    ] = None,
    tokens_per_step: Annotated[
        int | None,
        typer.Option(help="Tokens in an optimizer step; what does not fit at once is accumulated."),
    ] = None,
    tokens: Annotated[str, typer.Option(help="Tokens to train on in all: 10B, 1e9.")] = "1e9",
    safety: options.Safety = 0.05,
    allocator: options.Allocator = None,
    timeout: options.Timeout = 300.0,
    ray: options.Ray = None,
    out: Annotated[
        str | None,
        typer.Option(help="A folder for plan.json and a curriculum-GPU.yaml for each GPU."),
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
            help="On several GPUs, values of the workload's knob parallel: ddp,fsdp2 "
            "(default: the workload as it is)."
        ),
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(help="How long the training may take: 12h, 7d.")
    ] = None,
    link: options.Link = None,
    network: options.Network = None,
    as_json: options.Json = False,
) -> int:
    """Plan a batch for every sequence length and GPU: memory, what binds, time, and the curriculum
    they make.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 on no GPU do all lengths fit, or none is in time.
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
