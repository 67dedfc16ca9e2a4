"""A plan in the terminal: a table and the reasons for every GPU, what the stages add up to, and document 001's table beside ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from vramcast.records.plan import DocumentComparison, DocumentRow, GpuPlan, Plan, Stage
from vramcast.reporting import verdicts
from vramcast.reporting.tensors import largest_tensors
from vramcast.text import printable
from vramcast.units import format_bytes, format_count

Column = tuple[str, Callable[[Stage], str]]


def show_plan(plan: Plan, console: Console) -> None:
    for gpu in plan.gpus:
        console.print(
            Panel(_answer(plan, gpu), title=Text(printable(plan.workload)), title_align="left")
        )
        console.print(_stages(gpu))
        console.print(_reasons(gpu))
        console.print(_in_the_way(gpu, console.width))
    if plan.document is not None:
        console.print(_document(plan.document))
    console.print(_footer(plan))


def _answer(plan: Plan, gpu: GpuPlan) -> Text:
    sentence, tone = verdicts.of_gpu_plan(plan, gpu)
    return Text(sentence, style=verdicts.STYLES[tone])


def _stages(gpu: GpuPlan) -> Table:
    """What is not predicted has no column: the footer says why."""
    table = Table(
        box=None, pad_edge=False, padding=(0, 1, 0, 0)
    )  # one space between columns: with times they just fit into 80
    shown = _columns(
        timed=any(stage.step_seconds is not None for stage in gpu.stages), started=gpu.complete
    )
    for name, _ in shown:
        table.add_column(name, justify="right", overflow="fold")
    for stage in gpu.stages:
        table.add_row(*(cell(stage) for _, cell in shown), style="" if stage.fits else "red")
    return table


def _columns(*, timed: bool, started: bool) -> list[Column]:
    columns: list[Column] = [
        ("length", lambda s: str(s.seq_len)),
        ("batch", lambda s: _number(s.batch_size, "none")),
        ("accum", lambda s: _number(s.accumulation_steps)),
        ("tokens", lambda s: _number(s.tokens_per_step)),
        (
            "memory",
            lambda s: "" if s.peak_reserved_bytes is None else format_bytes(s.peak_reserved_bytes),
        ),
        (
            "share",
            lambda s: "" if s.share_of_memory is None else f"{100 * s.share_of_memory:.0f} %",
        ),
        ("binds", lambda s: s.binds or ("" if s.fits else "memory")),
    ]
    if timed:
        columns += [
            ("tok/s", lambda s: _rate(s.tokens_per_second)),
            ("smp/s", lambda s: _rate(s.samples_per_second)),
            ("hours", lambda s: _rate(s.hours_to_budget)),
        ]
    return [*columns, ("start", lambda s: _number(s.start_step))] if started else columns


def _number(value: int | None, otherwise: str = "") -> str:
    return otherwise if value is None else str(value)


def _rate(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _reasons(gpu: GpuPlan) -> Table:
    table = Table(title="\nWhy", title_justify="left", box=None, pad_edge=False, show_header=False)
    table.add_column(justify="right")
    table.add_column(overflow="fold")
    for stage in gpu.stages:
        table.add_row(str(stage.seq_len), Text(stage.why))
    return table


def _in_the_way(gpu: GpuPlan, width: int) -> RenderableType:
    """For the first length at which nothing fits: what is largest there is at longer ones too."""
    stage = next((stage for stage in gpu.stages if not stage.fits), None)
    if stage is None:
        return Text()
    missing = Text(
        f"\nAt length {stage.seq_len} {format_bytes(stage.missing_bytes or 0)} are missing",
        style="red",
    )
    return Group(missing, largest_tensors(stage.largest_tensors, width, "Largest in memory there"))


def _document(comparison: DocumentComparison) -> RenderableType:
    title = Text(f"Document {comparison.document}, beside ours on {comparison.gpu}")
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    timed = any(row.tokens_per_second is not None for row in comparison.rows)
    names = [
        "length",
        "its batch",
        "logits",
        "needs",
        "fits",
        "ours",
        f"in {comparison.chunks} chunks",
    ]
    for name in [*names, *(["its tok/s", "our tok/s"] if timed else [])]:
        table.add_column(name, justify="right", overflow="fold")
    for row in comparison.rows:
        rates = (
            [_rate(row.document_tokens_per_second), _rate(row.tokens_per_second)] if timed else []
        )
        table.add_row(*_document_cells(row), *rates)
    return Group(title, table, *(Text(printable(note)) for note in comparison.notes))


def _document_cells(row: DocumentRow) -> Sequence[Text | str]:
    return [
        str(row.seq_len),
        str(row.document_batch),
        format_bytes(row.logits_bytes),
        format_bytes(row.document_needs_bytes),
        Text("yes", style="green") if row.document_fits else Text("no", style="red"),
        _number(row.batch_size, "none"),
        _number(row.chunked_batch_size),
    ]


def _footer(plan: Plan) -> RenderableType:
    lines = [Text("\nstart: the step at which the length begins"), Text(f"tokens: {plan.split}")]
    if any(stage.hours_to_budget is not None for gpu in plan.gpus for stage in gpu.stages):
        lines.append(
            Text(f"hours: to {format_count(plan.tokens)} tokens, all of them at that length")
        )
    if plan.step_seconds_reason:
        lines.append(Text(f"not predicted: {plan.step_seconds_reason}", style="yellow"))
    for gpu in plan.gpus:
        lines += [
            Text(printable(f"not modelled on {gpu.gpu or 'the GPU'}: {limit}"), style="yellow")
            for limit in gpu.limits
        ]
    return Group(
        *lines,
        Text(
            f"\nAll numbers are predicted (torch {plan.torch_version}, no GPU used, {plan.seconds:.1f} s).",
            style="bright_black",
        ),
    )
