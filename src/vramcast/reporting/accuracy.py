"""An accuracy result in the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vramcast.records.accuracy import METHODS, AccuracyResult, AccuracyRow, goals
from vramcast.units import format_bytes

STYLES = {True: "green", False: "bold red", None: "yellow"}
MARKS = {True: "✓", False: "✗", None: "?"}


def show_accuracy(result: AccuracyResult, console: Console) -> None:
    console.print(_rows(result))
    console.print(_methods(result))
    busy, launch = result.busy_step_time, result.launch_step_time
    if busy.median is not None and launch.median is not None:
        console.print(
            Text(
                f"step time: median {busy.median:.1f} % where the GPU is busy, {launch.median:.1f} % where it waits for the host"
            )
        )
    for goal, reached in goals(result):
        console.print(Text(f"{MARKS[reached]} {goal}", style=STYLES[reached]))
    for row in result.rows:
        if row.problem:
            console.print(Text(f"{row.name}: {row.problem}", style="yellow"))
    if any(row.calibrated_on for row in result.rows):
        console.print(
            Text(
                "* the predicted times were calibrated on this row: it does not count in their errors",
                style="bright_black",
            )
        )
    measured = result.measured_torch_version or "nothing"
    console.print(
        Text(
            f"\nPredicted under torch {result.torch_version}, measured on {result.gpu} under {measured}.",
            style="bright_black",
        )
    )


def _rows(result: AccuracyResult) -> Table:
    table = Table(
        title="Predicted against measured", title_justify="left", box=None, pad_edge=False
    )
    for column in (
        "row",
        "measured",
        "reserved",
        "allocated",
        "process",
        "capped at it",
        "step time",
        "took",
    ):
        table.add_column(column, justify="left" if column == "row" else "right", overflow="fold")
    for row in result.rows:
        if row.measured_reserved_bytes is not None:
            table.add_row(*_cells(row))
    return table


def _cells(row: AccuracyRow) -> list[Text | str]:
    assert row.measured_reserved_bytes is not None
    capped = row.capped_outcome or ""
    return [
        row.name,
        format_bytes(row.measured_reserved_bytes),
        Text("exact", style="green") if row.exact else _percent(row.reserved_error),
        _percent(row.allocated_error),
        _percent(row.process_error),
        Text(capped, style="green" if capped == "ok" else "red"),
        ""
        if row.step_error is None
        else f"{row.step_error:+.0f} %{'*' if row.calibrated_on else ''}",
        "" if row.prediction_seconds is None else f"{row.prediction_seconds:.1f} s",
    ]


def _methods(result: AccuracyResult) -> Table:
    table = Table(
        title="\n|error| of peak reserved", title_justify="left", box=None, pad_edge=False
    )
    for column in ("method", "rows", "failed", "median", "95 % within", "worst"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for method, errors in result.reserved.items():
        numbers = [
            "" if value is None else f"{value:.3f} %"
            for value in (errors.median, errors.p95, errors.worst)
        ]
        table.add_row(METHODS[method], str(errors.num_rows), str(errors.num_failed), *numbers)
    return table


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:+.3f} %"
