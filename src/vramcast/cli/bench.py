"""`vramcast bench`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import vramcast
from vramcast.cli import options
from vramcast.cli.command import ExitCode, command, folder_for, resumable, say
from vramcast.cli.progress import progress_display


@command(
    "bench",
    question="How well do models learn under one fixed protocol?",
    examples="vramcast bench e1-50m mamba2-50m --seeds 1,2,3 --out runs/first",
    then="vramcast compare runs/first says which is better. vramcast report runs/first draws the "
    "losses.",
)
def bench(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Names of the zoo, or file.py:function; each may be followed by knobs as "
            "key=value."
        ),
    ],
    protocol: Annotated[
        str, typer.Option(help="standard, timebox, or a TOML file with your own protocol.")
    ] = "standard",
    data: Annotated[
        str | None, typer.Option(help="The file to train on (default: Python's own sources).")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Number of steps (default: the protocol's).")
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            help="Train every model with each of these seeds: 1,2,3 (default: the protocol's)."
        ),
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(
            help="One model at several sizes: dim=512,768,1024. Its rank or depth is adapted."
        ),
    ] = None,
    params: Annotated[
        str | None,
        typer.Option(
            help="With --sweep: the number of parameters of every size, such as 50M (default: "
            "the model's)."
        ),
    ] = None,
    respect_documents: Annotated[
        bool,
        typer.Option(
            "--respect-documents", help="No sample crosses the end of a document (byte 0x1e)."
        ),
    ] = False,
    device: options.Device = "cuda",
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Train on a Ray cluster, one GPU per trial: host:port, or auto."
        ),
    ] = None,
    checkpoint_seconds: Annotated[
        float, typer.Option(help="Seconds between two checkpoints.")
    ] = 60.0,
    tensorboard: Annotated[
        bool,
        typer.Option(
            "--tensorboard",
            help="Also write the losses for TensorBoard, into the folders of the trials.",
        ),
    ] = False,
    out: Annotated[
        str | None,
        typer.Option(
            help="Folder of the run. With the same folder, finished trials are kept and the "
            "others continue."
        ),
    ] = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> int:
    """Train models under one fixed protocol, each in a process of its own.

    Exit codes: 0 done, 1 a trial failed, 2 wrong usage, 3 a model diverged.
    """
    folder = folder_for("bench", models[0], out)
    with resumable(folder), progress_display() as progress:
        runs = vramcast.bench(
            models,
            out=folder,
            protocol=protocol,
            data=data,
            steps=steps,
            seeds=seeds,
            sweep=sweep,
            params=params,
            respect_documents=respect_documents,
            device=device,
            ray=ray,
            checkpoint_seconds=checkpoint_seconds,
            tensorboard=tensorboard,
            force=force,
            progress=progress,
        )
    _show(runs, folder, as_json)
    if not all(run.finished for run in runs):
        return ExitCode.FAILED
    return ExitCode.DONE if all(run.outcome == "ok" for run in runs) else ExitCode.NO


def _show(runs: "list[vramcast.TrainedRun]", folder: Path, as_json: bool) -> None:
    if as_json:
        print(json.dumps(_as_object(runs, folder)))
        return
    from vramcast.reporting.showing import show

    show(runs)
    is_several = len({run.trial.label for run in runs if run.finished}) > 1
    then = f"; vramcast compare {folder} says which is better." if is_several else "."
    say(f"Written to {folder}{then}")


def _as_object(runs: "list[vramcast.TrainedRun]", folder: Path) -> dict[str, object]:
    from vramcast.benching.compare import summary_of
    from vramcast.records.bench import by_model, tokens_note

    trial = runs[0].trial
    note = tokens_note([run for run in runs if run.finished])
    good = [run for run in runs if run.outcome == "ok"]
    return {
        "folder": str(folder),
        "protocol": trial.protocol.name,
        "protocol_hash": trial.protocol.hash,
        "data": vars(trial.data),
        "runs": [run.summary() for run in runs],
        "models": [asdict(summary_of(group)) for group in by_model(good)],
        "notes": [note] if note else [],
    }
