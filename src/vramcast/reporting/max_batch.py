"""The largest batch as sections: memory and throughput by batch size, and what to choose."""

from __future__ import annotations

from collections.abc import Sequence

from vramcast.records.max_batch import Choice, MaxBatch, MemoryLaw, Speed
from vramcast.records.measurement import Measurement
from vramcast.records.prediction import Attempt
from vramcast.reporting.laws import batch_calculator
from vramcast.reporting.prediction import largest_table, where_of
from vramcast.reporting.sections import (
    BATCH_AXIS,
    MEMORY_AXIS,
    PREDICTED,
    Axis,
    Chart,
    Column,
    Layer,
    Section,
    Table,
    Tone,
    chart,
    count,
    duration,
    knobs_of,
    number,
    size,
    table_of,
)
from vramcast.units import format_bytes

FITS = {"ok": "yes", "out_of_memory": "OOM"}
CHOICES = ("maximum", "recommended", "conservative", "fastest", "knee")


def of_max_batch(result: MaxBatch, measured: Sequence[Measurement] = ()) -> list[Section]:
    """`measured`: runs of the same workload, whatever their batch size."""
    verdict, tone = _verdict(result)
    laws = (("allocated", result.allocated_law), ("reserved", result.reserved_law))
    advice = [f"what would help: {advice}" for advice in result.advice]
    law, largest = result.reserved_law, "Largest in memory at the smallest batch"
    how = "All numbers are predicted"
    if result.confirmed:
        how = "Sizes marked measured were run on the GPU, the others are predicted"
    memory = Section(
        kind="Largest batch",
        title=result.workload,
        subtitle=knobs_of(result.knobs),
        verdict=verdict,
        tone=tone,
        text=[*(_law(name, law) for name, law in laws if law is not None), *advice],
        figures=[
            _memory_chart(result, measured),
            *([batch_calculator(law, result)] if law else []),
        ],
        tables=[
            *_choices(result),
            _attempts(result),
            *largest_table(result.largest_tensors, largest),
        ],
        notes=result.notes,
        limits=result.limits,
        made=f"{how} (torch {result.torch_version}, {result.seconds:.1f} s to predict).",
    )
    return [memory, *([_speed(result)] if result.speeds else [])]


def _verdict(result: MaxBatch) -> tuple[str, Tone]:
    where = where_of(result.gpu, result.capacity_bytes)
    if result.largest_batch is None:
        missing = ""
        if result.missing_bytes is not None:
            missing = f": {format_bytes(result.missing_bytes)} are missing"
        return f"✗ not even {result.first_failing_batch} fits on {where}{missing}", Tone.BAD
    source = "measured" if result.confirmed else "predicted"
    beyond = "no larger one was tried"
    if result.first_failing_batch is not None:
        beyond = f"{result.first_failing_batch} does not fit"
    return f"✓ largest batch on {where}: {result.largest_batch} ({source}); {beyond}", Tone.GOOD


def _law(name: str, law: MemoryLaw) -> str:
    constant, each = format_bytes(law.intercept_bytes), format_bytes(law.bytes_per_sample)
    return f"{name} = {constant} + {each} per sample ({law.reach})"


def _memory_chart(result: MaxBatch, measured: Sequence[Measurement]) -> Chart:
    far = 2 * (result.largest_batch or 1)
    near = [a for a in result.attempts if a.batch_size <= far]
    known = [a for a in near if a.peak_reserved_bytes is not None]
    predicted = [a for a in known if a.source == "predicted"]
    layers = [
        *_law_layers(result.reserved_law, near, "reserved"),
        *_law_layers(result.allocated_law, near, "allocated"),
        _dots("reserved (predicted), fits", [a for a in predicted if a.outcome == "ok"], "good"),
        _dots(
            "reserved (predicted), does not fit", [a for a in predicted if a.outcome != "ok"], "bad"
        ),
        _dots("reserved (measured)", [a for a in known if a.source == "measured"], "measured"),
        _other_runs(measured),
        Layer(kind="across", name="capacity", points=[[result.capacity_bytes]], colour="capacity"),
        _mark("largest batch", result.largest_batch, "peak"),
    ]
    beyond, left_out = "", len(result.attempts) - len(near)
    if left_out:
        verb = "is" if left_out == 1 else "are"
        sizes = count(left_out, "size")
        beyond = f" {sizes} far beyond the largest batch {verb} in the table only."
    confirmed = "No size was run on a GPU."
    if result.confirmed:
        confirmed = "Measured sizes were run on the GPU."
    caption = f"Predicted. {confirmed}{beyond}"
    return chart("Memory against batch size", caption, BATCH_AXIS, MEMORY_AXIS, layers)


def _law_layers(law: MemoryLaw | None, attempts: Sequence[Attempt], name: str) -> list[Layer]:
    if law is None or not attempts:
        return []
    sizes = [attempt.batch_size for attempt in attempts]
    ends = (min(sizes), max(sizes))
    points = [[end, law.intercept_bytes + law.bytes_per_sample * end] for end in ends]
    return [Layer(kind="line", name=f"{name}: the law (predicted)", points=points, colour=name)]


def _dots(name: str, attempts: Sequence[Attempt], colour: str) -> Layer:
    shown = sorted(attempts, key=lambda a: a.batch_size)
    return Layer(
        kind="dot",
        name=name,
        points=[[a.batch_size, a.peak_reserved_bytes] for a in shown],
        colour=colour,
        details=[[_source(a), f"retries: {a.num_alloc_retries}"] for a in shown],
    )


def _other_runs(measured: Sequence[Measurement]) -> Layer:
    runs = [(m.knobs.get("batch_size"), m.peak_reserved_bytes) for m in measured]
    points = [[size, peak] for size, peak in runs if isinstance(size, int) and peak is not None]
    name = "reserved (measured by probe)"
    return Layer(kind="dot", name=name, points=sorted(points), colour="measured")


def _mark(name: str, batch_size: int | None, colour: str) -> Layer:
    points = [] if batch_size is None else [[batch_size]]
    return Layer(kind="down", name=f"{name}: {batch_size}", points=points, colour=colour)


def _source(a: Attempt) -> str:
    return a.source if a.simulated else "interpolated"


def _choices(result: MaxBatch) -> list[Table]:
    chosen: list[tuple[str, Choice | None]] = [(name, getattr(result, name)) for name in CHOICES]
    rows = [[name, str(choice.batch_size), choice.reason] for name, choice in chosen if choice]
    if result.micro_batch is not None:
        why = f"{result.accumulation_steps} steps of it make a batch of {result.global_batch}"
        rows.append(["micro-batch", str(result.micro_batch), why])
    if not rows:
        return []
    return [
        Table(
            title="What to choose",
            columns=[Column("choice", left=True), Column("batch"), Column("why", left=True)],
            rows=rows,
            origin=_origin(result),
            samples=_samples(result),
        )
    ]


def _attempts(result: MaxBatch) -> Table:
    attempts = sorted(result.attempts, key=lambda a: (a.batch_size, a.source))
    tones = [Tone.GOOD if a.outcome == "ok" else Tone.BAD for a in attempts]

    def share(a: Attempt) -> float:
        return (a.peak_reserved_bytes or 0) / result.capacity_bytes

    return table_of(
        attempts,
        [
            (Column("batch"), lambda a: str(a.batch_size)),
            (Column("fits"), lambda a: FITS.get(a.outcome or "", str(a.outcome).replace("_", " "))),
            (Column("allocated"), lambda a: size(a.peak_allocated_bytes)),
            (Column("reserved"), lambda a: size(a.peak_reserved_bytes)),
            (Column("share"), lambda a: f"{100 * share(a):.1f} %" if share(a) else ""),
            (Column("retries"), lambda a: number(a.num_alloc_retries)),
            (Column("step"), lambda a: duration(a.step_seconds)),
            (Column("source", left=True), _source),
        ],
        title="Search",
        bars=[(share(a), tone) for a, tone in zip(attempts, tones, strict=True)],
        tones=tones,
        origin=_origin(result),
        samples=_samples(result),
    )


def _origin(result: MaxBatch) -> str:
    if any(a.source == "measured" for a in result.attempts):
        return "predicted, and measured where it says so"
    return PREDICTED


def _samples(result: MaxBatch) -> str:
    simulated = sum(a.simulated and a.source == "predicted" for a in result.attempts)
    run = sum(a.source == "measured" for a in result.attempts)
    return f"{count(simulated, 'size')} simulated, {run} run on a GPU"


def _speed(result: MaxBatch) -> Section:
    sources = ", ".join(dict.fromkeys(speed.source for speed in result.speeds))
    usable = [s for s in result.speeds if not s.empties_cache]
    slower = [s for s in result.speeds if s.empties_cache]

    def points(speeds: Sequence[Speed]) -> list[list[float]]:
        return [[s.batch_size, s.samples_per_second] for s in speeds]

    bound = [[s.source, f"bound by {s.bound_by}"] for s in usable]
    late, rate = "empties the cache: slower than shown", f"samples a second ({sources})"
    layers = [
        Layer(kind="line", name=rate, points=points(usable), colour="allocated"),
        Layer(kind="dot", name="timed", points=points(usable), colour="good", details=bound),
        Layer(kind="dot", name=late, points=points(slower), colour="bad"),
        _mark("knee", result.knee.batch_size if result.knee else None, "peak"),
        _mark("fastest", result.fastest.batch_size if result.fastest else None, "measured"),
    ]
    caption = (
        f"{sources.capitalize()}. "
        "The knee is the smallest size with 95 % of the most samples a second."
    )
    y = Axis(label="samples a second", unit="number")
    return Section(
        title="Throughput against batch size",
        figures=[chart("Throughput", caption, BATCH_AXIS, y, layers)],
        tables=[_speed_table(result, sources)],
    )


def _speed_table(result: MaxBatch, sources: str) -> Table:
    most = max(speed.samples_per_second for speed in result.speeds) or 1
    marks = {"knee": result.knee, "fastest": result.fastest}

    def note(speed: Speed) -> str:
        sizes = [name for name, c in marks.items() if c and c.batch_size == speed.batch_size]
        return ", ".join([*sizes, *(["slower than shown"] if speed.empties_cache else [])])

    return table_of(
        result.speeds,
        [
            (Column("batch"), lambda s: str(s.batch_size)),
            (Column("step"), lambda s: duration(s.step_seconds)),
            (Column("samples/s"), lambda s: f"{s.samples_per_second:.4g}"),
            (Column("source", left=True), lambda s: s.source),
            (Column("bound by", left=True), lambda s: s.bound_by),
            (Column("note", left=True), note),
        ],
        title="Samples a second",
        bars=[
            (s.samples_per_second / most, Tone.UNSURE if s.empties_cache else Tone.GOOD)
            for s in result.speeds
        ],
        notes=["slower than shown: it fits only because the allocator empties its cache"]
        if any(s.empties_cache for s in result.speeds)
        else [],
        origin=sources,
        samples=count(len(result.speeds), "size"),
    )
