"""Two memory traces side by side in the terminal: where they part, and by how much they differ in all."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vramcast.text import printable
from vramcast.tracing.diff import Line, OpDifference, Place, Side, TraceDiff
from vramcast.units import format_bytes

MOST_OPS = 12
MEANING = {
    "bytes": "another size",
    "name": "another operator, same size",
    "only_a": "only in A",
    "only_b": "only in B",
    "alive": "freed earlier on one side",
    "step": "step begins elsewhere",
}


def show_differences(result: TraceDiff, a: str, b: str, console: Console) -> None:
    console.print(_sides(result.a, result.b, a, b))
    if result.a.num_steps != result.b.num_steps:
        console.print(
            f"compared: the build and the first {result.num_steps_compared} steps", style="yellow"
        )
    if result.first is None:
        console.print(
            "\n✓ the same: every allocation, and what is alive at each", style="bold green"
        )
        return
    total = sum(result.num_differences.values())
    counts = ", ".join(
        f"{number} {MEANING[kind]}" for kind, number in result.num_differences.items() if number
    )
    console.print(
        Text(f"\n✗ {total} difference{'s' if total > 1 else ''}: {counts}", style="bold red")
    )
    _show_place("First difference", result.first, console)
    if result.first_in_memory not in (None, result.first):
        assert result.first_in_memory is not None
        _show_place("First difference that is more than a name", result.first_in_memory, console)
    if result.ops:
        console.print(_ops(result.ops))


def _sides(a: Side, b: Side, a_file: str, b_file: str) -> Table:
    table = _table("", "trace", "steps", "allocations", "peak asked for", "torch")
    for name, side, file in (("A", a, a_file), ("B", b, b_file)):
        cells = (
            str(side.num_steps),
            f"{side.num_allocations:,}",
            format_bytes(side.peak_allocated_bytes),
            side.torch_version,
        )
        table.add_row(name, _plain(f"{file} ({side.source}, {side.workload})"), *map(_plain, cells))
    return table


def _show_place(title: str, place: Place, console: Console) -> None:
    where = f"step {place.step}" if place.step else "the build"
    console.print(
        Text(
            f"\n{title}, in {where}: {', '.join(MEANING[kind] for kind in place.kinds)}",
            style="bold",
        )
    )
    table = _table("", "A", "operator", "bytes", "allocated", "B", "operator", "bytes", "allocated")
    for index, (a, b) in enumerate(place.lines):
        here = index == place.position
        table.add_row(
            ">" if here else "",
            *map(_plain, _cells(a)),
            *map(_plain, _cells(b)),
            style="bold red" if here else "",
        )
    console.print(table)
    _show_facts(place, console)
    for side, lines, number in (
        ("A", place.alive_only_a, place.num_alive_only_a),
        ("B", place.alive_only_b, place.num_alive_only_b),
    ):
        for line in lines:
            console.print(_plain(f"  alive in {side} only: {_described(line)}"))
        if number > len(lines):
            console.print(f"  alive in {side} only: {number - len(lines)} more")


def _show_facts(place: Place, console: Console) -> None:
    for side, line in zip("AB", place.lines[place.position]):
        if line is not None and line.facts:
            console.print(_plain(f"  {side}: {_described(line)}"))


def _cells(line: Line | None) -> tuple[str, str, str, str]:
    if line is None:
        return "-", "", "", ""
    number = f"#{line.number}" if line.number else ""
    return (
        number,
        line.op.removeprefix("aten::") or "?",
        f"{line.num_bytes:,}",
        format_bytes(line.allocated_bytes),
    )


def _described(line: Line) -> str:
    facts = " ".join(
        line.facts[fact]
        for fact in ("category", "name", "node", "module", "source")
        if fact in line.facts
    )
    return f"#{line.number} {line.op or '?'} {format_bytes(line.num_bytes)}  {facts}".rstrip()


def _ops(ops: list[OpDifference]) -> Table:
    table = _table("operator", "count A", "count B", "bytes A", "bytes B", "B less A")
    table.title = "\nBy operator, largest difference first"
    table.title_justify = "left"
    for op in ops[:MOST_OPS]:
        cells = (
            str(op.count_a),
            str(op.count_b),
            format_bytes(op.bytes_a),
            format_bytes(op.bytes_b),
            format_bytes(op.bytes_b - op.bytes_a),
        )
        table.add_row(_plain(op.op or "?"), *cells)
    if len(ops) > MOST_OPS:
        table.add_row(f"{len(ops) - MOST_OPS} more")
    return table


def _plain(text: str) -> Text:
    """What a trace says, which may come from others: neither markup nor escape codes."""
    return Text(printable(text))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        left = column in ("", "trace", "operator", "A", "B", "torch")
        table.add_column(column, justify="left" if left else "right", overflow="fold")
    return table
