"""The largest batch in the terminal: the answer, the search, the law behind it, what to choose."""

from __future__ import annotations

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from vramcast.records.max_batch import Attempt, MaxBatch, MemoryLaw, Speed
from vramcast.reporting import verdicts
from vramcast.reporting.tensors import largest_tensors
from vramcast.text import printable
from vramcast.units import format_bytes, format_seconds

BAR_WIDTH = 40
FITS = {"ok": "yes", "out_of_memory": "OOM"}
WIDTH_WITHOUT_BARS = 84
WIDTH_OF_SPEEDS = 62  # without bars


def show_max_batch(result: MaxBatch, console: Console) -> None:
    console.print(
        Panel(_answer(result), title=Text(printable(result.workload)), title_align="left")
    )
    console.print(_attempts(result, min(BAR_WIDTH, console.width - WIDTH_WITHOUT_BARS)))
    if result.largest_batch is None:
        console.print()
        console.print(
            largest_tensors(
                result.largest_tensors, console.width, "Largest in memory at the smallest batch"
            )
        )
        for advice in result.advice:
            console.print(Text(f"what would help: {advice}"))
    for name, law in (("allocated", result.allocated_law), ("reserved", result.reserved_law)):
        if law is not None:
            console.print(Text(_law(name, law)))
    if result.speeds:
        console.print(_speeds(result, min(BAR_WIDTH, console.width - WIDTH_OF_SPEEDS)))
    for name in verdicts.CHOICES:
        choice = getattr(result, name)
        if choice is not None:
            console.print(Text(f"{name}: {choice.batch_size} ({choice.reason})"))
    if result.global_batch is not None and result.micro_batch is not None:
        console.print(
            Text(
                f"a batch of {result.global_batch}: {result.accumulation_steps} steps of {result.micro_batch}"
            )
        )
    for note in result.notes:
        console.print(Text(f"note: {note}", style="yellow"))
    for limit in result.limits:
        console.print(Text(f"not modelled: {limit}", style="yellow"))
    how = (
        "Sizes marked measured were run on the GPU"
        if result.confirmed
        else "All numbers are predicted"
    )
    console.print(
        Text(
            f"\n{how} (torch {result.torch_version}, {result.seconds:.1f} s to predict).",
            style="bright_black",
        )
    )


def _answer(result: MaxBatch) -> Text:
    sentence, tone = verdicts.of_max_batch(result)
    return Text(sentence, style=verdicts.STYLES[tone])


def _attempts(result: MaxBatch, bar_width: int) -> Table:
    """Numbers first: in a narrow terminal the bars go."""
    table = Table(title="Search", title_justify="left", box=None, pad_edge=False)
    for column in ("batch", "fits", "allocated", "reserved", "share", "retries", "step", "source"):
        table.add_column(column, justify="right", overflow="fold")
    if bar_width > 0:
        table.add_column("")
    for attempt in sorted(result.attempts, key=lambda a: (a.batch_size, a.source)):
        table.add_row(*_cells(attempt, result.capacity_bytes, bar_width)[: len(table.columns)])
    return table


def _cells(a: Attempt, capacity: int, bar_width: int) -> list[Text | str]:
    fits = a.outcome == "ok"
    share = None if a.peak_reserved_bytes is None else a.peak_reserved_bytes / capacity
    bar = "" if share is None else "█" * min(bar_width, round(bar_width * share))
    source = a.source if a.simulated else "interpolated"
    return [
        str(a.batch_size),
        Text(FITS.get(a.outcome, a.outcome.replace("_", " ")), style="green" if fits else "red"),
        "" if a.peak_allocated_bytes is None else format_bytes(a.peak_allocated_bytes),
        "" if a.peak_reserved_bytes is None else format_bytes(a.peak_reserved_bytes),
        "" if share is None else f"{100 * share:.1f} %",
        "" if a.num_alloc_retries is None else str(a.num_alloc_retries),
        "" if a.step_seconds is None else format_seconds(a.step_seconds),
        source,
        Text(bar, style="green" if fits else "red"),
    ]


def _speeds(result: MaxBatch, bar_width: int) -> Table:
    table = Table(title="\nSamples a second", title_justify="left", box=None, pad_edge=False)
    for column in ("batch", "step", "samples/s", "source", "bound by", ""):
        table.add_column(column, justify="left" if column == "" else "right")
    most = max(speed.samples_per_second for speed in result.speeds)
    for speed in result.speeds:
        table.add_row(*_speed_cells(speed, result, most, bar_width))
    return table


def _speed_cells(speed: Speed, result: MaxBatch, most: float, bar_width: int) -> list[Text | str]:
    marks = [
        name
        for name in ("knee", "fastest")
        if (choice := getattr(result, name)) and choice.batch_size == speed.batch_size
    ]
    if speed.empties_cache:
        marks.append("slower than shown")
    bar = "█" * max(1, round(bar_width * speed.samples_per_second / most)) if bar_width > 0 else ""
    style = "yellow" if speed.empties_cache else "green"
    return [
        str(speed.batch_size),
        format_seconds(speed.step_seconds),
        f"{speed.samples_per_second:.4g}",
        speed.source,
        speed.bound_by,
        Text(f"{bar} {', '.join(marks)}".strip(), style=style),
    ]


def _law(name: str, law: MemoryLaw) -> str:
    return f"{name} = {format_bytes(law.intercept_bytes)} + {format_bytes(law.bytes_per_sample)} per sample ({law.reach})"
