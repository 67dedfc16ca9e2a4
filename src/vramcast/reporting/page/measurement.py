"""A measurement, and the trace of one, as sections."""

from __future__ import annotations

from collections.abc import Sequence

from vramcast.allocator.settings import AllocatorSettings
from vramcast.downsampling import downsample
from vramcast.forecast.step_memory import step_memory
from vramcast.records.measurement import Measurement
from vramcast.records.prediction import LargeTensor, StepMemory
from vramcast.reporting import verdicts
from vramcast.reporting.page.bench import MOST_POINTS
from vramcast.reporting.page.sections import (
    MEASURED,
    Axis,
    Chart,
    Column,
    Layer,
    Meter,
    Section,
    Table,
    View,
    count,
    duration,
    knobs_of,
    number,
    size,
)
from vramcast.reporting.page.through_step import step_chart
from vramcast.tracing.files import MemoryTrace

SUM = "allocated is the sum of the tensors, each rounded up to 512 bytes; the allocator may count a little more for blocks it did not split"


def of_measurement(m: Measurement, trace: MemoryTrace | None = None) -> list[Section]:
    sentence, tone = verdicts.of_measurement(m)
    where = m.gpu or "the CPU"
    cuda = f", CUDA {m.cuda_version}" if m.cuda_version else ""
    torch = f"torch {m.torch_version}{cuda}" if m.torch_version else "torch did not start"
    summary = Section(
        title=f"Measured: {m.workload}",
        subtitle=knobs_of(m.knobs),
        verdict=sentence,
        tone=tone,
        text=[
            f"Measured on {where} ({torch}) in {duration(m.seconds)}.",
            *([m.error] if m.error else []),
        ],
        figures=_meters(m),
        tables=[
            _memory(m),
            *([_times(m)] if m.times else []),
            *([_gates(m)] if m.verdict.not_judged else []),
        ],
    )
    steps = Section(title="Every step", figures=_step_charts(m))
    through = of_trace(trace)[:1] if trace is not None else []
    return [summary, *([steps] if steps.figures else []), *through]


def _meters(m: Measurement) -> list[Meter]:
    if m.peak_reserved_bytes is None or m.peak_allocated_bytes is None or m.capacity_bytes is None:
        return []
    parts = [
        ("allocated", m.peak_allocated_bytes, "allocated"),
        ("cached unused", m.peak_reserved_bytes - m.peak_allocated_bytes, "cached_unused"),
    ]
    capacity = min(m.capacity_bytes, m.memory_cap_bytes or m.capacity_bytes)
    return [
        Meter(
            title="Reserved at the peak (measured)",
            parts=parts,
            capacity_bytes=capacity,
            capacity_name=m.gpu or m.device,
        )
    ]


def _memory(m: Measurement) -> Table:
    phases = (m.first_step, m.cold, m.warm)
    rows = [
        [
            "allocated (tensors)",
            *(size(p.allocated_bytes) if p else "" for p in phases),
            size(m.peak_allocated_bytes),
        ]
    ]
    if m.device != "cpu":
        rows.append(
            [
                "reserved (by the allocator)",
                *(size(p.reserved_bytes) if p else "" for p in phases),
                size(m.peak_reserved_bytes),
            ]
        )
        rows.append(["whole process", "", "", "", size(m.process_bytes)])
        rows.append(["CUDA context", "", "", "", size(m.context_bytes)])
        rows.append(["allocator retries", "", "", "", number(m.num_alloc_retries)])
    rows.append(["parameters", "", "", "", number(m.num_parameters)])
    columns = [
        Column("", left=True),
        Column("first step"),
        Column("warming up"),
        Column("warm"),
        Column("peak"),
    ]
    return Table(
        title="Memory",
        columns=columns,
        rows=rows,
        origin=MEASURED,
        samples=_samples(m),
        notes=m.notes,
    )


def _samples(m: Measurement) -> str:
    return (
        f"{count(m.steps_done, 'measured step')} after {m.warmup_steps} to warm up, in one process"
    )


def _times(m: Measurement) -> Table:
    assert m.times is not None
    columns = [
        Column("median"),
        Column("p95"),
        Column("spread"),
        Column("rate", "samples/s"),
        Column("rate", "tokens/s"),
        Column("clock", left=True),
    ]
    row = [
        duration(m.times.median_seconds),
        duration(m.times.p95_seconds),
        f"{100 * m.times.spread:.1f} %",
    ]
    row += [
        number(m.samples_per_second, ",.1f"),
        number(m.tokens_per_second, ",.0f"),
        m.times.clock,
    ]
    return Table(
        title="Time of a step", columns=columns, rows=[row], origin=MEASURED, samples=_samples(m)
    )


def _gates(m: Measurement) -> Table:
    rows = [[name, reason] for name, reason in m.verdict.not_judged.items()]
    return Table(
        title="Not judged",
        columns=[Column("gate", left=True), Column("why", left=True)],
        rows=rows,
        origin=MEASURED,
        samples=_samples(m),
    )


def _step_charts(m: Measurement) -> list[Chart]:
    charts = []
    if m.times is not None and m.times.seconds:
        first = len(m.warmup_seconds)
        layers = [
            Layer(
                kind="line",
                name="measured",
                points=_thinned([[first + i + 1, s] for i, s in enumerate(m.times.seconds)]),
                colour="measured",
            ),
            Layer(
                kind="across",
                name="median",
                points=[[m.times.median_seconds]],
                colour="capacity",
                dashed=True,
            ),
        ]
        views = [
            View(
                name="measured steps",
                x=Axis(label="step", unit="number"),
                y=Axis(label="time of a step", unit="seconds"),
                layers=layers,
            )
        ]
        if m.warmup_seconds:
            points = _thinned([[i + 1, s] for i, s in enumerate(m.warmup_seconds)])
            warmup = Layer(kind="line", name="warm-up", points=points, colour="cached_unused")
            views.append(
                View(name="with the warm-up", x=views[0].x, y=views[0].y, layers=[warmup, *layers])
            )
        thinned = _thinned_note(max(len(m.times.seconds), first))
        charts.append(
            Chart(
                title="Time of every step",
                caption=f"Measured: {_samples(m)}.{thinned}",
                views=views,
            )
        )
    losses = [
        [i + 1, loss]
        for i, loss in enumerate(m.losses)
        if loss is not None and abs(loss) < float("inf")
    ]
    if losses:
        layer = Layer(kind="line", name="loss", points=_thinned(losses), colour="measured")
        view = View(
            name="",
            x=Axis(label="step", unit="number"),
            y=Axis(label="loss", unit="number"),
            layers=[layer],
        )
        lost = len(m.losses) - len(losses)
        missing = f" {count(lost, 'step')} had no finite loss." if lost else ""
        charts.append(
            Chart(
                title="Loss",
                caption=f"Measured, warm-up included.{missing}{_thinned_note(len(losses))}",
                views=[view],
            )
        )
    return charts


def _thinned(points: Sequence[list[float]]) -> list[list[float]]:
    kept = downsample([seconds for _, seconds in points], MOST_POINTS)
    return [points[index] for index in kept]


def _stretch(num_points: int) -> int:
    return -(-2 * num_points // (MOST_POINTS - 2))


def _thinned_note(num_points: int) -> str:
    return (
        f" Drawn are the lowest and the highest of every {_stretch(num_points):,} steps."
        if num_points > MOST_POINTS
        else ""
    )


def of_trace(trace: MemoryTrace) -> list[Section]:
    """Of the step with the most allocated. What is reserved is the allocator's affair and not in a trace."""
    memory = memory_of(trace)
    if memory is None:
        return [
            Section(
                title=trace.workload,
                subtitle=knobs_of(trace.knobs),
                verdict="The trace has no allocation.",
                tone=verdicts.UNSURE,
            )
        ]
    chart = step_chart(memory, origin=trace.source, capacity_bytes=None, peak_reserved_bytes=None)
    return [
        Section(
            title=f"{trace.workload}: {trace.source} trace",
            subtitle=knobs_of(trace.knobs),
            figures=[chart],
            tables=[_trace_table(trace, memory)],
        )
    ]


def memory_of(trace: MemoryTrace) -> StepMemory | None:
    if not trace.allocations:
        return None
    block_bytes = [AllocatorSettings().rounded(size) for size in trace.sizes]
    categories = [a.facts.get("category", "tensors") for a in trace.allocations]
    return step_memory(trace.events, block_bytes, categories, lambda number: _tensor(trace, number))


def _tensor(trace: MemoryTrace, number: int) -> LargeTensor:
    a = trace.allocations[number - 1]
    node = f" ({a.facts['node']})" if "node" in a.facts else ""
    facts = {name: a.facts.get(name, "") for name in ("name", "module", "source")}
    return LargeTensor(
        num_bytes=a.num_bytes,
        category=a.facts.get("category", ""),
        shape=[],
        dtype="",
        operator=f"{a.op}{node}",
        **facts,
    )


def _trace_table(trace: MemoryTrace, memory: StepMemory) -> Table:
    columns = [Column("", left=True), Column("", left=True)]
    rows = [
        ["GPU", trace.gpu or ""],
        ["torch", trace.torch_version],
        ["steps", number(len(trace.steps))],
        ["allocations", number(len(trace.allocations))],
        ["most allocated", size(memory.points[memory.peak_point][1])],
        ["in", memory.phase],
    ]
    return Table(
        title="The trace",
        columns=columns,
        rows=rows,
        origin=trace.source,
        samples="every allocation of one run",
        notes=[SUM],
    )


def overlay_of(traces: Sequence[MemoryTrace]) -> list[Layer]:
    """What was measured, to be laid over a prediction."""
    layers = []
    for trace in traces:
        memory = memory_of(trace)
        if memory is not None:
            layers.append(
                Layer(
                    kind="step",
                    name="allocated (measured)",
                    points=[p[:2] for p in memory.points],
                    colour="measured",
                    dashed=True,
                )
            )
    return layers
