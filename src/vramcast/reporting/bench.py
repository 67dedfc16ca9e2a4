"""Trained models in the terminal: what came of each, and which is better."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from vramcast.benching.compare import by_model, summary_of
from vramcast.records.bench import TrainedRun, tokens_note
from vramcast.records.comparison import Comparison, Difference, ModelResult
from vramcast.reporting.curves import WIDTH, curves
from vramcast.reporting.tables import Heading, fitted
from vramcast.text import printable
from vramcast.units import format_bytes, format_count, format_seconds


def show_runs(runs: Sequence[TrainedRun], console: Console) -> None:
    protocol, data = runs[0].trial.protocol, runs[0].trial.data
    columns = _columns(runs)
    rows = []
    for group in by_model(runs):
        rows += [[run.trial.label, *(cell(run) for cell in columns.values())] for run in group]
        ended = [run for run in group if run.outcome == "ok"]
        if len(ended) > 1:
            rows.append(_over_seeds(ended, columns))
    console.print(
        _table(f"Trained under {protocol.name} on {data.name}", list(columns), rows, console.width)
    )
    _show_curves([run for run in runs if run.losses], console)
    for run in runs:
        if not run.finished:
            console.print(
                Text(
                    printable(
                        f"✗ {run.trial.label}, seed {run.trial.seed}: {run.outcome}\n{run.error or ''}".rstrip()
                    ),
                    style="red",
                )
            )
        elif run.outcome == "diverged":
            console.print(
                Text(
                    printable(
                        f"✗ {run.trial.label}, seed {run.trial.seed}: diverged at step {len(run.losses)}"
                    ),
                    style="red",
                )
            )
    note = tokens_note([run for run in runs if run.finished])
    if note:
        console.print(Text(f"note: {note}", style="yellow"))
    kinds = sorted({run.memory_kind for run in runs if run.memory_kind})
    console.print(
        Text(
            f"memory: the peak ({'; '.join(kinds)}); waited: the share of the time in which a step waited for data",
            style="bright_black",
        )
    )
    same = [f"seed {runs[0].trial.seed}"] if "seed" not in columns else []
    same += [f"{format_count(runs[0].tokens)} tokens each"] if "tokens" not in columns else []
    console.print(
        Text(
            ", ".join([*same, f"protocol {protocol.hash[:12]}, data {data.hash[:24]}, measured"]),
            style="bright_black",
        )
    )


def _columns(runs: Sequence[TrainedRun]) -> dict[str, Callable[[TrainedRun], str]]:
    """What is the same for all is said below the table: a terminal has 80 columns."""
    columns: dict[str, Callable[[TrainedRun], str]] = {
        "seed": lambda run: str(run.trial.seed),
        runs[0].trial.protocol.metric: lambda run: _loss(run.last_loss),
        "params": lambda run: _count(run.parameters),
        "steps": lambda run: str(len(run.losses)),
        "tokens": lambda run: format_count(run.tokens),
        "tok/s": lambda run: _rate(run.tokens_per_second),
        "memory": lambda run: _size(run.peak_memory_bytes),
        "time": lambda run: format_seconds(run.training_seconds),
        "waited": lambda run: f"{run.data_wait_fraction:.1%}",
    }
    constant = [
        name for name in ("seed", "tokens") if len({columns[name](run) for run in runs}) == 1
    ]
    return {name: cell for name, cell in columns.items() if name not in constant}


def _over_seeds(runs: Sequence[TrainedRun], columns: Collection[str]) -> list[str]:
    """A row under those of one model."""
    found = summary_of(runs)
    known = {
        runs[0].trial.protocol.metric: f"{_loss(found.mean_last_loss)} ± {found.spread or 0.0:.4f}"
    }
    return [f"  over {len(runs)} seeds", *(known.get(name, "") for name in columns)]


def _show_curves(runs: Sequence[TrainedRun], console: Console) -> None:
    """How the losses fell, on one scale."""
    if not runs:
        return
    names = [
        printable(
            f"{run.trial.label}, seed {run.trial.seed}"
            if len(runs) > len(by_model(runs))
            else run.trial.label
        )
        for run in runs
    ]
    width = max(8, min(WIDTH, (console.width - max(map(len, names))) // 2 - 2))
    by_step, scale = curves(runs, "step", width)
    by_time, _ = curves(runs, "time", width)
    table = Table(box=None, pad_edge=False, title=Text(f"Loss, {scale}"), title_justify="left")
    table.add_column("model", overflow="fold")
    table.add_column(f"by step, to {max(len(run.losses) for run in runs)}")
    table.add_column(f"by time, to {format_seconds(max(run.training_seconds for run in runs))}")
    for name, *lines in zip(names, by_step, by_time, strict=True):
        table.add_row(Text(name), *lines)
    console.print(table)


def show_comparison(found: Comparison, console: Console) -> None:
    names = ["seeds", found.metric, "±", "params", "tokens", "tok/s", "memory", "time"]
    rows = [_model_cells(model) for model in found.models]
    tokens = names.index("tokens")
    if len({row[tokens] for row in rows}) == 1:  # a terminal has 80 columns
        for cells in (names, *rows):
            del cells[tokens]
    named = [[model.model, *row] for model, row in zip(found.models, rows, strict=True)]
    console.print(
        _table(f"{found.metric} under {found.protocol}, best first", names, named, console.width)
    )
    best = found.models[0].model
    for difference in found.differences:
        console.print(
            Text(
                printable(_sentence(best, difference)),
                style="green" if difference.distinguishable else "yellow",
            )
        )
    for note in found.notes:
        console.print(Text(printable(f"note: {note}"), style="yellow"))
    console.print(
        Text("±: the spread over seeds, or of one seed the noise of its mean", style="bright_black")
    )


def _model_cells(model: ModelResult) -> list[str]:
    noise = model.spread if model.spread is not None else model.noise
    return [
        str(len(model.seeds)),
        _loss(model.mean_last_loss),
        "" if noise is None else f"{noise:.4f}",
        _count(model.parameters),
        format_count(model.tokens),
        _rate(model.tokens_per_second),
        _size(model.peak_memory_bytes),
        format_seconds(model.training_seconds),
    ]


def _sentence(best: str, d: Difference) -> str:
    numbers = f"by {d.difference:.4f} (95 %: {d.interval[0]:.4f} to {d.interval[1]:.4f}, p = {d.p_value:.2g}; {d.how})"
    if d.distinguishable:
        return f"✓ {best} is better than {d.model} {numbers}"
    return f"≈ {best} and {d.model} are not distinguishable: they differ {numbers}"


def _table(
    title: str, names: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> RenderableType:
    headings = [Heading("model"), *(Heading(name, left=False) for name in names)]
    return fitted(
        headings, [[printable(cell) for cell in row] for row in rows], width, printable(title)
    )


def _loss(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "none"


def _count(value: int | None) -> str:
    return "" if value is None else format_count(value)


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _size(value: int | None) -> str:
    return "" if value is None else format_bytes(value)
