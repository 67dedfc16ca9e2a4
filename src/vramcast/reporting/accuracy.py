"""Predicted against measured as sections: the goals, the errors of every method, every row."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

from vramcast.records.accuracy import METHODS, AccuracyResult, AccuracyRow, Errors, goals
from vramcast.records.prediction import BoundBy
from vramcast.reporting.sections import (
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
    percent,
    size,
    table_of,
)

MARKS = {True: ("✓", Tone.GOOD), False: ("✗ missed:", Tone.BAD), None: ("not judged:", Tone.UNSURE)}
METHOD_COLOURS = {
    "vramcast": "good",
    "memtracker": "s0",
    "accelerate": "s3",
    "four_times_parameters": "bad",
}
# Bounds of |error| in percent; the first bin is "to the byte".
BINS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)
MOST_ROWS = 30  # in the terminal, the largest errors first
COMPARED = "predicted against measured"
ERRORS = ("rows", "failed", "median", "95 % within", "worst")


def of_accuracy(result: AccuracyResult) -> list[Section]:
    compared = [row for row in result.rows if row.reserved_error is not None]
    judged = goals(result)
    missed = sum(reached is False for _, reached in judged)
    unjudged = sum(reached is None for _, reached in judged)
    verdict = f"✗ {missed} of {len(judged)} goals missed" if missed else "✓ no goal is missed"
    if unjudged:
        verdict += f", {unjudged} not judged"
    exact = f"{result.num_exact} of {result.reserved['vramcast'].num_rows} rows"
    samples = f"{count(len(compared), 'workload')}, each measured in a fresh process"
    return [
        Section(
            title=f"Predicted against measured on {result.gpu or 'no GPU'}",
            verdict=verdict,
            tone=Tone.UNSURE if missed else Tone.GOOD,
            text=[f"Peak reserved memory is exact to the byte in {exact}."],
            remarks=[_goal(goal, reached) for goal, reached in judged],
            figures=[scatter(result), _histogram(result, compared)],
            tables=[_methods(result), _step_times(result)],
            made=f"Predicted with no GPU under torch {result.torch_version}, measured on "
            f"{result.gpu} under torch {result.measured_torch_version or 'none'}.",
        ),
        Section(title="Every row", tables=[_rows(compared, samples), *_without(result)]),
    ]


def _goal(goal: str, reached: bool | None) -> Remark:
    mark, tone = MARKS[reached]
    return Remark(text=f"{mark} {goal}", tone=tone)


def scatter(result: AccuracyResult) -> Chart:
    rows = [row for row in result.rows if row.measured_reserved_bytes]
    measured = [row.measured_reserved_bytes or 0 for row in rows]
    layers = [_exact(measured)]
    for method in reversed(result.reserved):  # the last is on top
        said = [(row, value) for row in rows if (value := _said(row, method))]
        median = result.reserved[method].median
        error = "" if median is None else f" (median error {median:.3g} %)"
        layers.append(
            Layer(
                kind="dot",
                name=f"{METHODS[method]}{error}",
                points=[[row.measured_reserved_bytes, value] for row, value in said],
                colour=METHOD_COLOURS[method],
                details=[
                    [
                        row.name,
                        f"measured {size(row.measured_reserved_bytes)}",
                        f"said {size(value)}",
                        percent(row.error_of(method), 3),
                    ]
                    for row, value in said
                ],
            )
        )
    memory = _against("memory", "peak reserved", "bytes", layers)
    return Chart(
        title=f"{count(len(rows), 'training step')} on {result.gpu}: {COMPARED}",
        caption="A point on the line is exact.",
        views=[memory, *_times_view(rows)],
        detail=True,
    )


def _said(row: AccuracyRow, method: str) -> int | None:
    return row.predicted_reserved_bytes if method == "vramcast" else row.peers_bytes.get(method)


def _exact(measured: Sequence[float]) -> Layer:
    ends = [min(measured, default=1), max(measured, default=2)]
    points = [[end, end] for end in ends]
    return Layer(kind="line", name="exact", points=points, colour="capacity", dashed=True)


def _against(name: str, what: str, unit: str, layers: Sequence[Layer]) -> View:
    x = Axis(label=f"{what}, measured", unit=unit, log=True)
    y = Axis(label=f"{what}, predicted", unit=unit, log=True)
    return View(name=name, x=x, y=y, layers=layers, pointer="point")


def _times_view(rows: Sequence[AccuracyRow]) -> list[View]:
    timed = [row for row in rows if row.median_step_seconds and row.predicted_step_seconds]
    if not timed:
        return []
    layers = [_exact([row.median_step_seconds or 0.0 for row in timed])]
    for name, waits, colour in (
        ("the GPU is busy", False, "good"),
        ("the GPU waits for the host", True, "s3"),
    ):
        group = [row for row in timed if (row.bound_by == BoundBy.LAUNCH) is waits]
        layers.append(
            Layer(
                kind="dot",
                name=name,
                points=[[row.median_step_seconds, row.predicted_step_seconds] for row in group],
                colour=colour,
                details=[
                    [
                        row.name,
                        percent(row.step_error, 1),
                        *(["calibrated on this row"] if row.calibrated_on else []),
                    ]
                    for row in group
                ],
            )
        )
    return [_against("time of a step", "time of a step", "seconds", layers)]


def _histogram(result: AccuracyResult, rows: Sequence[AccuracyRow]) -> Chart:
    labels = ["to the byte", *(f"up to {bound:g} %" for bound in BINS), "more"]
    views = []
    for method in result.reserved:
        errors = [row.error_of(method) for row in rows]
        counts = Counter(_bin(error) for error in errors if error is not None)
        layer = Layer(
            kind="bar",
            name="rows",
            points=[[label, 0, counts[i], i] for i, label in enumerate(labels)],
            colour=METHOD_COLOURS[method],
            details=[[count(counts[i], "row")] for i in range(len(labels))],
        )
        x, y = Axis(label="rows", unit="number"), Axis(label="|error| of peak reserved")
        views.append(View(name=METHODS[method], x=x, y=y, layers=[layer], pointer="point"))
    caption = "Predicted against measured peak reserved memory."
    return Chart(title="How large the errors are", caption=caption, views=views, detail=True)


def _bin(error: float) -> int:
    """Rounded, so that an error of 0.1 % computed from bytes is not above 0.1 %."""
    return 1 + bisect_left(BINS, round(abs(error), 9)) if error else 0


def _methods(result: AccuracyResult) -> Table:
    return Table(
        title="|error| of peak reserved, which is what has to fit",
        columns=[Column("method", left=True), *map(Column, ERRORS)],
        rows=[[METHODS[name], *_errors(errors, 3)] for name, errors in result.reserved.items()],
        origin=COMPARED,
        samples="as many rows as the column says",
    )


def _step_times(result: AccuracyResult) -> Table:
    kinds = {
        "all": result.step_time,
        "the GPU is busy": result.busy_step_time,
        "the GPU waits for the host": result.launch_step_time,
    }
    return Table(
        title="|error| of the time of a step, in rows that the times were not calibrated on",
        columns=[Column("step", left=True), *map(Column, ERRORS)],
        rows=[[name, *_errors(errors, 1)] for name, errors in kinds.items()],
        notes=[
            "where the GPU waits for the host, the time is the host's: "
            "predicted for a machine like those on which the rates were measured"
        ],
        origin=COMPARED,
        samples="as many rows as the column says",
    )


def _errors(errors: Errors, digits: int) -> list[str]:
    values = (errors.median, errors.p95, errors.worst)
    numbers = ["" if value is None else f"{value:.{digits}f} %" for value in values]
    return [str(errors.num_rows), str(errors.num_failed), *numbers]


def _rows(rows: Sequence[AccuracyRow], samples: str) -> Table:
    worst_first = sorted(
        rows, key=lambda row: (-abs(row.reserved_error or 0), -abs(row.step_error or 0))
    )
    return table_of(
        worst_first,
        [
            (Column("row", left=True), lambda r: r.name),
            (Column("measured"), lambda r: size(r.measured_reserved_bytes)),
            (Column("reserved"), lambda r: "exact" if r.exact else percent(r.reserved_error, 3)),
            (Column("allocated"), lambda r: percent(r.allocated_error, 3)),
            (Column("process"), lambda r: percent(r.process_error, 3)),
            (Column("capped"), _capped),
            (Column("step"), lambda r: duration(r.median_step_seconds)),
            (Column("step time"), _step_error),
            (Column("took"), lambda r: duration(r.prediction_seconds)),
            (Column("not modelled", left=True), lambda r: "; ".join(r.limits)),
        ],
        title="Rows, largest error first",
        most_rows=MOST_ROWS,
        notes=[
            "measured: peak reserved memory; capped: the outcome of a second run with the memory "
            "capped at the predicted peak; step and step time: measured, and the error of the "
            "prediction; took: to predict",
            "* the predicted times were calibrated on this row: it does not count in their errors",
        ],
        origin=f"errors: {COMPARED}",
        samples=samples,
    )


def _capped(row: AccuracyRow) -> str:
    outcome = row.capped_outcome or ""
    return f"{outcome} (retries: {row.capped_retries})" if row.capped_retries else outcome


def _step_error(row: AccuracyRow) -> str:
    return percent(row.step_error, 0) + ("*" if row.calibrated_on and row.step_error else "")


def _without(result: AccuracyResult) -> list[Table]:
    missing = [row for row in result.rows if row.reserved_error is None]
    if not missing:
        return []
    return [
        Table(
            title="Rows without a comparison",
            columns=[Column("row", left=True), Column("why", left=True)],
            rows=[[row.name, row.problem or "not measured yet"] for row in missing],
            origin="nothing to compare",
            samples=count(len(missing), "row"),
        )
    ]
