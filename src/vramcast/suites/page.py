"""An accuracy result as Markdown. No torch; nothing is computed that is not in the record."""

from __future__ import annotations

from datetime import date

from vramcast.records.accuracy import METHODS, AccuracyResult, AccuracyRow, goals

MARKS = {True: "✓", False: "✗ missed", None: "not judged"}


def as_markdown(result: AccuracyResult) -> str:
    lines = [
        "# Accuracy",
        "",
        f"Made by `vramcast accuracy` on {date.today()} for {result.gpu}: predicted with no GPU under torch {result.torch_version}, "
        f"measured under torch {result.measured_torch_version or 'none'}, each row in a fresh process.",
        "",
        f"Peak reserved memory is exact to the byte in {result.num_exact} of {result.reserved['vramcast'].num_rows} rows.",
        "",
        *(f"- {MARKS[reached]} {goal}" for goal, reached in goals(result)),
        "",
        *_methods(result),
        *_step_times(result),
        *_rows(result),
        *_problems(result),
    ]
    return "\n".join(lines) + "\n"


def _methods(result: AccuracyResult) -> list[str]:
    lines = [
        "## All methods",
        "",
        "Error of what each method says against the peak *reserved* memory measured, which is what has to fit.",
        "",
        "| method | rows | failed | median | 95 % within | worst |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for method, errors in result.reserved.items():
        numbers = [
            ("" if value is None else f"{value:.3f} %")
            for value in (errors.median, errors.p95, errors.worst)
        ]
        lines.append(
            f"| {METHODS[method]} | {errors.num_rows} | {errors.num_failed} | {' | '.join(numbers)} |"
        )
    return [*lines, ""]


def _step_times(result: AccuracyResult) -> list[str]:
    lines = [
        "## Step times",
        "",
        "Of the rows that they were not calibrated on. Where the GPU waits for the host, the time is the host's: a prediction is for a "
        "machine like those on which the rates were measured.",
        "",
        "| rows | number | median | 95 % within | worst |",
        "|---|---:|---:|---:|---:|",
    ]
    kinds = {
        "all": result.step_time,
        "the GPU is busy": result.busy_step_time,
        "the GPU waits for the host": result.launch_step_time,
    }
    for name, errors in kinds.items():
        numbers = [
            ("" if value is None else f"{value:.1f} %")
            for value in (errors.median, errors.p95, errors.worst)
        ]
        lines.append(f"| {name} | {errors.num_rows} | {' | '.join(numbers)} |")
    return [*lines, ""]


def _rows(result: AccuracyResult) -> list[str]:
    lines = [
        "## All rows",
        "",
        "Errors are predicted against measured. *Capped* is the outcome of a second run with the allocator capped at the predicted peak. "
        "Rows that the step times were *calibrated on* do not count in their errors.",
        "",
        "| row | measured reserved | reserved | allocated | process | capped | step | step time | prediction took | not modelled |",
        "|---|---:|---:|---:|---:|---|---:|---:|---:|---|",
    ]
    return [
        *lines,
        *(_row(row) for row in result.rows if row.measured_reserved_bytes is not None),
        "",
    ]


def _row(row: AccuracyRow) -> str:
    assert row.measured_reserved_bytes is not None
    capped = row.capped_outcome or ""
    if row.capped_outcome == "ok" and row.capped_retries:
        capped = f"ok, {row.capped_retries} retries"
    cells = [
        row.name,
        f"{row.measured_reserved_bytes / 2**30:.3f} GiB",
        "exact" if row.exact else _percent(row.reserved_error),
        _percent(row.allocated_error),
        _percent(row.process_error),
        capped,
        "" if row.median_step_seconds is None else f"{1000 * row.median_step_seconds:.1f} ms",
        ""
        if row.step_error is None
        else f"{row.step_error:+.0f} %{' (calibrated on)' if row.calibrated_on else ''}",
        "" if row.prediction_seconds is None else f"{row.prediction_seconds:.1f} s",
        "; ".join(row.limits),
    ]
    return f"| {' | '.join(cells)} |"


def _problems(result: AccuracyResult) -> list[str]:
    missing = [
        row
        for row in result.rows
        if row.measured_reserved_bytes is None or row.predicted_reserved_bytes is None
    ]
    if not missing:
        return []
    return [
        "## Rows without a comparison",
        "",
        *(f"- {row.name}: {row.problem or 'not measured yet'}" for row in missing),
        "",
    ]


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:+.3f} %"
