"""`vramcast predict`."""

from typing import Annotated, Any, TypeAlias

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
from vramcast.errors import UsageError

Found: TypeAlias = (
    "vramcast.Prediction | vramcast.BatchSizeCurve | vramcast.PredictionTable | "
    "vramcast.Sensitivity"
)


@command(
    "predict",
    question="Will it fit, what takes the memory, how fast? No GPU needed.",
    examples="""
    vramcast predict --gpu rtx-4090 -- python train.py --batch_size=12
    vramcast predict train.py:build batch_size=8 --gpu rtx-4090
    vramcast predict gpt2-124m --batch-sizes 4-32:4 --memory 24GiB
    vramcast predict train.py:build --gpu all --tokens 10B --price h200=3.5 --price a100-80gb=1.8
    vramcast predict train.py:build --gpu h200 --vary batch_size=8,16 --vary depth=12,24
    vramcast predict train.py:build --gpu rtx-4090 --max 22GiB --report page.html
    """,
    then="vramcast advise shows what would save memory. vramcast max-batch finds the largest "
    "batch. "
    "--open shows the answer as a page. On a GPU, vramcast probe measures it.",
    is_shared=True,
)
def predict(
    workload: options.Workload = None,
    knobs: options.Knobs = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            help="The GPU to predict for (see `vramcast gpus`). Several with commas, or all."
        ),
    ] = None,
    memory: options.Memory = None,
    most: Annotated[
        str | None,
        typer.Option(
            "--max",
            metavar="SIZE",
            help="Exit with 3 if the peak is larger than this, such as 22GiB.",
        ),
    ] = None,
    batch_sizes: Annotated[
        str | None,
        typer.Option(help="Predict several batch sizes: 1-64, 4-32:4 (every fourth) or 8,16,32."),
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KNOB=A,B",
            help="Predict each of these values. Repeat it for all combinations.",
        ),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(
            help="Order of the rows: given, memory, time or cost (default: cost if there are "
            "prices, else given)."
        ),
    ] = None,
    tokens: Annotated[
        str | None,
        typer.Option(
            help="Add the hours to train on this many tokens: 10B (samples if there is no seq_len)."
        ),
    ] = None,
    train_steps: Annotated[
        int | None, typer.Option(help="Add the hours to train for this many steps.")
    ] = None,
    price: options.Price = None,
    prices: options.Prices = None,
    allocator: options.Allocator = None,
    timeout: options.Timeout = 300.0,
    ray: options.Ray = None,
    out: Annotated[
        str | None,
        typer.Option(help="Folder for a table. Rows that it already has are not predicted again."),
    ] = None,
    as_json: options.Json = False,
    trace: Annotated[
        str | None,
        typer.Option(
            help="Write every allocation into this folder: trace.json and a memory_viz snapshot."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite what --trace or --out already holds.")
    ] = False,
    steps: options.ProgramSteps = None,
    whole: options.Whole = False,
    world_size: options.WorldSize = None,
    gpus_per_node: options.GpusPerNode = None,
    ranks: options.Ranks = None,
    attention_order: options.AttentionOrder = None,
    link: options.Link = None,
    network: options.Network = None,
    no_compile: Annotated[
        bool,
        typer.Option("--no-compile", help="Predict the step without torch.compile, as eager code."),
    ] = False,
    sensitivity: Annotated[
        bool,
        typer.Option(
            "--sensitivity", help="Show how the peak changes with each whole-number knob."
        ),
    ] = False,
    advice: options.Advice = True,
    lists_knobs: Annotated[
        bool, typer.Option("--knobs", help="Only list the knobs of the workload.")
    ] = False,
) -> int:
    """Predict the GPU memory and the time of a training step, with no GPU.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 it does not fit (or none of several fits), or the
    peak is larger than --max.
    """
    if lists_knobs:
        return _list_knobs(workload, knobs, as_json)
    is_of_training = any(one is not None for one in (tokens, train_steps, price, prices))
    is_table = bool(vary) or is_of_training or gpu is not None and (gpu == "all" or "," in gpu)
    is_many = is_table or batch_sizes is not None
    if not is_table:
        _refuse_options_of_tables({"--ray": ray, "--out": out, "--sort": sort})
    _check_together(
        is_table=is_table,
        is_many=is_many,
        of_one=(ranks, attention_order, link, network, no_compile, most),
        of_table=(world_size, gpus_per_node),
        sensitivity=sensitivity,
        trace=trace,
    )
    given, values = workload_and_knobs(workload, knobs)
    common: dict[str, Any] = {
        "gpu": gpu,
        "memory": memory,
        "allocator": allocator,
        "timeout": timeout,
        "knobs": values,
    }
    of_program: dict[str, Any] = {"steps": steps, "whole": whole}
    of_world: dict[str, Any] = {"world_size": world_size, "gpus_per_node": gpus_per_node}
    with progress_display() as display:
        common["progress"] = and_prepare_to_show(display, as_json)
        found: Found
        if sensitivity:
            found = vramcast.sensitivity(given, **of_program, **common)
        elif is_table:
            found = vramcast.predict_many(
                given,
                vary=vary or (),
                batch_sizes=batch_sizes,
                sort=sort,
                ray=ray,
                out=out,
                force=force,
                tokens=tokens,
                train_steps=train_steps,
                price=price or (),
                prices=prices,
                **of_program,
                **of_world,
                **common,
            )
        elif batch_sizes is not None:
            found = vramcast.predict_batch_sizes(given, batch_sizes, **of_program, **common)
        else:
            found = vramcast.predict(
                given,
                trace=trace,
                force=force,
                ranks=ranks,
                attention_order=attention_order,
                link=link,
                network=network,
                no_compile=no_compile,
                max_memory=most,
                **of_program,
                **of_world,
                **common,
            )
    if trace is not None:
        say(
            f"Wrote {trace}/trace.json and snapshot.pickle; "
            "https://pytorch.org/memory_viz opens the latter."
        )
    show(found, as_json)
    is_over = False
    if isinstance(found, vramcast.Prediction):
        is_over = bool(found.over_max_bytes)
        if advice and not as_json and not found.fits and not found.ranks:
            _advise(given, values, found, common)
    return ExitCode.DONE if found.fits and not is_over else ExitCode.NO


def _advise(
    given: str | list[str],
    knobs: dict[str, str],
    found: "vramcast.Prediction",
    options: dict[str, Any],
) -> None:
    from vramcast.cli.brief_advice import show_brief_advice

    where = {name: options[name] for name in ("gpu", "memory", "allocator", "timeout")}
    show_brief_advice(given, knobs, found, found.seconds, where)


def _list_knobs(workload: str | None, knobs: list[str] | None, as_json: bool) -> int:
    from vramcast.cli.zoo_search import show_knobs, show_knobs_of_line

    given, _ = workload_and_knobs(workload, knobs)
    if isinstance(given, list):
        show_knobs_of_line(given, as_json)
    else:
        show_knobs(given, as_json)
    return ExitCode.DONE


def _refuse_options_of_tables(given: dict[str, str | None]) -> None:
    for option, value in given.items():
        if value is not None:
            raise UsageError(
                f"{option} is for several predictions.",
                "Add several GPUs or --vary. --report FILE writes one.",
            )


def _check_together(
    *,
    is_table: bool,
    is_many: bool,
    of_one: tuple[object, ...],
    of_table: tuple[object, ...],
    sensitivity: bool,
    trace: str | None,
) -> None:
    if trace is not None and is_many:
        raise UsageError(
            "--trace is for one run, not for several GPUs, batch sizes or values.",
            "Give one GPU and batch_size=N, or leave it out.",
        )
    if sensitivity and (is_many or trace is not None or any((*of_one, *of_table))):
        raise UsageError(
            "--sensitivity is of one GPU and changes every knob by itself.",
            "Leave out --vary, --batch-sizes, --trace, --no-compile, --max, prices, and what is "
            "for several GPUs.",
        )
    if is_many and any(of_one) or not is_table and is_many and any(of_table):
        raise UsageError(
            "--max, --ranks, --link, --network, --attention-order and --no-compile are for one "
            "prediction, --world-size and --gpus-per-node also for several GPU names and --vary.",
            "Give one GPU name and one batch size with them; a torchrun line works with all.",
        )
