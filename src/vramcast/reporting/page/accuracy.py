"""Predicted against measured as sections: the scatter, the histogram of errors, every row."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from vramcast.records.accuracy import METHODS, AccuracyResult, AccuracyRow, Errors, goals
from vramcast.reporting import verdicts
from vramcast.reporting.page.sections import (
    Axis,
    Chart,
    Column,
    Layer,
    Section,
    Table,
    View,
    count,
    duration,
    percent,
    size,
    table_of,
)

MARKS = {True: "reached", False: "missed", None: "not judged"}
METHOD_COLOURS = {
    "vramcast": "good",
    "memtracker": "s0",
    "accelerate": "s3",
    "four_times_parameters": "bad",
}
# bounds of |error| in percent; the first bin is "to the byte"
BINS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)


def of_accuracy(result: AccuracyResult) -> list[Section]:
    compared = [
        row
        for row in result.rows
        if row.measured_reserved_bytes is not None and row.predicted_reserved_bytes is not None
    ]
    judged = goals(result)
    missed = sum(reached is False for _, reached in judged)
    sentence = f"{'✓' if not missed else '✗'} peak reserved memory is exact to the byte in {result.num_exact} of {count(len(compared), 'row')}"
    unjudged = sum(reached is None for _, reached in judged)
    sentence += f"; {count(missed, 'goal')} missed" if missed else "; no goal is missed"
    sentence += f", {unjudged} not judged" if unjudged else ""
    samples = f"{count(len(compared), 'workload')}, each measured in a fresh process"
    overview = Section(
        title=f"Predicted against measured on {result.gpu}",
        verdict=sentence,
        tone=verdicts.UNSURE if missed else verdicts.GOOD,
        text=[
            f"Predicted under torch {result.torch_version}, measured under torch {result.measured_torch_version or 'none'}."
        ],
        figures=[_scatter(result, compared), _histogram(result, compared)],
        tables=[_goals(judged, samples), _methods(result), _step_times(result)],
    )
    return [
        overview,
        Section(title="Every row", tables=[_rows(compared, samples), *_without(result)]),
    ]


def _scatter(result: AccuracyResult, rows: Sequence[AccuracyRow]) -> Chart:
    ends = [
        min((_measured(row) for row in rows), default=1),
        max((_measured(row) for row in rows), default=2),
    ]
    layers = [
        Layer(
            kind="line",
            name="exact",
            points=[[end, end] for end in ends],
            colour="capacity",
            dashed=True,
        )
    ]
    for method in reversed(list(result.reserved)):  # ours on top
        said = [
            (row, value)
            for row in rows
            if (
                value := row.predicted_reserved_bytes
                if method == "vramcast"
                else row.peers_bytes.get(method)
            )
        ]
        details = [
            [
                row.name,
                f"measured {size(row.measured_reserved_bytes)}",
                f"said {size(value)}",
                percent(row.error_of(method), 3),
            ]
            for row, value in said
        ]
        points = [[_measured(row), value] for row, value in said]
        layers.append(
            Layer(
                kind="dot",
                name=METHODS[method],
                points=points,
                colour=METHOD_COLOURS[method],
                details=details,
            )
        )
    memory = View(
        name="memory",
        x=Axis(label="peak reserved, measured", unit="bytes", log=True),
        y=Axis(label="peak reserved, predicted", unit="bytes", log=True),
        layers=layers,
        pointer="point",
    )
    return Chart(
        title="Predicted against measured",
        caption=f"{count(len(rows), 'workload')}; a point on the line is exact.",
        views=[memory, *_times_view(rows)],
    )


def _measured(row: AccuracyRow) -> int:
    return row.measured_reserved_bytes or 1


def _times_view(rows: Sequence[AccuracyRow]) -> list[View]:
    timed = [row for row in rows if row.median_step_seconds and row.predicted_step_seconds]
    if not timed:
        return []
    seconds = [row.median_step_seconds or 0.0 for row in timed]
    layers = [
        Layer(
            kind="line",
            name="exact",
            points=[[end, end] for end in (min(seconds), max(seconds))],
            colour="capacity",
            dashed=True,
        )
    ]
    for name, group, colour in (
        ("the GPU is busy", [row for row in timed if row.bound_by != "launch"], "good"),
        ("the GPU waits for the host", [row for row in timed if row.bound_by == "launch"], "s3"),
    ):
        details = [
            [
                row.name,
                percent(row.step_error, 1),
                *(["calibrated on this row"] if row.calibrated_on else []),
            ]
            for row in group
        ]
        layers.append(
            Layer(
                kind="dot",
                name=name,
                points=[[row.median_step_seconds, row.predicted_step_seconds] for row in group],
                colour=colour,
                details=details,
            )
        )
    x, y = (
        Axis(label="time of a step, measured", unit="seconds", log=True),
        Axis(label="time of a step, predicted", unit="seconds", log=True),
    )
    return [View(name="time of a step", x=x, y=y, layers=layers, pointer="point")]


def _histogram(result: AccuracyResult, rows: Sequence[AccuracyRow]) -> Chart:
    labels = ["to the byte", *(f"up to {bound:g} %" for bound in BINS), "more"]
    views = []
    for method in result.reserved:
        errors = [error for row in rows if (error := row.error_of(method)) is not None]
        counts = Counter(_bin(error) for error in errors)
        points = [[label, 0, counts[i], i] for i, label in enumerate(labels)]
        details = [[count(counts[i], "row")] for i in range(len(labels))]
        layer = Layer(
            kind="bar", name="rows", points=points, colour=METHOD_COLOURS[method], details=details
        )
        views.append(
            View(
                name=METHODS[method],
                x=Axis(label="rows", unit="number"),
                y=Axis(label="|error| of peak reserved"),
                layers=[layer],
                pointer="point",
            )
        )
    return Chart(
        title="How large the errors are",
        caption="Predicted against measured peak reserved memory.",
        views=views,
    )


def _bin(error: float) -> int:
    if error == 0:
        return 0
    return next(
        (
            i
            for i, bound in enumerate(BINS, 1)
            if abs(error) <= bound or math.isclose(abs(error), bound)
        ),
        len(BINS) + 1,
    )


def _goals(judged: Sequence[tuple[str, bool | None]], samples: str) -> Table:
    rows = [[goal, MARKS[reached]] for goal, reached in judged]
    columns = [Column("goal: what was found", left=True), Column("", left=True)]
    return Table(
        title="Goals",
        columns=columns,
        rows=rows,
        origin="predicted against measured",
        samples=samples,
    )


def _methods(result: AccuracyResult) -> Table:
    columns = [
        Column("method", left=True),
        Column("rows"),
        Column("failed"),
        Column("median"),
        Column("95 % within"),
        Column("worst"),
    ]
    rows = [[METHODS[name], *_errors(errors, 3)] for name, errors in result.reserved.items()]
    samples = "as many rows as the column says"
    return Table(
        title="|error| of peak reserved",
        columns=columns,
        rows=rows,
        origin="predicted against measured",
        samples=samples,
    )


def _step_times(result: AccuracyResult) -> Table:
    kinds = {
        "all": result.step_time,
        "the GPU is busy": result.busy_step_time,
        "the GPU waits for the host": result.launch_step_time,
    }
    columns = [
        Column("rows that the times were not calibrated on", left=True),
        Column("rows"),
        Column("failed"),
    ]
    columns += [Column("median"), Column("95 % within"), Column("worst")]
    rows = [[name, *_errors(errors, 1)] for name, errors in kinds.items()]
    return Table(
        title="|error| of the time of a step",
        columns=columns,
        rows=rows,
        origin="predicted against measured",
        samples="as many rows as the column says",
    )


def _errors(errors: Errors, digits: int) -> list[str]:
    numbers = [
        "" if value is None else f"{value:.{digits}f} %"
        for value in (errors.median, errors.p95, errors.worst)
    ]
    return [str(errors.num_rows), str(errors.num_failed), *numbers]


def _rows(rows: Sequence[AccuracyRow], samples: str) -> Table:
    columns, cells = table_of(
        rows,
        [
            (Column("row", left=True), lambda r: r.name),
            (Column("reserved, measured"), lambda r: size(r.measured_reserved_bytes)),
            (Column("reserved, predicted"), lambda r: size(r.predicted_reserved_bytes)),
            (Column("error"), lambda r: "exact" if r.exact else percent(r.reserved_error, 3)),
            (Column("allocated"), lambda r: percent(r.allocated_error, 3)),
            (Column("process"), lambda r: percent(r.process_error, 3)),
            (Column("capped at it", left=True), lambda r: r.capped_outcome or ""),
            (Column("step, measured"), lambda r: duration(r.median_step_seconds)),
            (Column("step error"), lambda r: percent(r.step_error, 0)),
            (Column("calibrated on", left=True), lambda r: "yes" if r.calibrated_on else ""),
            (Column("not modelled", left=True), lambda r: "; ".join(r.limits)),
        ],
    )
    origin = "errors: predicted against measured"
    return Table(
        title="Rows",
        columns=columns,
        rows=cells,
        origin=origin,
        samples=samples,
        notes=["a row's own column says what was not modelled in it"],
    )


def _without(result: AccuracyResult) -> list[Table]:
    missing = [
        [row.name, row.problem or "not measured yet"]
        for row in result.rows
        if row.measured_reserved_bytes is None or row.predicted_reserved_bytes is None
    ]
    if not missing:
        return []
    columns = [Column("row", left=True), Column("why", left=True)]
    return [
        Table(
            title="Rows without a comparison",
            columns=columns,
            rows=missing,
            origin="nothing to compare",
            samples=count(len(missing), "row"),
        )
    ]
