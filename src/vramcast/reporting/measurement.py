"""A measurement as sections."""

import math
from collections.abc import Sequence

from vramcast.downsampling import downsample
from vramcast.records.measurement import Measurement, Outcome
from vramcast.reporting import sections as page
from vramcast.reporting.phases import phases_table
from vramcast.reporting.ranks import ranks_chart
from vramcast.reporting.trace import of_trace
from vramcast.tracing.trace import Trace

MOST_POINTS = 400
FAILED = (Outcome.OUT_OF_MEMORY, Outcome.PAGING, Outcome.TIMEOUT, Outcome.CRASHED)
STEP_AXIS = page.Axis("step")


def of_measurement(m: Measurement, trace: Trace | None = None) -> list[page.Section]:
    cuda = page.given(", CUDA {}", m.cuda_version)
    torch = f"torch {m.torch_version}{cuda}" if m.torch_version else "torch did not start"
    judged = m.verdict.not_judged.items()
    summary = page.Section(
        kind="Measured",
        title=m.workload,
        knobs=m.knobs,
        verdict=_verdict(m),
        text=[m.error or ""],
        parts=[
            *(page.unsure(f"not judged: {gate} ({why})") for gate, why in judged),
            _meter(m),
            _memory(m),
            phases_table(m.phases, page.MEASURED, "one process") if m.phases else None,
            _ranks(m),
            ranks_chart(
                [
                    (one.rank, one.peak_allocated_bytes, one.peak_reserved_bytes)
                    for one in m.ranks
                    if one.peak_allocated_bytes is not None and one.peak_reserved_bytes is not None
                ],
                m.capacity_bytes,
                page.MEASURED,
            ),
            _times(m),
            page.facts(
                "The run",
                {
                    "outcome": m.outcome,
                    "workload id": m.workload_id,
                    "device": m.gpu or m.device,
                    "driver": m.driver_version or "none",
                    "allocator settings": m.allocator_settings or "defaults",
                    "steps": f"{m.steps_done} of {m.measure_steps} measured, "
                    f"{m.warmup_steps} to warm up",
                },
                origin=page.MEASURED,
                samples="one process",
                detail=True,
            ),
        ],
        notes=m.notes,
        made=f"Measured on {m.gpu or 'the CPU'} ({torch}) in {page.duration(m.seconds)}.",
    )
    steps = page.Section(title="Every step", parts=[_time_chart(m), _loss_chart(m)])
    through = of_trace(trace) if trace is not None else []
    return [summary, *([steps] if steps.figures else []), *through]


def _ranks(m: Measurement) -> page.Table | None:
    if not m.ranks:
        return None
    return page.table_of(
        m.ranks,
        {
            "rank": "rank",
            "outcome": lambda one: one.outcome.replace("_", " "),
            "allocated": "peak_allocated_bytes",
            "reserved": "peak_reserved_bytes",
            "whole process": "process_bytes",
        },
        left=("outcome",),
        title=f"Ranks ({m.world_size} processes)",
        origin=page.MEASURED,
        samples="one process each",
    )


def _verdict(m: Measurement) -> page.Remark:
    reasons = ", ".join(m.verdict.fail_reasons)
    if m.outcome == Outcome.OK:
        if not m.verdict.stable:
            return page.unsure(f"✗ ran, but is not stable: {reasons}")
        return page.good(f"stable: {m.steps_done} steps measured after {m.warmup_steps} to warm up")
    where = page.given(" ({} memory)", m.out_of_memory_on) + page.given(" ({})", m.signal)
    text = f"{m.outcome.replace('_', ' ')}{where}{page.given(': {}', reasons)}"
    return page.bad(text) if m.outcome in FAILED else page.unsure(f"✗ {text}")


def _meter(m: Measurement) -> page.Meter | None:
    allocated, reserved, capacity = m.peak_allocated_bytes, m.peak_reserved_bytes, m.capacity_bytes
    if allocated is None or reserved is None or capacity is None:
        return None
    return page.Meter(
        title="Reserved at the peak (measured)",
        parts=[
            ("allocated", allocated, "allocated"),
            ("cached unused", max(0, reserved - allocated), "cached_unused"),
        ],
        capacity_bytes=min(capacity, m.memory_cap_bytes or capacity),
        capacity_name=m.gpu or m.device,
    )


def _memory(m: Measurement) -> page.Table:
    phases = (m.first_step, m.cold, m.warm)

    def row(name: str, field: str, peak: str) -> list[str]:
        return [name, *(page.size(getattr(phase, field, None)) for phase in phases), peak]

    rows = [
        row("allocated (tensors)", "allocated_bytes", page.size(m.peak_allocated_bytes)),
        row("reserved (by the allocator)", "reserved_bytes", page.size(m.peak_reserved_bytes)),
        row("whole process", "", page.size(m.process_bytes)),
        row("CUDA context", "", page.size(m.context_bytes)),
        row("allocator retries", "", page.number(m.num_alloc_retries)),
        row("parameters", "", page.amount(m.num_parameters)),
    ]
    known = [rows[0], *(row for row in rows[1:] if any(row[1:]))]
    if m.device == "cpu":
        known = [rows[0], rows[-1]]
    columns = ["measured", "first step", "warming up", "warm", "peak"]
    if m.phases:  # a program has a table of its phases
        columns, known = [columns[0], columns[-1]], [[row[0], row[-1]] for row in known]
    return page.Table(
        title="Memory",
        columns=columns,
        left=("measured",),
        rows=known,
        origin=page.MEASURED,
        samples=_samples(m),
    )


def _samples(m: Measurement) -> str:
    steps = page.count(m.steps_done, "measured step")
    return f"{steps} after {m.warmup_steps} to warm up, in one process"


def _times(m: Measurement) -> page.Table:
    return page.table_of(
        [m] if m.times else [],
        {
            "median": "times.median_seconds",
            "p95": "times.p95_seconds",
            "spread": lambda m: page.share(m.times.spread),
            "samples/s": "samples_per_second:,.1f",
            "tokens/s": "tokens_per_second:,.0f",
            "clock": "times.clock",
        },
        left=("clock",),
        title="Time of a step",
        origin=page.MEASURED,
        samples=_samples(m),
    )


def _time_chart(m: Measurement) -> page.Chart | None:
    if m.times is None or not m.times.seconds:
        return None
    first = len(m.warmup_seconds)
    warmup = _line("warm-up", "cached_unused", list(enumerate(m.warmup_seconds, 1)))
    across = [[m.times.median_seconds]]
    measured = [
        _line("measured", "measured", list(enumerate(m.times.seconds, first + 1))),
        page.Layer("across", "median", across, "reserved", dashed=True),
    ]
    y = page.Axis("time of a step", "seconds")
    views = [page.View(STEP_AXIS, y, measured, "measured steps")]
    if m.warmup_seconds:
        views.append(page.View(STEP_AXIS, y, [warmup, *measured], "with the warm-up"))
    caption = f"Measured: {_samples(m)}.{_thinned_note(max(len(m.times.seconds), first))}"
    return page.chart("Time of every step", caption, *views, detail=False)


def _loss_chart(m: Measurement) -> page.Chart:
    losses = [
        (i, loss) for i, loss in enumerate(m.losses, 1) if loss is not None and math.isfinite(loss)
    ]
    lost = len(m.losses) - len(losses)
    missing = f" {page.count(lost, 'step')} had no finite loss." if lost else ""
    caption = f"Measured, warm-up included.{missing}{_thinned_note(len(losses))}"
    view = page.View(STEP_AXIS, page.Axis("loss"), [_line("loss", "measured", losses)])
    return page.chart("Loss", caption, view, detail=False)


def _line(name: str, colour: str, points: Sequence[tuple[int, float]]) -> page.Layer:
    kept = downsample([y for _, y in points], MOST_POINTS)
    return page.Layer("line", name, [list(points[index]) for index in kept], colour)


def _thinned_note(num_points: int) -> str:
    note = f" Of {num_points:,} steps the lowest and the highest of every stretch are drawn."
    return note if num_points > MOST_POINTS else ""
