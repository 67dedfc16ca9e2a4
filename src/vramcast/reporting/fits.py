"""A fitted law in the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vramcast.records.fit import MemoryFit
from vramcast.text import printable
from vramcast.units import format_bytes


def show_fit(found: MemoryFit, console: Console) -> None:
    law = " + ".join(
        f"{found.coefficients[name]:.6g} x ({text})" for name, text in found.terms.items()
    )
    if found.floor_bytes is not None:
        law = f"the larger of {format_bytes(found.floor_bytes)} and {law}"
    console.print(Text(printable(f"{found.group or 'all runs'}: allocated = {law}"), style="bold"))
    console.print(
        Text(f"reserved = allocated + {format_bytes(found.overhead_bytes)} (median overhead)")
    )
    console.print(_rows(found))
    console.print(Text(f"without the overhead, allocated is off by at most {_worst(found)}"))
    if found.knobs:
        shares = ", ".join(
            f"{k.name} {100 * k.share:.1f} % (measured from {k.smallest:g} to {k.largest:g})"
            for k in found.knobs
        )
        console.print(Text(printable(f"what goes when a knob goes to 1: {shares}")))
    for why in found.left_out.values():
        console.print(Text(printable(f"not used: {why}"), style="yellow"))
    for note in found.notes:
        console.print(Text(printable(f"note: {note}"), style="yellow"))
    console.print()


def _worst(found: MemoryFit) -> str:
    left_out = [
        abs(row.left_out_allocated_error_percent)
        for row in found.rows
        if row.left_out_allocated_error_percent is not None
    ]
    inside = f"{max(abs(row.allocated_error_percent) for row in found.rows):.2f} %"
    return f"{inside}, left out by {max(left_out):.2f} %" if left_out else inside


def _rows(found: MemoryFit) -> Table:
    table = Table(box=None, pad_edge=False)
    pieces = ["by"] if found.floor_bytes is not None else []
    for column in ("run", "measured reserved", "fitted", "error", "left out", *pieces):
        table.add_column(column, justify="left" if column == "run" else "right")
    for row in found.rows:
        left_out = (
            "" if row.left_out_error_percent is None else f"{row.left_out_error_percent:+.2f} %"
        )
        sizes = [format_bytes(row.measured_reserved_bytes), format_bytes(row.fitted_reserved_bytes)]
        by = ("floor" if row.on_floor else "law",) if pieces else ()
        table.add_row(
            Text(printable(row.name)), *sizes, f"{row.error_percent:+.2f} %", left_out, *by
        )  # a name is no markup
    return table
