"""A prediction as sections, with measurements of the same workload beside and over it."""

from __future__ import annotations

from collections.abc import Sequence

from vramcast.records.measurement import Measurement
from vramcast.records.prediction import LargeTensor, Prediction
from vramcast.reporting.sections import (
    MEMORY_AXIS,
    NO_AXIS,
    PREDICTED,
    Chart,
    Column,
    Layer,
    Meter,
    Section,
    Table,
    Tone,
    View,
    count,
    duration,
    knobs_of,
    number,
    percent,
    predicted_with,
    size,
    table_of,
)
from vramcast.reporting.step_chart import (
    colour_of,
    described,
    run_chart,
    shape_of,
    step_chart,
    words,
)
from vramcast.units import format_bytes, format_count

MOST_BARS = 24
ONE_RUN = "one simulated run"
BOUND_BY = {
    "compute": "arithmetic takes most of it",
    "bandwidth": "memory bandwidth takes most of it",
    "launch": "the GPU waits for the host to launch kernels: "
    "a larger batch or torch.compile would use it better",
}


def of_prediction(
    p: Prediction, measured: Sequence[Measurement] = (), overlay: Sequence[Layer] = ()
) -> list[Section]:
    """`measured`: of the same workload and knobs; `overlay`: their memory through the step."""
    verdict, tone = _verdict(p)
    what = "Predicted" if measured else "All numbers are predicted"
    summary = Section(
        kind="Predicted",
        title=p.workload,
        subtitle=knobs_of(p.knobs),
        verdict=verdict,
        tone=tone,
        text=[_step_time(p)],
        figures=[_meter(p)],
        tables=[_totals(p, measured)],
        limits=p.limits,
        made=f"{what} {predicted_with(p.torch_version, p.seconds)}",
    )
    over_time = Section(title="Memory over time", figures=_over_time(p, measured, overlay))
    at_peak = Section(
        title="What is alive at the peak",
        figures=[_alive(p)],
        tables=[_breakdown(p), *largest_table(p.largest_tensors, "Largest tensors at the peak")],
    )
    return [summary, *([over_time] if over_time.figures else []), at_peak]


def where_of(gpu: str | None, capacity_bytes: int, spared: str = "") -> str:
    """The GPU and what PyTorch's allocator may take there."""
    return f"{gpu or 'the given memory'} ({format_bytes(capacity_bytes)} for the allocator{spared})"


def _verdict(p: Prediction) -> tuple[str, Tone]:
    needed = format_bytes(p.peak_reserved_bytes)
    if p.capacity_bytes is None:
        advice = "give --gpu NAME or --memory SIZE to see whether it fits"
        return f"takes {needed} (predicted); {advice}", Tone.PLAIN
    where = where_of(p.gpu, p.capacity_bytes)
    if not p.fits:
        failed = ""
        if p.failed_allocation_bytes is not None:
            failed = f"; an allocation of {format_bytes(p.failed_allocation_bytes)} fails"
        return f"✗ does not fit on {where}: needs {needed}{failed}", Tone.BAD
    text = f"✓ fits on {where}: {format_bytes(p.headroom_bytes or 0)} to spare"
    if not p.num_alloc_retries:
        return text, Tone.GOOD
    retries = f"{p.num_alloc_retries} times (slower)"
    return f"{text}, but the allocator has to empty its cache {retries}", Tone.UNSURE


def _step_time(p: Prediction) -> str:
    if p.step is None:
        return f"step time: not predicted ({p.step_seconds_reason})"
    tokens = "" if p.tokens_per_second is None else f", {p.tokens_per_second:,.0f} tokens/s"
    return (
        f"one step: {duration(p.step.seconds)}{tokens}, {100 * p.step.achieved_fraction:.0f} % "
        f"of the GPU's peak rate; {BOUND_BY.get(p.step.bound_by, '')}"
    )


def _meter(p: Prediction) -> Meter:
    return Meter(
        title="Reserved at the peak (predicted)",
        parts=[(words(name), size, colour_of(name)) for name, size in _categories(p)],
        capacity_bytes=p.capacity_bytes,
        capacity_name=p.gpu or "the given memory",
    )


def _categories(p: Prediction) -> list[tuple[str, int]]:
    return [(name, num_bytes) for name, num_bytes in p.breakdown_bytes.items() if num_bytes > 0]


def _totals(p: Prediction, measured: Sequence[Measurement]) -> Table:
    columns = [Column("predicted", left=True), Column("first step"), Column("peak")]
    first = size(p.first_step_allocated_bytes), size(p.first_step_reserved_bytes)
    process = "unknown without --gpu" if p.process_bytes is None else size(p.process_bytes)
    rows = [
        ["allocated (tensors)", first[0], size(p.peak_allocated_bytes)],
        ["reserved (by the allocator)", first[1], size(p.peak_reserved_bytes)],
        ["whole process (nvidia-smi)", "", process],
        ["allocator retries", "", str(p.num_alloc_retries)],
        ["parameters", "", format_count(p.num_parameters)],
        ["step time", "", duration(p.step_seconds)],
    ]
    for m in measured:
        columns.append(Column(f"peak, measured on {m.gpu or m.device}"))
        columns.append(Column("predicted less measured"))
        for row, cells in zip(rows, _measured_cells(p, m), strict=True):
            row += cells
    steps = "".join(f"; {count(m.steps_done, 'measured step')}" for m in measured)
    return Table(
        title="Memory and time",
        columns=columns,
        rows=[row for row in rows if any(row[1:])],
        origin="predicted, and measured where a column says so" if measured else PREDICTED,
        samples=f"{ONE_RUN} of a few steps{steps}",
    )


def _measured_cells(p: Prediction, m: Measurement) -> list[list[str]]:
    pairs = [
        (p.peak_allocated_bytes, m.peak_allocated_bytes),
        (p.peak_reserved_bytes, m.peak_reserved_bytes),
        (p.process_bytes, m.process_bytes),
    ]
    seconds = m.times.median_seconds if m.times else None
    return [
        *([size(real), _error(guess, real)] for guess, real in pairs),
        [number(m.num_alloc_retries), ""],
        ["" if m.num_parameters is None else format_count(m.num_parameters), ""],
        [duration(seconds), _error(p.step_seconds, seconds)],
    ]


def _error(predicted: float | None, measured: float | None) -> str:
    if predicted is None or not measured:
        return ""
    return "exact" if predicted == measured else percent(100 * (predicted / measured - 1), 3)


def _over_time(
    p: Prediction, measured: Sequence[Measurement], overlay: Sequence[Layer]
) -> list[Chart]:
    charts = [run_chart(p)] if p.timeline else []
    if p.step_memory is None:
        return charts
    peaks = [
        Layer(
            kind="across",
            name=f"peak reserved (measured on {m.gpu or m.device})",
            points=[[m.peak_reserved_bytes]],
            colour="measured",
            dashed=True,
        )
        for m in measured
        if m.peak_reserved_bytes is not None and not overlay
    ]
    step = step_chart(
        p.step_memory,
        origin=PREDICTED,
        capacity_bytes=p.capacity_bytes,
        peak_reserved_bytes=p.peak_reserved_bytes,
        measured=[*overlay, *peaks],
    )
    return [step, *charts]


Item = tuple[str, str, int, list[str]]  # label, category, bytes, details


def _alive(p: Prediction) -> Chart:
    largest_first = sorted(_categories(p), key=lambda item: -item[1])
    categories: list[Item] = [
        (words(name), name, num_bytes, [f"{words(name)}: {size(num_bytes)}"])
        for name, num_bytes in largest_first
    ]
    groups: list[Item] = [
        (
            f"{group.module or 'no module'} · {words(group.category)}",
            group.category,
            group.num_bytes,
            [size(group.num_bytes), count(group.num_tensors, "tensor")],
        )
        for group in p.alive_at_peak[:MOST_BARS]
    ]
    tensors: list[Item] = [
        (
            f"{i}. {t.name or t.operator.removeprefix('aten::')}",
            t.category,
            t.num_bytes,
            described(t),
        )
        for i, t in enumerate(p.largest_tensors, 1)
    ]
    views = {"by category": categories, "by module": groups, "by tensor": tensors}
    more = ""
    if len(p.alive_at_peak) > MOST_BARS:
        more = f" By module: the {MOST_BARS} largest groups of {len(p.alive_at_peak)}."
    return Chart(
        title=f"Alive at the peak ({p.peak_phase})",
        caption=f"Predicted, largest first.{more}",
        views=[
            View(name=name, x=MEMORY_AXIS, y=NO_AXIS, pointer="point", layers=_bars(items))
            for name, items in views.items()
            if items
        ],
        detail=True,
    )


def _bars(items: Sequence[Item]) -> list[Layer]:
    """A layer for each category, so that a legend says which colour is which."""
    ranked = list(enumerate(items))
    return [
        Layer(
            kind="bar",
            name=words(name),
            colour=colour_of(name),
            points=[[i[0], 0, i[2], rank] for rank, i in ranked if i[1] == name],
            details=[item[3] for item in items if item[1] == name],
        )
        for name in dict.fromkeys(item[1] for item in items)
    ]


def _breakdown(p: Prediction) -> Table:
    total = max(p.peak_reserved_bytes, 1)
    found = [(name, num_bytes) for name, num_bytes in p.breakdown_bytes.items() if num_bytes]
    return Table(
        title=f"What the memory is at the peak ({p.peak_phase})",
        columns=[Column("category", left=True), Column("memory"), Column("share")],
        rows=[[words(name), size(b), f"{100 * b / total:.1f} %"] for name, b in found],
        bars=[(num_bytes / total, name) for name, num_bytes in found],
        origin=PREDICTED,
        samples=ONE_RUN,
    )


def largest_table(tensors: Sequence[LargeTensor], title: str) -> list[Table]:
    """With the line of code first among what may go below in a narrow terminal."""
    if not tensors:
        return []
    return [
        table_of(
            tensors,
            [
                (Column("size"), lambda t: size(t.num_bytes)),
                (Column("what", left=True), lambda t: f"{words(t.category)} {t.name}".strip()),
                (Column("shape", left=True), shape_of),
                (Column("made by", left=True), lambda t: t.operator.removeprefix("aten::")),
                (Column("where", left=True), lambda t: f"{t.module} {t.source}".strip()),
            ],
            title=title,
            origin=PREDICTED,
            samples=ONE_RUN,
        )
    ]
