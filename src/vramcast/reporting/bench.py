"""Trained models as sections: the results, and how the losses fell."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TypeGuard

from vramcast.records.bench import TrainedRun, tokens_note
from vramcast.reporting.sections import (
    MEASURED,
    SERIES_COLOURS,
    Axis,
    Chart,
    Column,
    Layer,
    Remark,
    Section,
    Table,
    Tone,
    View,
    count,
    duration,
    number,
    size,
)
from vramcast.units import format_count

MOST_POINTS = 400  # of a loss curve
MOST_IN_ALL = 20_000  # points of all curves in a chart: a page must stay small
FEWEST_POINTS = 50


def of_runs(runs: Sequence[TrainedRun]) -> list[Section]:
    """A section for each protocol and data: losses of different ones must not share a chart."""
    groups: dict[tuple[str, str], list[TrainedRun]] = {}
    for run in runs:
        groups.setdefault((run.trial.protocol_hash, run.trial.data.hash), []).append(run)
    return [_section(group) for group in groups.values()]


def _section(runs: Sequence[TrainedRun]) -> Section:
    protocol, data = runs[0].trial.protocol, runs[0].trial.data
    failed = [run for run in runs if run.outcome != "ok"]
    verdict = f"✓ {count(len(runs), 'run')} ended"
    if failed:
        verdict = f"✗ {len(failed)} of {count(len(runs), 'run')} did not end well"
    note = tokens_note([run for run in runs if run.finished])
    return Section(
        title=f"Trained under {protocol.name} on {data.name}",
        verdict=verdict,
        tone=Tone.BAD if failed else Tone.GOOD,
        remarks=[_problem(run) for run in failed],
        figures=_losses(runs),
        tables=[_results(runs)],
        notes=[note] if note else [],
        made=f"Measured under protocol {protocol.hash[:12]} with data {data.hash[:24]}.",
    )


def _problem(run: TrainedRun) -> Remark:
    how = f"diverged at step {len(run.losses)}" if run.outcome == "diverged" else run.outcome
    text = f"✗ {run.trial.label}, seed {run.trial.seed}: {how}"
    below = (run.error or "").strip().splitlines()
    return Remark(text=text, tone=Tone.BAD, below=below)


def _losses(runs: Sequence[TrainedRun]) -> list[Chart]:
    runs = [run for run in runs if any(map(_is_finite, run.losses))]
    if not runs:
        return []
    most = max(FEWEST_POINTS, min(MOST_POINTS, MOST_IN_ALL // len(runs)))
    # The first steps are far above the rest, which a plain axis would flatten.
    positive = all(loss > 0 for run in runs for loss in run.losses if _is_finite(loss))
    y = Axis(label="loss", unit="number", log=positive)
    step, tokens = Axis(label="step", unit="number"), Axis(label="tokens", unit="number")
    time = Axis(label="time trained", unit="seconds")

    def layers(places: Callable[[TrainedRun], list[float]]) -> list[Layer]:
        return [_layer(run, runs, places(run), most) for run in runs]

    views = [
        View(name="by step", x=step, y=y, in_terminal=True, layers=layers(_steps)),
        View(name="by tokens", x=tokens, y=y, layers=layers(_tokens)),
        View(name="by time", x=time, y=y, in_terminal=True, layers=layers(_seconds)),
    ]
    longest = max(len(run.losses) for run in runs)
    mean = (
        f" Every point is the mean of up to {-(-longest // most)} steps." if longest > most else ""
    )
    caption = f"Measured, {count(len(runs), 'run')}.{mean}"
    return [Chart(title="Training loss", caption=caption, views=views)]


def _is_finite(loss: float | None) -> TypeGuard[float]:
    return loss is not None and math.isfinite(loss)


def _layer(
    run: TrainedRun, runs: Sequence[TrainedRun], places: Sequence[float], most: int
) -> Layer:
    models = list(dict.fromkeys(run.trial.label for run in runs))
    seed = f", seed {run.trial.seed}" if len(runs) > len(models) else ""
    points = [[x, y] for x, y in zip(places, run.losses, strict=False) if _is_finite(y)]
    return Layer(
        kind="line",
        name=f"{run.trial.label}{seed}",
        points=_means(points, most),
        colour=SERIES_COLOURS[models.index(run.trial.label) % len(SERIES_COLOURS)],
    )


def _means(points: Sequence[Sequence[float]], most: int) -> list[list[float]]:
    """Means of stretches, which show where noisy losses go."""
    length = max(1, -(-len(points) // most))
    parts = [points[i : i + length] for i in range(0, len(points), length)]
    return [[part[-1][0], math.fsum(y for _, y in part) / len(part)] for part in parts]


def _steps(run: TrainedRun) -> list[float]:
    return [float(step) for step in range(1, len(run.losses) + 1)]


def _tokens(run: TrainedRun) -> list[float]:
    return [run.trial.tokens_per_step * step for step in _steps(run)]


def _seconds(run: TrainedRun) -> list[float]:
    return list(accumulate(run.step_seconds))


def _results(runs: Sequence[TrainedRun]) -> Table:
    """Columns with the same value for all runs are said below: a terminal has 80 characters."""
    protocol = runs[0].trial.protocol
    cells: dict[str, Callable[[TrainedRun], str]] = {
        "model": lambda run: run.trial.label,
        "seed": lambda run: str(run.trial.seed),
        protocol.metric: lambda run: _loss(run.last_loss),
        "params": lambda run: "" if run.parameters is None else format_count(run.parameters),
        "batch": lambda run: str(run.trial.batch_size),
        "steps": lambda run: str(len(run.losses)),
        "tokens": lambda run: format_count(run.tokens),
        "tok/s": lambda run: number(run.tokens_per_second, ",.0f"),
        "memory": lambda run: size(run.peak_memory_bytes),
        "time": lambda run: duration(run.training_seconds),
        "waited": lambda run: f"{100 * run.data_wait_fraction:.1f} %",
    }
    same = [name for name in ("seed", "batch", "tokens") if len(set(map(cells[name], runs))) == 1]
    shown = [name for name in cells if name not in same]
    kinds = sorted({run.memory_kind for run in runs if run.memory_kind})
    peak = f" ({'; '.join(kinds)})" if kinds else ""
    rows = []
    for group in _by_model(runs):
        rows += [[cells[name](run) for name in shown] for run in group]
        losses = [run.last_loss for run in group if run.outcome == "ok"]
        ended = [loss for loss in losses if math.isfinite(loss)]
        if len(ended) > 1:
            mean, spread = statistics.fmean(ended), statistics.stdev(ended)
            over = {
                "model": f"  over {len(ended)} seeds",
                protocol.metric: f"{mean:.4f} ± {spread:.4f}",
            }
            rows.append([over.get(name, "") for name in shown])
    all_same = ", ".join(f"{name} {cells[name](runs[0])}" for name in same)
    return Table(
        title="Results, best first",
        columns=[Column(name, left=name == "model") for name in shown],
        rows=rows,
        origin=MEASURED,
        samples=count(len(runs), "run"),
        notes=[
            f"{protocol.metric}: the mean loss of the last {protocol.last_steps} steps; "
            f"tok/s: of the median step; memory: the peak{peak}; "
            "waited: the share of the time in which a step waited for data",
            *([f"the same for all: {all_same}"] if all_same else []),
        ],
    )


def _by_model(runs: Sequence[TrainedRun]) -> list[list[TrainedRun]]:
    """Best first, runs and models."""
    groups: dict[str, list[TrainedRun]] = {}
    for run in sorted(runs, key=lambda run: (not math.isfinite(run.last_loss), run.last_loss)):
        groups.setdefault(run.trial.label, []).append(run)
    return list(groups.values())


def _loss(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "none"
