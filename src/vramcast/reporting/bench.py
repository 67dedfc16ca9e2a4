"""Trained models as sections: the results, and how the losses fell."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TypeGuard

from vramcast.records.bench import TrainedRun, TrainingOutcome, by_model, tokens_note
from vramcast.reporting import sections as page

MOST_POINTS = 400  # of a loss curve
MOST_IN_ALL = 20_000  # points of all curves in a chart: a page must stay small
FEWEST_POINTS = 50


def of_runs(runs: Sequence[TrainedRun]) -> list[page.Section]:
    """A section for each protocol and data: losses of different ones must not share a chart."""
    groups: dict[tuple[str, str], list[TrainedRun]] = {}
    for run in runs:
        groups.setdefault((run.trial.protocol_hash, run.trial.data.hash), []).append(run)
    return [_section(group) for group in groups.values()]


def _section(runs: Sequence[TrainedRun]) -> page.Section:
    protocol, data = runs[0].trial.protocol, runs[0].trial.data
    failed = [run for run in runs if run.outcome != TrainingOutcome.OK]
    all_runs = page.count(len(runs), "run")
    verdict = page.good(f"{all_runs} ended")
    if failed:
        verdict = page.bad(f"{len(failed)} of {all_runs} did not end well")
    return page.Section(
        title=f"Trained under {protocol.name} on {data.name}",
        verdict=verdict,
        parts=[*map(_problem, failed), _losses(runs), _results(runs)],
        notes=[tokens_note([run for run in runs if run.finished]) or ""],
        made=f"Measured under protocol {protocol.hash[:12]} with data {data.hash[:24]}.",
    )


def _problem(run: TrainedRun) -> page.Remark:
    diverged = run.outcome == TrainingOutcome.DIVERGED
    how = f"diverged at step {len(run.losses)}" if diverged else run.outcome
    below = (run.error or "").strip().splitlines()
    return page.bad(f"{run.trial.label}, seed {run.trial.seed}: {how}", below)


def _losses(all_runs: Sequence[TrainedRun]) -> page.Chart:
    runs = [run for run in all_runs if any(map(_is_finite, run.losses))]
    most = max(FEWEST_POINTS, min(MOST_POINTS, MOST_IN_ALL // max(1, len(runs))))
    models = list(dict.fromkeys(run.trial.label for run in runs))
    # The first steps are far above the rest, which a plain axis would flatten.
    positive = all(loss > 0 for run in runs for loss in run.losses if _is_finite(loss))
    y = page.Axis("loss", log=positive)

    def layer(run: TrainedRun, places: Sequence[float]) -> page.Layer:
        seed = f", seed {run.trial.seed}" if len(runs) > len(models) else ""
        points = [(x, y) for x, y in zip(places, run.losses, strict=False) if _is_finite(y)]
        colour = page.SERIES_COLOURS[models.index(run.trial.label) % len(page.SERIES_COLOURS)]
        return page.Layer("line", f"{run.trial.label}{seed}", _means(points, most), colour)

    steps = [(run, range(1, len(run.losses) + 1)) for run in runs]
    tokens = [(run, [run.trial.tokens_per_step * step for step in each]) for run, each in steps]
    time = page.Axis("time trained", "seconds")
    by_step = [layer(run, each) for run, each in steps]
    by_tokens = [layer(run, each) for run, each in tokens]
    by_time = [layer(run, list(accumulate(run.step_seconds))) for run in runs]
    longest = max((len(run.losses) for run in runs), default=0)
    mean = (
        f" Every point is the mean of up to {-(-longest // most)} steps." if longest > most else ""
    )
    return page.chart(
        "Training loss",
        f"Measured, {page.count(len(runs), 'run')}.{mean}",
        page.View(page.Axis("step"), y, by_step, "by step", in_terminal=True),
        page.View(page.Axis("tokens"), y, by_tokens, "by tokens"),
        page.View(time, y, by_time, "by time", in_terminal=True),
        detail=False,
    )


def _is_finite(loss: float | None) -> TypeGuard[float]:
    return loss is not None and math.isfinite(loss)


def _means(points: Sequence[tuple[float, float]], most: int) -> list[list[float]]:
    """Means of stretches, which show where noisy losses go."""
    length = max(1, -(-len(points) // most))
    parts = [points[i : i + length] for i in range(0, len(points), length)]
    return [[part[-1][0], math.fsum(y for _, y in part) / len(part)] for part in parts]


def _results(runs: Sequence[TrainedRun]) -> page.Table:
    """Columns with the same value for all runs are said below: a terminal has 80 characters."""
    protocol = runs[0].trial.protocol
    cells: dict[str, Callable[[TrainedRun], str]] = {
        "model": lambda run: run.trial.label,
        "seed": lambda run: str(run.trial.seed),
        protocol.metric: lambda run: _loss(run.last_loss),
        "params": lambda run: page.amount(run.parameters),
        "batch": lambda run: str(run.trial.batch_size),
        "steps": lambda run: str(len(run.losses)),
        "tokens": lambda run: page.amount(run.tokens),
        "tok/s": lambda run: page.number(run.tokens_per_second, ",.0f"),
        "memory": lambda run: page.size(run.peak_memory_bytes),
        "time": lambda run: page.duration(run.training_seconds),
        "waited": lambda run: page.share(run.data_wait_fraction),
    }
    same = [name for name in ("seed", "batch", "tokens") if len(set(map(cells[name], runs))) == 1]
    shown = [name for name in cells if name not in same]
    kinds = sorted({run.memory_kind for run in runs if run.memory_kind})
    peak = page.given(" ({})", "; ".join(kinds))
    best_first = sorted(runs, key=lambda run: (not math.isfinite(run.last_loss), run.last_loss))
    rows = []
    for group in by_model(best_first):
        rows += [[cells[name](run) for name in shown] for run in group]
        ended = [run.last_loss for run in group if run.outcome == TrainingOutcome.OK]
        if len(ended) > 1:
            mean, spread = statistics.fmean(ended), statistics.stdev(ended)
            over = {
                "model": f"  over {len(ended)} seeds",
                protocol.metric: f"{mean:.4f} ± {spread:.4f}",
            }
            rows.append([over.get(name, "") for name in shown])
    all_same = ", ".join(f"{name} {cells[name](runs[0])}" for name in same)
    return page.Table(
        title="Results, best first",
        columns=shown,
        left=("model",),
        rows=rows,
        origin=page.MEASURED,
        samples=page.count(len(runs), "run"),
        notes=[
            f"{protocol.metric}: the mean loss of the last {protocol.last_steps} steps; "
            f"tok/s: of the median step; memory: the peak{peak}; "
            "waited: the share of the time in which a step waited for data",
            *([f"the same for all: {all_same}"] if all_same else []),
        ],
    )


def _loss(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "none"
