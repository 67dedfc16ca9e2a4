"""A tune as sections: the waterfall from the start to what came out, and every change with its verdict."""

from __future__ import annotations

from vramcast.records.tune import CandidateResult, MeasuredConfiguration, TuneResult, TuneVerdict
from vramcast.reporting import verdicts
from vramcast.reporting.page.sections import (
    MEASURED,
    PREDICTED,
    Axis,
    Chart,
    Column,
    Layer,
    Section,
    Table,
    View,
    count,
    duration,
    knobs_of,
    size,
)
from vramcast.reporting.tune_log import SECTIONS, cells, earlier, loss_movement, prospect_cells
from vramcast.units import format_days


def of_tune(result: TuneResult) -> list[Section]:
    applied = result.rows_with(TuneVerdict.APPLIED)
    interval = (
        ""
        if result.total.low is None
        else f" (95 %: {result.total.low:.2f} to {result.total.high:.2f})"
    )
    sentence, tone = (
        "nothing helped: the start is as fast as it gets with what was tried",
        verdicts.UNSURE,
    )
    if applied:
        sentence, tone = (
            f"✓ {result.total.ratio:.2f} times as fast by {result.total.by}{interval}, measured from end to end",
            verdicts.GOOD,
        )
    where = f"Measured on {result.gpu or 'the CPU'} (torch {result.torch_version}) in {duration(result.seconds)}{earlier(result)}."
    summary = Section(
        title=f"Tuned: {result.workload}",
        subtitle=knobs_of(result.knobs),
        verdict=sentence,
        tone=tone,
        text=[where],
        figures=[_waterfall(result)] if applied else [],
        tables=[_sides(result)],
    )
    tried = Section(
        title="What was tried", figures=_speedups(result), tables=_verdict_tables(result)
    )
    paste = Section(
        title="What came out",
        text=["\n".join(result.python_lines)],
        tables=[_prospects(result)] if result.prospects else [],
    )
    return [summary, tried, paste]


def _waterfall(result: TuneResult) -> Chart:
    """The time for the work of a step of the start. A change's bar goes from what it found to what it left."""
    rows = {row.name: row for row in result.rows}
    ranked = [rows[name] for name in result.step_order or result.applied_order if name in rows]
    start, end = result.before.step_seconds, result.seconds_after / result.target_steps
    bars, details, left = [], [], start
    for rank, row in enumerate(ranked, 1):
        before, left = left, left / _ratio(row)
        bars.append([row.name, left, before, rank])
        later = [] if row.verdict == TuneVerdict.APPLIED else [row.reason]
        details.append(
            [f"{_ratio(row):.2f} times as fast on top of the others", row.change, *later]
        )
    layers = [
        Layer(
            kind="bar",
            name="start",
            points=[["start", 0, start, 0]],
            colour="temporaries",
            details=[[duration(start)]],
        ),
        Layer(
            kind="bar",
            name="what a change took off",
            points=bars,
            colour="activations",
            details=details,
        ),
        Layer(
            kind="bar",
            name="end, measured",
            points=[["end", 0, end, len(ranked) + 1]],
            colour="parameters",
            details=[[duration(end)]],
        ),
    ]
    x = Axis(
        label=f"time for {result.before.work_per_step:,.0f} {result.before.unit}", unit="seconds"
    )
    caption = (
        f"Measured. Every bar is what a change took off on top of those above it; the end is a run of its own. "
        f"{count(result.before.num_runs, 'run')} of the start, {result.after.num_runs} of the end."
    )
    return Chart(
        title="From the start to the end",
        caption=caption,
        views=[View(name="", x=x, y=Axis(label=""), layers=layers, pointer="point")],
    )


def _ratio(row: CandidateResult) -> float:
    judged = row.on_top or row.alone
    return judged.speedup.ratio if judged and judged.speedup else 1.0


def _sides(result: TuneResult) -> Table:
    columns = [
        Column("", left=True),
        Column("a step"),
        Column("a step is"),
        Column("throughput"),
        Column("memory"),
        Column("loss, first to last"),
    ]
    columns.append(Column(f"{result.target_steps:,} steps of the start"))
    rows = [
        _side("before", result.before, result.seconds_before),
        _side("after", result.after, result.seconds_after),
    ]
    samples = f"{count(result.before.num_runs, 'run')} before, {result.after.num_runs} after, each in a fresh process"
    notes = list(result.notes)
    if result.product_of_alone is not None:
        notes.append(
            f"multiplying what each did alone would have claimed {result.product_of_alone:.2f}"
        )
    if result.loss_difference is not None:
        notes.append(
            f"losses of the measured steps differ by at most {100 * result.loss_difference:.2g} %"
        )
    return Table(
        title="Before and after",
        columns=columns,
        rows=rows,
        origin=MEASURED,
        samples=samples,
        notes=notes,
    )


def _side(name: str, side: MeasuredConfiguration, seconds: float) -> list[str]:
    losses = (
        ""
        if side.first_loss is None or side.last_loss is None
        else f"{side.first_loss:.4f} to {side.last_loss:.4f}"
    )
    work, rate = f"{side.work_per_step:,.0f} {side.unit}", f"{side.per_second:,.0f} {side.unit}/s"
    return [
        name,
        duration(side.step_seconds),
        work,
        rate,
        size(side.memory_bytes),
        losses,
        format_days(seconds),
    ]


def _speedups(result: TuneResult) -> list[Chart]:
    """Alone against the start, and on top of the others."""
    views = []
    for name, field in (("alone", "alone"), ("on top of the others", "on_top")):
        judged = [
            (row, found)
            for row in result.rows
            if (found := getattr(row, field)) is not None and found.speedup is not None
        ]
        ranked = sorted(judged, key=lambda pair: -pair[1].speedup.ratio)
        layers = []
        for verdict, colour in ((TuneVerdict.APPLIED, "good"), (TuneVerdict.REJECTED, "s3")):
            chosen = [
                (rank, row, found)
                for rank, (row, found) in enumerate(ranked)
                if found.is_gain == (verdict == TuneVerdict.APPLIED)
            ]
            points = [
                [row.name, 0, 100 * (found.speedup.ratio - 1), rank] for rank, row, found in chosen
            ]
            details = [[str(found.speedup), found.reason] for _, _, found in chosen]
            layers += (
                [Layer(kind="bar", name=verdict, points=points, colour=colour, details=details)]
                if points
                else []
            )
        if layers:
            views.append(
                View(
                    name=name,
                    x=Axis(label="faster", unit="percent"),
                    y=Axis(label=""),
                    layers=layers,
                    pointer="point",
                )
            )
    return (
        [
            Chart(
                title="How much faster",
                caption=f"Measured, by turns with runs without the change. {loss_movement(result)}",
                views=views,
            )
        ]
        if views
        else []
    )


def _verdict_tables(result: TuneResult) -> list[Table]:
    tables = []
    for verdict, title, names in SECTIONS:
        rows = result.rows_with(verdict)
        if rows:
            runs = sum(
                judged.num_runs[1]
                for row in rows
                for judged in (row.alone, row.on_top)
                if judged is not None and judged.num_runs
            )
            samples = (
                f"{count(runs, 'run')} with a change, beside those without" if runs else "no run"
            )
            columns = [Column(name, left=True) for name in names]
            tables.append(
                Table(
                    title=title,
                    columns=columns,
                    rows=[cells(row) for row in rows],
                    origin=MEASURED if runs else "not measured",
                    samples=samples,
                )
            )
    return tables


def _prospects(result: TuneResult) -> Table:
    columns = [
        Column("change", left=True),
        Column("step"),
        Column("times as fast"),
        Column("memory"),
        Column("", left=True),
    ]
    rows = [prospect_cells(prospect) for prospect in result.prospects]
    return Table(
        title="What would help next",
        columns=columns,
        rows=rows,
        origin=PREDICTED,
        samples=count(len(rows), "prediction"),
    )
