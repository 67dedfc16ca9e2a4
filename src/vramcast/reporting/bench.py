"""Trained models as sections: the results, how the losses fell, and which model is better."""

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from vramcast.records.bench import (
    Comparison,
    Difference,
    TrainedRun,
    TrainingOutcome,
    by_model,
    tokens_note,
)
from vramcast.reporting import sections as page

MOST_POINTS = 400  # the most points of a loss curve
MOST_IN_ALL = 20_000  # points of all curves in a chart: a page must stay small
FEWEST_POINTS = 50


def of_runs(runs: Sequence[TrainedRun]) -> list[page.Section]:
    """A section for each protocol and data set: losses under different ones must not share a
    chart."""
    groups: dict[tuple[str, str], list[TrainedRun]] = {}
    for run in runs:
        groups.setdefault((run.trial.protocol_hash, run.trial.data.hash), []).append(run)
    return [_section(group) for group in groups.values()]


def _section(runs: Sequence[TrainedRun]) -> page.Section:
    protocol, data = runs[0].trial.protocol, runs[0].trial.data
    failed = [run for run in runs if run.outcome != TrainingOutcome.OK]
    num_runs = page.count(len(runs), "run")
    bad = page.bad(f"{len(failed)} of {num_runs} failed or diverged")
    return page.Section(
        title=f"Trained under {protocol.name} on {data.name}",
        verdict=bad if failed else page.good(f"{num_runs} ended"),
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
    runs = [run for run in all_runs if any(loss is not None for loss in run.losses)]
    most = max(FEWEST_POINTS, min(MOST_POINTS, MOST_IN_ALL // max(1, len(runs))))
    models = dict.fromkeys(run.trial.label for run in runs)
    colours = dict(zip(models, itertools.cycle(page.SERIES_COLOURS), strict=False))
    # The first losses are far above the rest, which a linear axis would flatten.
    positive = all(loss > 0 for run in runs for loss in run.losses if loss is not None)

    def view(
        name: str, x: page.Axis, places: Callable[[TrainedRun], Iterable[float]], **others: Any
    ) -> page.View:
        layers = []
        for run in runs:
            label, seed = run.trial.label, run.trial.seed
            name_of = f"{label}, seed {seed}" if len(runs) > len(models) else label
            pairs = zip(places(run), run.losses, strict=False)
            means = _means([(place, loss) for place, loss in pairs if loss is not None], most)
            layers.append(page.Layer("line", name_of, means, colours[label]))
        return page.View(x, page.Axis("loss", log=positive), layers, name, **others)

    def tokens(run: TrainedRun) -> Iterable[float]:
        return itertools.count(run.trial.tokens_per_step, run.trial.tokens_per_step)

    def seconds(run: TrainedRun) -> Iterable[float]:
        return itertools.accumulate(run.step_seconds)

    each = max((-(-len(run.losses) // most) for run in runs), default=0)
    mean = f" Every point is the mean of up to {each} steps." if each > 1 else ""
    return page.chart(
        "Training loss",
        f"Measured, {page.count(len(runs), 'run')}.{mean}",
        view("by step", page.Axis("step"), lambda _: itertools.count(1), in_terminal=True),
        view("by tokens", page.Axis("tokens"), tokens),
        view("by time", page.Axis("time trained", "seconds"), seconds, in_terminal=True),
        detail=False,
    )


def _means(points: Sequence[tuple[float, float]], most: int) -> list[list[float]]:
    """Means of neighbouring points, which show the trend of noisy losses."""
    length = max(1, -(-len(points) // most))
    parts = [points[i : i + length] for i in range(0, len(points), length)]
    return [[part[-1][0], math.fsum(y for _, y in part) / len(part)] for part in parts]


def _results(runs: Sequence[TrainedRun]) -> page.Table:
    """The table of results. Values that are the same for all runs are noted below it, because a
    terminal has only 80 characters."""
    protocol = runs[0].trial.protocol
    cells: dict[str, page.Cell] = {
        "model": "trial.label",
        "seed": "trial.seed",
        protocol.metric: lambda run: (
            f"{run.last_loss:.4f}" if math.isfinite(run.last_loss) else "none"
        ),
        "params": "parameters",
        "batch": "trial.batch_size",
        "steps": lambda run: str(len(run.losses)),
        "tokens": "tokens",
        "tok/s": "tokens_per_second:,.0f",
        "memory": "peak_memory_bytes",
        "time": "training_seconds",
        "waited": "data_wait_fraction",
    }
    same = {
        name: values.pop()
        for name in ("seed", "batch", "tokens")
        if len(values := {page.written(cells[name], run) for run in runs}) == 1
    }
    shown = [name for name in cells if name not in same]
    peak = page.given(" ({})", "; ".join(sorted({run.memory_kind for run in runs} - {""})))
    best_first = sorted(runs, key=lambda run: (not math.isfinite(run.last_loss), run.last_loss))
    rows = []
    for group in by_model(best_first):
        rows += [[page.written(cells[name], run) for name in shown] for run in group]
        ended = [run.last_loss for run in group if run.outcome == TrainingOutcome.OK]
        if len(ended) > 1:
            over = {
                "model": f"  over {len(ended)} seeds",
                protocol.metric: f"{statistics.fmean(ended):.4f} ± {statistics.stdev(ended):.4f}",
            }
            rows.append([over.get(name, "") for name in shown])
    all_same = ", ".join(f"{name} {value}" for name, value in same.items())
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


def of_comparison(found: Comparison) -> list[page.Section]:
    best = found.models[0].model
    first, *others = (_compared(best, difference) for difference in found.differences)
    return [
        page.Section(
            kind="Which is better",
            title=f"{found.metric} under {found.protocol}, best first",
            verdict=first,
            parts=[*others, _gaps(found.differences, best), _models(found)],
            notes=found.notes,
            made=f"Measured on {found.data}.",
        )
    ]


def _compared(best: str, d: Difference) -> page.Remark:
    interval = "{:.4f} to {:.4f}".format(*d.interval)
    numbers = f"by {d.difference:.4f} (95 %: {interval}, p = {d.p_value:.2g}; {d.how})"
    if d.distinguishable:
        return page.good(f"{best} is better than {d.model} {numbers}")
    return page.unsure(f"≈ {best} and {d.model} are not distinguishable: they differ {numbers}")


def _gaps(differences: Sequence[Difference], best: str) -> page.Chart:
    bars = [
        page.Bar(
            "distinguishable" if d.distinguishable else "not distinguishable",
            d.model,
            *d.interval,
            [f"{d.difference:+.4f}", f"p = {d.p_value:.2g}", d.how],
        )
        for d in differences
    ]
    colours = {"distinguishable": "good", "not distinguishable": "unsure"}
    view = page.bar_view(page.Axis("loss above the best, 95 % interval"), bars, colours)
    best_line = page.Layer("down", f"as good as {best}", [[0]], "capacity")
    return page.chart(
        "Distance to the best",
        "Measured. Where an interval contains zero, there may be no difference.",
        replace(view, layers=[*view.layers, best_line]),
    )


def _models(found: Comparison) -> page.Table:
    tokens = {model.tokens for model in found.models}
    same = f"; {page.amount(*tokens)} tokens each" if len(tokens) == 1 else ""
    return page.table_of(
        found.models,
        {
            "model": "model",
            "seeds": lambda m: str(len(m.seeds)),
            found.metric: "mean_last_loss:.4f",
            "±": lambda m: page.number(m.noise if m.spread is None else m.spread, ".4f"),
            "params": "parameters",
            "tokens": lambda m: "" if same else page.amount(m.tokens),
            "tok/s": "tokens_per_second:,.0f",
            "memory": "peak_memory_bytes",
            "time": "training_seconds",
        },
        left=("model",),
        title="Models, best first",
        notes=[f"±: the spread over seeds; with one seed, the noise of its mean{same}"],
        origin=page.MEASURED,
        samples=page.count(sum(len(model.seeds) for model in found.models), "run"),
    )
