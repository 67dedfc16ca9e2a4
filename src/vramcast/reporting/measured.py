"""A measurement in the terminal: the verdict, memory, time, losses."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from vramcast.records.measurement import Measurement, Memory
from vramcast.reporting import verdicts
from vramcast.reporting.blocks import FRAME, block
from vramcast.text import printable, whole_words
from vramcast.units import format_bytes, format_count, format_seconds

WIDEST_LINE = 60


def show_measurement(m: Measurement, console: Console) -> None:
    title = printable(" ".join([m.workload, *(f"{key}={value}" for key, value in m.knobs.items())]))
    console.print(
        Panel(_answer(m), title=Text(whole_words(title, console.width - FRAME)), title_align="left")
    )
    if m.error:
        console.print(Text(m.error.rstrip(), style="red"))
    if m.peak_allocated_bytes is not None:
        console.print(_memory_table(m))
    if m.times is not None:
        console.print(_time_table(m))
    losses = [loss for loss in m.losses if loss is not None]
    if losses:
        console.print(Text(f"loss {losses[0]:.4f} → {losses[-1]:.4f}  {sparkline(losses)}"))
    for name, reason in m.verdict.not_judged.items():
        console.print(Text(f"not judged: {name} ({reason})", style="yellow"))
    for note in m.notes:
        console.print(Text(f"note: {note}", style="yellow"))
    where = m.gpu or "the CPU"
    cuda = f", CUDA {m.cuda_version}" if m.cuda_version else ""
    torch = f"torch {m.torch_version}{cuda}" if m.torch_version else "torch did not start"
    console.print(
        Text(
            f"\nMeasured on {where} ({torch}) in {format_seconds(m.seconds)}.", style="bright_black"
        )
    )


def _answer(m: Measurement) -> Text:
    sentence, tone = verdicts.of_measurement(m)
    return Text(sentence, style=verdicts.STYLES[tone])


def _memory_table(m: Measurement) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("measured memory", "first step", "warming up", "warm", "peak"):
        table.add_column(column, justify="left" if column == "measured memory" else "right")
    phases: tuple[Memory | None, ...] = (m.first_step, m.cold, m.warm)

    def row(name: str, field: str, peak: int | None) -> None:
        cells = [format_bytes(getattr(memory, field)) if memory else "" for memory in phases]
        table.add_row(name, *cells, "" if peak is None else format_bytes(peak))

    row("allocated (tensors)", "allocated_bytes", m.peak_allocated_bytes)
    if m.device != "cpu":
        row("reserved (by the allocator)", "reserved_bytes", m.peak_reserved_bytes)
        table.add_row(
            "whole process",
            "",
            "",
            "",
            "" if m.process_bytes is None else format_bytes(m.process_bytes),
        )
        table.add_row(
            "allocator retries",
            "",
            "",
            "",
            "" if m.num_alloc_retries is None else str(m.num_alloc_retries),
        )
    if m.num_parameters is not None:
        table.add_row("parameters", "", "", "", format_count(m.num_parameters))
    return table


def _time_table(m: Measurement) -> Table:
    assert m.times is not None
    table = Table(box=None, pad_edge=False)
    for column in ("step time", "median", "p95", "spread", "samples/s", "tokens/s"):
        table.add_column(column, justify="left" if column == "step time" else "right")
    table.add_row(
        sparkline(m.times.seconds),
        format_seconds(m.times.median_seconds),
        format_seconds(m.times.p95_seconds),
        f"{100 * m.times.spread:.1f} %",
        "" if m.samples_per_second is None else f"{m.samples_per_second:,.1f}",
        "" if m.tokens_per_second is None else f"{m.tokens_per_second:,.0f}",
    )
    return table


def sparkline(values: Sequence[float]) -> str:
    shown = (
        values
        if len(values) <= WIDEST_LINE
        else [values[i * len(values) // WIDEST_LINE] for i in range(WIDEST_LINE)]
    )
    finite = [v for v in shown if math.isfinite(v)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    # halves: the distance of two numbers may be no number
    height = high / 2 - low / 2
    return "".join(
        block((v / 2 - low / 2) / height if height else 0.0) if math.isfinite(v) else "?"
        for v in shown
    )
