"""A tune in the terminal: before and after, what was applied and what was not, what comes next."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from vramcast.report.tables import Heading, fitted
from vramcast.report.tune_log import SECTIONS, cells, earlier, prospect_cells
from vramcast.tuning.results import Side, TuneResult
from vramcast.units import format_bytes, format_days, format_seconds

STYLES = {"applied": "green", "rejected": "yellow", "failed": "red", "not applicable": "bright_black", "not tried": "bright_black"}


def show_tune(result: TuneResult, console: Console) -> None:
    console.print(Panel(_verdict(result), title=Text(result.workload), title_align="left"))
    console.print(_sides(result))
    for verdict, title, columns in SECTIONS:
        rows = result.rows_with(verdict)
        if rows:
            console.print(Text(f"\n{title}", style=f"bold {STYLES[verdict]}"))
            console.print(_table(columns, [cells(row) for row in rows], console.width))
    if result.prospects:
        console.print(Text("\nWhat would help next (predicted)", style="bold"))
        rows_of_cells = [prospect_cells(prospect) for prospect in result.prospects]
        console.print(_table(("change", "step", "times as fast", "memory", ""), rows_of_cells, console.width))
    console.print(Text("\nTo paste:", style="bold"))
    for line in result.python_lines:
        console.print(Text(f"    {line}"), soft_wrap=True)
    for note in result.notes:
        console.print(Text(f"note: {note}", style="yellow"))
    where = result.gpu or "the CPU"
    console.print(Text(f"\nMeasured on {where} (torch {result.torch_version}) in {format_seconds(result.seconds)}{earlier(result)}.", style="bright_black"))


def _verdict(result: TuneResult) -> Text:
    if not result.rows_with("applied"):
        return Text("nothing helped: the start is as fast as it gets with what was tried", style="bold yellow")
    interval = "" if result.total.low is None else f" (95 %: {result.total.low:.2f} to {result.total.high:.2f})"
    names = ", ".join(row.name for row in result.rows_with("applied"))
    return Text(f"✓ {result.total.ratio:.2f} times as fast by {result.total.by}{interval}: {names}", style="bold green")


def _sides(result: TuneResult) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("measured", "a step", "a step is", "throughput", "memory", f"{result.target_steps:,} steps"):
        table.add_column(column, justify="left" if column == "measured" else "right")

    def row(name: str, side: Side, seconds: float) -> None:
        memory = "" if side.memory_bytes is None else format_bytes(side.memory_bytes)
        size = f"{side.work_per_step:,.0f} {side.unit}"
        table.add_row(name, format_seconds(side.step_seconds), size, f"{side.per_second:,.0f}/s", memory, format_days(seconds))

    row("before", result.before, result.seconds_before)
    row("after", result.after, result.seconds_after)
    return table


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> RenderableType:
    return fitted([Heading(column) for column in columns], rows, width)
