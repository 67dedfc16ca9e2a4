"""Predicted against measured as sections: goals, errors of every method, every row."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from vramcast.records.accuracy import METHODS, AccuracyResult, AccuracyRow, Errors, goals
from vramcast.records.prediction import BoundBy
from vramcast.reporting import sections as page

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
BUSY, WAITS = "the GPU is busy", "the GPU waits for the host"


def of_accuracy(result: AccuracyResult) -> list[page.Section]:
    compared = [row for row in result.rows if row.reserved_error is not None]
    exact = f"{result.num_exact} of {result.reserved['vramcast'].num_rows}"
    judged = goals(result)
    torch = result.measured_torch_version
    measured = f"measured on {result.gpu} under torch {torch}" if torch else "not measured"
    left_out = [row for row in result.rows if row.reserved_error is None]
    missing = page.table_of(
        left_out,
        {"row": "name", "why": lambda row: row.problem or "not measured yet"},
        left=("row", "why"),
        title="Rows without a comparison",
        origin="nothing to compare",
        samples=page.count(len(left_out), "row"),
    )
    return [
        page.Section(
            title=f"Predicted against measured on {result.gpu or 'no GPU'}",
            verdict=_verdict([reached for _, reached in judged]),
            text=[f"Peak reserved memory is exact to the byte in {exact} rows."],
            parts=[
                *(_goal(goal, reached) for goal, reached in judged),
                scatter(result),
                _histogram(result, compared),
                _errors(
                    "method",
                    {METHODS[name]: errors for name, errors in result.reserved.items()},
                    "{:.3f} %",
                    title="|error| of peak reserved, which is what has to fit",
                ),
                _errors(
                    "step",
                    {
                        "all": result.step_time,
                        BUSY: result.busy_step_time,
                        WAITS: result.launch_step_time,
                    },
                    "{:.1f} %",
                    title="|error| of the time of a step, "
                    "in rows that the times were not calibrated on",
                    notes=[
                        "where the GPU waits for the host, the time is the host's: "
                        "predicted for a machine like those on which the rates were measured"
                    ],
                ),
            ],
            made=f"Predicted with no GPU under torch {result.torch_version}, {measured}.",
        ),
        page.Section(title="Every row", parts=[_rows(compared), missing]),
    ]


def _verdict(reached: Sequence[bool | None]) -> page.Remark:
    if set(reached) == {None}:
        return page.unsure("✗ nothing was compared: the rows below say why")
    rest = page.given(", {} not judged", reached.count(None) or None)
    if False in reached:
        return page.unsure(f"✗ {reached.count(False)} of {len(reached)} goals missed{rest}")
    return page.good(f"no goal is missed{rest}")


def _goal(goal: str, reached: bool | None) -> page.Remark:
    if reached:
        return page.good(goal)
    return page.unsure(f"not judged: {goal}") if reached is None else page.bad(f"missed: {goal}")


def scatter(result: AccuracyResult) -> page.Chart:
    rows = [row for row in result.rows if row.measured_reserved_bytes]
    layers = [_exact([row.measured_reserved_bytes for row in rows])]
    for method in reversed(result.reserved):  # the layer drawn last is on top
        points, details = [], []
        for row in rows:
            measured, said = row.measured_reserved_bytes, row.said_by(method)
            if said:
                points.append([measured, said])
                sizes = f"measured {page.size(measured)}", f"said {page.size(said)}"
                details.append([row.name, *sizes, page.percent(row.error_of(method), 3)])
        error = page.given(" (median error {:.3g} %)", result.reserved[method].median)
        name = f"{METHODS[method]}{error}"
        layers.append(page.Layer("dot", name, points, METHOD_COLOURS[method], details))
    return page.chart(
        f"{page.count(len(rows), 'training step')} on {result.gpu}: {COMPARED}",
        "A point on the line is exact.",
        _against("memory", "peak reserved", "bytes", layers),
        _against("time of a step", "time of a step", "seconds", _time_layers(rows)),
    )


def _exact(measured: Sequence[Any]) -> page.Layer:
    ends = [min(measured), max(measured)] if measured else []
    return page.Layer("line", "exact", [[end, end] for end in ends], "capacity", dashed=True)


def _against(name: str, what: str, unit: str, layers: Sequence[page.Layer]) -> page.View:
    measured = page.Axis(f"{what}, measured", unit, log=True)
    predicted = page.Axis(f"{what}, predicted", unit, log=True)
    return page.View(measured, predicted, layers, name, "point")


def _time_layers(rows: Sequence[AccuracyRow]) -> list[page.Layer]:
    timed = [row for row in rows if row.median_step_seconds and row.predicted_step_seconds]
    layers = [_exact([row.median_step_seconds for row in timed])]
    for name, waits, colour in ((BUSY, False, "good"), (WAITS, True, "s3")):
        group = [row for row in timed if (row.bound_by == BoundBy.LAUNCH) is waits]
        layers.append(
            page.layer_of(
                "dot",
                name,
                colour,
                group,
                ("median_step_seconds", "predicted_step_seconds"),
                "name",
                lambda row: page.percent(row.step_error, 1),
                lambda row: "calibrated on this row" if row.calibrated_on else "",
            )
        )
    return layers


def _histogram(result: AccuracyResult, rows: Sequence[AccuracyRow]) -> page.Chart:
    labels = ["to the byte", *(f"up to {bound:g} %" for bound in BINS), "more"]
    x, y = page.Axis("rows"), page.Axis("|error| of peak reserved", "")

    def view(method: str) -> page.View:
        errors = [row.error_of(method) for row in rows]
        counts = Counter(_bin(error) for error in errors if error is not None)
        bars = [
            page.Bar("rows", label, 0, counts[i], [page.count(counts[i], "row")])
            for i, label in enumerate(labels)
        ]
        return page.bar_view(x, bars, {"rows": METHOD_COLOURS[method]}, METHODS[method], y)

    caption = "Predicted against measured peak reserved memory."
    return page.chart("How large the errors are", caption, *map(view, result.reserved))


def _bin(error: float) -> int:
    """The index of the bin. The error is rounded first: 0.1 % computed from bytes must not be above
    0.1 %."""
    return 1 + bisect_left(BINS, round(abs(error), 9)) if error else 0


def _errors(what: str, errors: Mapping[str, Errors], form: str, **others: Any) -> page.Table:
    def row(name: str, found: Errors) -> list[str]:
        shares = [page.given(form, value) for value in (found.median, found.p95, found.worst)]
        return [name, str(found.num_rows), str(found.num_failed), *shares]

    return page.Table(
        columns=(what, "rows", "failed", "median", "95 % within", "worst"),
        left=(what,),
        rows=[row(*item) for item in errors.items()],
        origin=COMPARED,
        samples="as many rows as the column says",
        **others,
    )


def _runs(row: AccuracyRow) -> str:
    runs, within = row.measured_runs_bytes, row.num_within
    if not runs or (within is None and len(set(runs)) == 1):
        return ""
    took = " to ".join(map(page.size, dict.fromkeys((runs[0], runs[-1]))))
    text = f"{took} in {page.count(len(runs), 'run')}"
    if within is None or row.predicted_range_bytes is None:
        return text
    bounds = " to ".join(map(page.size, row.predicted_range_bytes))
    return f"{text}, {within} within {bounds}"


def _rows(rows: Sequence[AccuracyRow]) -> page.Table:
    return page.table_of(
        sorted(rows, key=lambda row: (-abs(row.reserved_error or 0), -abs(row.step_error or 0))),
        {
            "row": "name",
            "measured": "measured_reserved_bytes",
            "reserved": lambda r: "exact" if r.exact else page.percent(r.reserved_error, 3),
            "runs": _runs,
            "allocated": lambda r: page.percent(r.allocated_error, 3),
            "process": lambda r: page.percent(r.process_error, 3),
            "capped": lambda r: (
                (r.capped_outcome or "") + page.given(" (retries: {})", r.capped_retries or None)
            ),
            "step": "median_step_seconds",
            "step time": lambda r: (
                page.percent(r.step_error, 0) + "*" * bool(r.calibrated_on and r.step_error)
            ),
            "took": "prediction_seconds",
            "not modelled": lambda r: "; ".join(r.limits),
        },
        left=("row", "not modelled"),
        title="Rows, largest error first",
        most_rows=MOST_ROWS,
        notes=[
            "measured: peak reserved memory; capped: the outcome of a second run with the memory "
            "capped at the predicted peak; step and step time: measured, and the error of the "
            "prediction; took: to predict",
            "runs: where timing decides, and how many lie within the predicted bounds; measured is "
            "the one in the middle",
            "* the predicted times were calibrated on this row: it does not count in their errors",
        ],
        origin=f"errors: {COMPARED}",
        samples=f"{page.count(len(rows), 'workload')}, each measured in a fresh process",
    )
