"""A prediction as people like to look at it: tables, bars and a timeline in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from vramcast.records.prediction import BatchSizeCurve, Prediction
from vramcast.reporting import verdicts
from vramcast.reporting.blocks import BLOCKS, COLOURS, FRAME, block
from vramcast.reporting.tensors import largest_tensors
from vramcast.text import printable, whole_words
from vramcast.units import format_bytes, format_count, format_seconds

BAR_WIDTH = 40


def show_prediction(prediction: Prediction, console: Console) -> None:
    console.print(
        Panel(
            _answer(prediction), title=Text(_title(prediction, console.width)), title_align="left"
        )
    )
    console.print(_memory_table(prediction))
    console.print(_step(prediction))
    console.print(_breakdown_table(prediction))
    console.print(_timeline(prediction.timeline))
    if prediction.largest_tensors:
        console.print()
        console.print(
            largest_tensors(
                prediction.largest_tensors, console.width, "Largest tensors at the peak"
            )
        )
    console.print(_footer(prediction.limits, prediction.torch_version, prediction.seconds))


def _answer(prediction: Prediction) -> Text:
    sentence, tone = verdicts.of_prediction(prediction)
    return Text(sentence, style=verdicts.STYLES[tone])


def _title(prediction: Prediction, width: int) -> str:
    knobs = " ".join(f"{key}={value}" for key, value in prediction.knobs.items())
    return whole_words(printable(f"{prediction.workload} {knobs}"), width - FRAME)


def _memory_table(p: Prediction) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("predicted", "first step", "peak"):
        table.add_column(column, justify="left" if column == "predicted" else "right")
    table.add_row(
        "allocated (tensors)",
        format_bytes(p.first_step_allocated_bytes),
        format_bytes(p.peak_allocated_bytes),
    )
    table.add_row(
        "reserved (by the allocator)",
        format_bytes(p.first_step_reserved_bytes),
        format_bytes(p.peak_reserved_bytes),
    )
    process = "unknown without --gpu" if p.process_bytes is None else format_bytes(p.process_bytes)
    table.add_row("whole process (nvidia-smi)", "", process)
    table.add_row("parameters", "", format_count(p.num_parameters))
    return table


def _step(p: Prediction) -> Text:
    if p.step is None:
        return Text(f"step time: not predicted ({p.step_seconds_reason})")
    tokens = "" if p.tokens_per_second is None else f", {p.tokens_per_second:,.0f} tokens/s"
    share = f", {100 * p.step.achieved_fraction:.0f} % of the GPU's peak rate"
    return Text(
        f"one step: {format_seconds(p.step.seconds)}{tokens}{share}; {verdicts.BOUND_BY[p.step.bound_by]}\n"
    )


def _breakdown_table(p: Prediction) -> Table:
    table = Table(
        title=f"What the memory is at the peak ({p.peak_phase})",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    table.add_column("")
    table.add_column("", justify="right")
    table.add_column("", justify="right")
    table.add_column("")
    total = max(p.peak_reserved_bytes, 1)
    for category, num_bytes in p.breakdown_bytes.items():
        if num_bytes:
            bar = Text(
                "█" * max(1, round(BAR_WIDTH * num_bytes / total)),
                style=COLOURS.get(category, "white"),
            )
            table.add_row(
                category.replace("_", " "),
                format_bytes(num_bytes),
                f"{100 * num_bytes / total:.1f} %",
                bar,
            )
    return table


def _timeline(points: Sequence[Sequence[int]]) -> RenderableType:
    """Allocated memory over the simulated run, one column a moment."""
    top = max((reserved for _, _, reserved in points), default=1) or 1
    columns = 80
    heights = [
        max(
            (
                p[1]
                for p in points[
                    i * len(points) // columns : max(
                        (i + 1) * len(points) // columns, i * len(points) // columns + 1
                    )
                ]
            ),
            default=0,
        )
        for i in range(columns)
    ]
    line = "".join(block(height / top, " " + BLOCKS) for height in heights)
    return Group(Text(), Text("Allocated over build and steps"), Text(line, style="green"))


def _footer(limits: Sequence[str], torch_version: str, seconds: float) -> RenderableType:
    lines = [Text(f"not modelled: {limit}", style="yellow") for limit in limits]
    return Group(
        *lines,
        Text(
            f"\nAll numbers are predicted (torch {torch_version}, no GPU used, {seconds:.1f} s).",
            style="bright_black",
        ),
    )


def show_curve(curve: BatchSizeCurve, console: Console) -> None:
    title = Text(printable(f"{curve.workload}: predicted memory by batch size"))
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in ("batch", "allocated", "reserved", "fits", "retries", "source"):
        table.add_column(column, justify="right")
    for point in curve.points:
        table.add_row(
            str(point.batch_size),
            format_bytes(point.peak_allocated_bytes),
            format_bytes(point.peak_reserved_bytes),
            Text("yes", style="green") if point.fits else Text("no", style="red"),
            str(point.num_alloc_retries),
            "simulated" if point.simulated else "interpolated",
        )
    console.print(table)
    console.print(_footer(curve.limits, curve.torch_version, curve.seconds))
