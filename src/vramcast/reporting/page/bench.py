"""Trained models, and which of them is better, as sections."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from vramcast.records.bench import TrainedRun, tokens_note
from vramcast.records.comparison import Comparison, Difference
from vramcast.reporting import verdicts
from vramcast.reporting.page.sections import (
    MEASURED,
    SERIES_COLOURS,
    Axis,
    Chart,
    Column,
    Layer,
    Section,
    Table,
    View,
    count,
    duration,
    number,
    size,
    table_of,
)

MOST_POINTS = 400  # of a loss curve: of a longer one, means of stretches
MOST_IN_ALL = 20_000  # of all curves in a chart: a page must stay small
FEWEST_POINTS = 50


def of_runs(runs: Sequence[TrainedRun]) -> list[Section]:
    """One section for each protocol and data: losses of different ones are not comparable, and must not share a chart."""
    groups: dict[tuple[str, str], list[TrainedRun]] = {}
    for run in runs:
        groups.setdefault((run.trial.protocol_hash, run.trial.data.hash), []).append(run)
    return [_section(group) for group in groups.values()]


def _section(runs: Sequence[TrainedRun]) -> Section:
    protocol, data = runs[0].trial.protocol, runs[0].trial.data
    failed = [run for run in runs if run.outcome != "ok"]
    sentence = (
        f"✓ {count(len(runs), 'run')} ended"
        if not failed
        else f"✗ {len(failed)} of {count(len(runs), 'run')} did not end well"
    )
    problems = [
        f"{run.trial.label}, seed {run.trial.seed}: {run.outcome}. {run.error or ''}".strip()
        for run in failed
    ]
    charts = [_losses(runs)] if any(_points(run.losses) for run in runs) else []
    return Section(
        title=f"Trained under {protocol.name} on {data.name}",
        verdict=sentence,
        tone=verdicts.BAD if failed else verdicts.GOOD,
        text=[*problems, f"Protocol {protocol.hash[:12]}, data {data.hash[:24]}."],
        figures=charts,
        tables=[_results(runs)],
    )


def _losses(runs: Sequence[TrainedRun]) -> Chart:
    models = list(dict.fromkeys(run.trial.label for run in runs))
    seeds = len(runs) > len(models)
    most = max(FEWEST_POINTS, min(MOST_POINTS, MOST_IN_ALL // len(runs)))
    # The first steps are far above the rest; on a plain axis they would be all there is to see.
    loss = Axis(
        label="loss",
        unit="number",
        log=min(min(_points(run.losses), default=1.0) for run in runs) > 0,
    )
    views = []
    for name, label, unit in (
        ("by step", "step", "number"),
        ("by tokens", "tokens", "number"),
        ("by time", "time trained", "seconds"),
    ):
        layers = [
            Layer(
                kind="line",
                name=f"{run.trial.label}, seed {run.trial.seed}" if seeds else run.trial.label,
                points=thinned(list(zip(_places(run, label), run.losses, strict=False)), most),
                colour=SERIES_COLOURS[models.index(run.trial.label) % len(SERIES_COLOURS)],
            )
            for run in runs
            if _points(run.losses)
        ]
        views.append(View(name=name, x=Axis(label=label, unit=unit), y=loss, layers=layers))
    longest = max(len(run.losses) for run in runs)
    means = (
        f" Every point is the mean of up to {-(-longest // most)} steps." if longest > most else ""
    )
    return Chart(
        title="Training loss", caption=f"Measured, {count(len(runs), 'run')}.{means}", views=views
    )


def _places(run: TrainedRun, label: str) -> list[float]:
    """Where the end of every step lies."""
    if label == "time trained":
        return list(accumulate(run.step_seconds))
    each = run.trial.tokens_per_step if label == "tokens" else 1
    return [float(each * step) for step in range(1, len(run.losses) + 1)]


def _points(losses: Sequence[float | None]) -> list[float]:
    return [loss for loss in losses if loss is not None and math.isfinite(loss)]


def thinned(
    pairs: Sequence[tuple[float, float | None]], most: int = MOST_POINTS
) -> list[list[float]]:
    """Means of stretches; what is not finite is left out."""
    finite = [(x, y) for x, y in pairs if y is not None and math.isfinite(y)]
    length = max(1, -(-len(finite) // most))
    stretches = [finite[i : i + length] for i in range(0, len(finite), length)]
    return [[part[-1][0], math.fsum(y for _, y in part) / len(part)] for part in stretches]


def _results(runs: Sequence[TrainedRun]) -> Table:
    metric = runs[0].trial.protocol.metric
    columns, rows = table_of(
        sorted(runs, key=lambda run: (not math.isfinite(run.last_loss), run.last_loss)),
        [
            (Column("model", left=True), lambda r: r.trial.label),
            (Column("seed"), lambda r: str(r.trial.seed)),
            (
                Column(metric, "loss"),
                lambda r: f"{r.last_loss:.4f}" if math.isfinite(r.last_loss) else "none",
            ),
            (Column("outcome", left=True), lambda r: r.outcome),
            (Column("parameters"), lambda r: number(r.parameters)),
            (Column("batch", "samples"), lambda r: number(r.trial.batch_size)),
            (Column("steps"), lambda r: number(len(r.losses))),
            (Column("tokens"), lambda r: number(r.tokens)),
            (Column("rate", "tokens/s"), lambda r: number(r.tokens_per_second, ",.0f")),
            (Column("peak memory"), lambda r: size(r.peak_memory_bytes)),
            (Column("time"), lambda r: duration(r.training_seconds)),
            (Column("waited for data"), lambda r: f"{100 * r.data_wait_fraction:.1f} %"),
        ],
    )
    kinds = sorted({run.memory_kind for run in runs if run.memory_kind})
    notes = [
        f"{metric}: the mean loss of the last {runs[0].trial.protocol.last_steps} steps; rate: of the median step"
    ]
    notes += [note] if (note := tokens_note(runs)) else []
    notes += [f"peak memory: {'; '.join(kinds)}"] if kinds else []
    return Table(
        title="Results, best first",
        columns=columns,
        rows=rows,
        origin=MEASURED,
        samples=count(len(runs), "run"),
        notes=notes,
    )


def of_comparison(found: Comparison) -> list[Section]:
    best = found.models[0].model
    nearest = found.differences[0]
    if found.decided:
        sentence, tone = (
            f"✓ {best} is better than {nearest.model} by {nearest.difference:.4f} (p = {nearest.p_value:.2g})",
            verdicts.GOOD,
        )
    else:
        sentence, tone = (
            f"≈ {best} and {nearest.model} are not distinguishable (p = {nearest.p_value:.2g})",
            verdicts.UNSURE,
        )
    return [
        Section(
            title=f"Which is better: {found.metric} under {found.protocol}",
            verdict=sentence,
            tone=tone,
            text=[f"Data: {found.data}."],
            figures=[_gaps(found.differences, best)],
            tables=[_models(found), _differences(found)],
        )
    ]


def _gaps(differences: Sequence[Difference], best: str) -> Chart:
    layers = []
    for name, colour, wanted in (
        ("distinguishable", "good", True),
        ("not distinguishable", "s3", False),
    ):
        chosen = [(rank, d) for rank, d in enumerate(differences) if d.distinguishable is wanted]
        if chosen:
            points = [[d.model, *d.interval, rank] for rank, d in chosen]
            details = [[f"{d.difference:+.4f}", f"p = {d.p_value:.2g}", d.how] for _, d in chosen]
            layers.append(
                Layer(kind="bar", name=name, points=points, colour=colour, details=details)
            )
    layers.append(Layer(kind="down", name=f"as good as {best}", points=[[0]], colour="capacity"))
    x = Axis(label="loss above the best, 95 % interval", unit="number")
    view = View(name="", x=x, y=Axis(label=""), layers=layers, pointer="point")
    return Chart(
        title="Distance to the best",
        caption="Measured. An interval that holds zero may be no difference at all.",
        views=[view],
    )


def _models(found: Comparison) -> Table:
    columns, rows = table_of(
        found.models,
        [
            (Column("model", left=True), lambda m: m.model),
            (Column("seeds"), lambda m: str(len(m.seeds))),
            (Column(found.metric, "loss"), lambda m: f"{m.mean_last_loss:.4f}"),
            (
                Column("±", "loss"),
                lambda m: (
                    ""
                    if (noise := m.spread if m.spread is not None else m.noise) is None
                    else f"{noise:.4f}"
                ),
            ),
            (Column("parameters"), lambda m: number(m.parameters)),
            (Column("tokens"), lambda m: number(m.tokens)),
            (Column("rate", "tokens/s"), lambda m: number(m.tokens_per_second, ",.0f")),
            (Column("peak memory"), lambda m: size(m.peak_memory_bytes)),
            (Column("time"), lambda m: duration(m.training_seconds)),
        ],
    )
    notes = ["±: the spread over seeds, or of one seed the noise of its mean", *found.notes]
    return Table(
        title="Models, best first",
        columns=columns,
        rows=rows,
        origin=MEASURED,
        samples=_samples(found),
        notes=notes,
    )


def _samples(found: Comparison) -> str:
    return count(sum(len(model.seeds) for model in found.models), "run")


def _differences(found: Comparison) -> Table:
    columns, rows = table_of(
        found.differences,
        [
            (Column("model", left=True), lambda d: d.model),
            (Column("above the best", "loss"), lambda d: f"{d.difference:.4f}"),
            (
                Column("95 % interval", "loss"),
                lambda d: f"{d.interval[0]:.4f} to {d.interval[1]:.4f}",
            ),
            (Column("p"), lambda d: f"{d.p_value:.2g}"),
            (Column("distinguishable"), lambda d: "yes" if d.distinguishable else "no"),
            (Column("test", left=True), lambda d: d.how),
        ],
    )
    return Table(
        title=f"Against {found.models[0].model}",
        columns=columns,
        rows=rows,
        origin=MEASURED,
        samples=_samples(found),
    )
