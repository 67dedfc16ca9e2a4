"""A measurement as sections."""

from __future__ import annotations

import math
from collections.abc import Sequence

from vramcast.downsampling import downsample
from vramcast.records.measurement import Measurement, Memory, Outcome
from vramcast.reporting.sections import (
    MEASURED,
    Axis,
    Chart,
    Column,
    Layer,
    Meter,
    Remark,
    Section,
    Table,
    Tone,
    View,
    chart,
    count,
    duration,
    knobs_of,
    number,
    size,
)
from vramcast.reporting.trace import of_trace
from vramcast.tracing.trace import Trace
from vramcast.units import format_count

MOST_POINTS = 400
FAILED = (Outcome.OUT_OF_MEMORY, Outcome.PAGING, Outcome.TIMEOUT, Outcome.CRASHED)
STEP_AXIS = Axis(label="step", unit="number")
SECONDS_AXIS = Axis(label="time of a step", unit="seconds")


def of_measurement(m: Measurement, trace: Trace | None = None) -> list[Section]:
    verdict, tone = _verdict(m)
    cuda = f", CUDA {m.cuda_version}" if m.cuda_version else ""
    torch = f"torch {m.torch_version}{cuda}" if m.torch_version else "torch did not start"
    judged = m.verdict.not_judged.items()
    summary = Section(
        kind="Measured",
        title=m.workload,
        subtitle=knobs_of(m.knobs),
        verdict=verdict,
        tone=tone,
        text=[m.error] if m.error else [],
        remarks=[
            Remark(text=f"not judged: {gate} ({why})", tone=Tone.UNSURE) for gate, why in judged
        ],
        figures=_meters(m),
        tables=[_memory(m), *_times(m), _facts(m)],
        notes=m.notes,
        made=f"Measured on {m.gpu or 'the CPU'} ({torch}) in {duration(m.seconds)}.",
    )
    steps = Section(title="Every step", figures=[*_time_chart(m), *_loss_chart(m)])
    through = of_trace(trace)[:1] if trace is not None else []
    return [summary, *([steps] if steps.figures else []), *through]


def _verdict(m: Measurement) -> tuple[str, Tone]:
    reasons = ", ".join(m.verdict.fail_reasons)
    if m.outcome == Outcome.OK:
        if m.verdict.stable:
            steps = f"{m.steps_done} steps measured after {m.warmup_steps} to warm up"
            return f"✓ stable: {steps}", Tone.GOOD
        return f"✗ ran, but is not stable: {reasons}", Tone.UNSURE
    where = f" ({m.out_of_memory_on} memory)" if m.out_of_memory_on else ""
    signal = f" ({m.signal})" if m.signal else ""
    text = f"✗ {m.outcome.replace('_', ' ')}{where}{signal}{f': {reasons}' if reasons else ''}"
    return text, Tone.BAD if m.outcome in FAILED else Tone.UNSURE


def _meters(m: Measurement) -> list[Meter]:
    if m.peak_reserved_bytes is None or m.peak_allocated_bytes is None or m.capacity_bytes is None:
        return []
    unused = max(0, m.peak_reserved_bytes - m.peak_allocated_bytes)
    return [
        Meter(
            title="Reserved at the peak (measured)",
            parts=[
                ("allocated", m.peak_allocated_bytes, "allocated"),
                ("cached unused", unused, "cached_unused"),
            ],
            capacity_bytes=min(m.capacity_bytes, m.memory_cap_bytes or m.capacity_bytes),
            capacity_name=m.gpu or m.device,
        )
    ]


def _memory(m: Measurement) -> Table:
    phases: Sequence[Memory | None] = (m.first_step, m.cold, m.warm)
    allocated = [size(phase.allocated_bytes) if phase else "" for phase in phases]
    reserved = [size(phase.reserved_bytes) if phase else "" for phase in phases]
    parameters = "" if m.num_parameters is None else format_count(m.num_parameters)
    rows = [
        ["allocated (tensors)", *allocated, size(m.peak_allocated_bytes)],
        ["reserved (by the allocator)", *reserved, size(m.peak_reserved_bytes)],
        ["whole process", "", "", "", size(m.process_bytes)],
        ["CUDA context", "", "", "", size(m.context_bytes)],
        ["allocator retries", "", "", "", number(m.num_alloc_retries)],
        ["parameters", "", "", "", parameters],
    ]
    names = ("first step", "warming up", "warm", "peak")
    on_cpu = m.device == "cpu"
    return Table(
        title="Memory",
        columns=[Column("measured", left=True), *map(Column, names)],
        rows=[rows[0], rows[-1]]
        if on_cpu
        else [rows[0], *(row for row in rows[1:] if any(row[1:]))],
        origin=MEASURED,
        samples=_samples(m),
    )


def _samples(m: Measurement) -> str:
    steps = count(m.steps_done, "measured step")
    return f"{steps} after {m.warmup_steps} to warm up, in one process"


def _times(m: Measurement) -> list[Table]:
    if m.times is None:
        return []
    names = ("median", "p95", "spread", "samples/s", "tokens/s")
    row = [
        duration(m.times.median_seconds),
        duration(m.times.p95_seconds),
        f"{100 * m.times.spread:.1f} %",
        number(m.samples_per_second, ",.1f"),
        number(m.tokens_per_second, ",.0f"),
        m.times.clock,
    ]
    return [
        Table(
            title="Time of a step",
            columns=[*map(Column, names), Column("clock", left=True)],
            rows=[row],
            origin=MEASURED,
            samples=_samples(m),
        )
    ]


def _facts(m: Measurement) -> Table:
    """What a run folder's summary needs to stand alone."""
    return Table(
        title="The run",
        columns=[Column("", left=True), Column("", left=True)],
        rows=[
            ["outcome", m.outcome],
            ["workload id", m.workload_id],
            ["device", m.gpu or m.device],
            ["driver", m.driver_version or "none"],
            ["allocator settings", m.allocator_settings or "defaults"],
            ["steps", f"{m.steps_done} of {m.measure_steps} measured, {m.warmup_steps} to warm up"],
        ],
        origin=MEASURED,
        samples="one process",
        detail=True,
    )


def _time_chart(m: Measurement) -> list[Chart]:
    if m.times is None or not m.times.seconds:
        return []
    first = len(m.warmup_seconds)
    measured = _line("measured", "measured", m.times.seconds, first)
    warmup = _line("warm-up", "cached_unused", m.warmup_seconds, 0)
    median = Layer(
        kind="across",
        name="median",
        points=[[m.times.median_seconds]],
        colour="capacity",
        dashed=True,
    )
    x, y = STEP_AXIS, SECONDS_AXIS
    views = [View(name="measured steps", x=x, y=y, layers=[measured, median])]
    if m.warmup_seconds:
        layers = [warmup, measured, median]
        views.append(View(name="with the warm-up", x=x, y=y, layers=layers))
    thinned = _thinned_note(max(len(m.times.seconds), first))
    caption = f"Measured: {_samples(m)}.{thinned}"
    return [Chart(title="Time of every step", caption=caption, views=views)]


def _line(name: str, colour: str, values: Sequence[float], first: int) -> Layer:
    points = _thinned([[first + i, value] for i, value in enumerate(values, 1)])
    return Layer(kind="line", name=name, points=points, colour=colour)


def _thinned(points: Sequence[list[float]]) -> list[list[float]]:
    return [points[index] for index in downsample([y for _, y in points], MOST_POINTS)]


def _loss_chart(m: Measurement) -> list[Chart]:
    losses = [
        [i, loss] for i, loss in enumerate(m.losses, 1) if loss is not None and math.isfinite(loss)
    ]
    if not losses:
        return []
    lost = len(m.losses) - len(losses)
    missing = f" {count(lost, 'step')} had no finite loss." if lost else ""
    return [
        chart(
            "Loss",
            f"Measured, warm-up included.{missing}{_thinned_note(len(losses))}",
            STEP_AXIS,
            Axis(label="loss", unit="number"),
            [Layer(kind="line", name="loss", points=_thinned(losses), colour="measured")],
            detail=False,
        )
    ]


def _thinned_note(num_points: int) -> str:
    if num_points <= MOST_POINTS:
        return ""
    return f" Of {num_points:,} steps the lowest and the highest of every stretch are drawn."
