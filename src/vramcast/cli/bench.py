"""`vramcast bench`."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vramcast.benching.bench import bench, split_models
from vramcast.benching.compare import by_model, summary_of
from vramcast.benching.protocol import find_protocol
from vramcast.benching.runs import Progress
from vramcast.benching.sweep import parse_sweep
from vramcast.cli.probe import default_folder
from vramcast.cli.zoo import parse_count
from vramcast.errors import UsageError
from vramcast.records.bench import TrainedRun, Trial, tokens_note
from vramcast.units import format_bytes, format_seconds

DIVERGED, FAILED = 3, 1


def run(
    models: list[str],
    seeds: str | None,
    out: str | None,
    options: dict[str, Any],
    as_json: bool,
    sweep: str | None = None,
    params: str | None = None,
) -> int:
    if out == "":
        raise UsageError(
            "--out is '', which names no folder.",
            "Give a folder, or leave --out out for a new one under runs/.",
        )
    folder = Path(out) if out else default_folder("bench", split_models(models)[0][0])
    if params is not None and sweep is None:
        raise UsageError(
            "--params is the budget of a sweep.",
            "Add --sweep, for example --sweep dim=512,768,1024.",
        )
    options["sweep"] = (
        None
        if sweep is None
        else parse_sweep(sweep, None if params is None else parse_count(params))
    )
    try:
        with _display(find_protocol(options["protocol"]).metric) as progress:
            runs = bench(models, out=folder, seeds=_numbers(seeds), progress=progress, **options)
    except KeyboardInterrupt:
        if folder.exists():
            print(
                f"What has ended is kept: give --out {folder} to the same command to go on from there.",
                file=sys.stderr,
            )
        raise
    _show(runs, folder, as_json)
    if any(not run.finished for run in runs):
        return FAILED
    return DIVERGED if any(run.outcome == "diverged" for run in runs) else 0


def _numbers(seeds: str | None) -> list[int] | None:
    if seeds is None:
        return None
    try:
        return [int(number) for number in seeds.split(",")]
    except ValueError:
        raise UsageError(
            f"--seeds {seeds!r} is not a list of whole numbers.", "For example --seeds 1,2,3."
        ) from None


def _show(runs: list[TrainedRun], folder: Path, as_json: bool) -> None:
    if as_json:
        protocol = runs[0].trial.protocol
        heading = {
            "folder": str(folder),
            "protocol": protocol.name,
            "protocol_hash": protocol.hash,
            "data": vars(runs[0].trial.data),
        }
        notes = [note for note in [tokens_note([run for run in runs if run.finished])] if note]
        models = [
            asdict(summary_of(group))
            for group in by_model([run for run in runs if run.outcome == "ok"])
        ]
        print(
            json.dumps(
                {
                    **heading,
                    "runs": [run.summary() for run in runs],
                    "models": models,
                    "notes": notes,
                }
            )
        )
        return
    from rich.console import Console

    from vramcast.reporting.bench import show_runs

    show_runs(runs, Console())
    num_models = len(by_model([run for run in runs if run.finished]))
    print(
        f"Written to {folder}{f'; vramcast compare {folder} says which is better.' if num_models > 1 else '.'}",
        file=sys.stderr,
    )


@contextlib.contextmanager
def _display(metric: str) -> Iterator[Progress]:
    """A line a trial, on a terminal."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    tasks: dict[str, Any] = {}
    with Bars(
        TextColumn("{task.description}"),
        BarColumn(20),
        TextColumn("{task.fields[news]}"),
        console=Console(stderr=True),
    ) as bars:

        def show(trial: Trial, news: dict[str, Any]) -> None:
            name = f"{trial.label} seed {trial.seed}"
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=1.0, news="")
            bars.update(
                tasks[name], completed=_fraction(trial, news), news=progress_text(metric, news)
            )

        yield show


def _fraction(trial: Trial, news: dict[str, Any]) -> float:
    if trial.protocol.steps is not None:
        return float(news["step"] / trial.protocol.steps)
    return 1 - float(news["seconds_left"]) / (trial.protocol.seconds or 1.0)


def progress_text(metric: str, news: dict[str, Any]) -> str:
    losses = [("loss", news["loss"]), (metric, news["last_loss"])]
    parts = [
        f"step {news['step']}",
        *(f"{name} {'nan' if value is None else format(value, '.4f')}" for name, value in losses),
    ]
    parts += [
        f"{news['tokens_per_second']:,.0f} tok/s",
        format_bytes(news["memory_bytes"]),
        f"{format_seconds(news['seconds_left'])} left",
    ]
    return "  ".join(parts)
