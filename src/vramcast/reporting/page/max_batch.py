"""The largest batch as sections: memory and throughput against the batch size, a slider, what to choose."""

from __future__ import annotations

from collections.abc import Sequence

from vramcast.records.max_batch import Attempt, MaxBatch, MemoryLaw
from vramcast.records.measurement import Measurement
from vramcast.reporting import verdicts
from vramcast.reporting.page.laws import of_batch_law
from vramcast.reporting.page.prediction import largest_table
from vramcast.reporting.page.sections import (
    PREDICTED,
    Axis,
    Chart,
    Column,
    Layer,
    Section,
    Table,
    View,
    count,
    duration,
    knobs_of,
    number,
    size,
    table_of,
)

FITS = {"ok": "yes", "out_of_memory": "no"}


def of_max_batch(result: MaxBatch, measured: Sequence[Measurement] = ()) -> list[Section]:
    """`measured`: runs of the same workload, whatever their batch size."""
    sentence, tone = verdicts.of_max_batch(result)
    text = [f"Predicted with torch {result.torch_version} in {duration(result.seconds)}."]
    text += [f"What would help: {advice}" for advice in result.advice]
    memory = Section(
        title=f"Largest batch: {result.workload}",
        subtitle=knobs_of(result.knobs),
        verdict=sentence,
        tone=tone,
        text=text,
        figures=[
            _memory_chart(result, measured),
            *([of_batch_law(result.reserved_law, result)] if result.reserved_law else []),
        ],
        tables=_tables(result),
    )
    return [memory, *([_speed(result)] if result.speeds else [])]


def _tables(result: MaxBatch) -> list[Table]:
    tables = [_choices(result)] if any(getattr(result, name) for name in verdicts.CHOICES) else []
    tables.append(_attempts(result))
    if result.largest_tensors:
        tables.append(
            largest_table(
                result.largest_tensors, result.limits, "Largest in memory at the smallest batch"
            )
        )
    return tables


def _memory_chart(result: MaxBatch, measured: Sequence[Measurement]) -> Chart:
    near = [a for a in result.attempts if a.batch_size <= 2 * (result.largest_batch or 1)]
    layers = [
        *_law_layers(result.reserved_law, near, "reserved", "reserved: the law (predicted)"),
        *_law_layers(result.allocated_law, near, "allocated", "allocated: the law (predicted)"),
        *_dots(
            "reserved (predicted), fits",
            [a for a in near if a.source == "predicted" and a.outcome == "ok"],
            "good",
        ),
        *_dots(
            "reserved (predicted), does not fit",
            [a for a in near if a.source == "predicted" and a.outcome != "ok"],
            "bad",
        ),
        *_dots("reserved (measured)", [a for a in near if a.source == "measured"], "measured"),
        *_other_runs(measured),
        Layer(kind="across", name="capacity", points=[[result.capacity_bytes]], colour="capacity"),
    ]
    if result.largest_batch is not None:
        layers.append(
            Layer(
                kind="down",
                name=f"largest batch: {result.largest_batch}",
                points=[[result.largest_batch]],
                colour="peak",
            )
        )
    view = View(
        name="",
        x=Axis(label="batch size", unit="number"),
        y=Axis(label="memory", unit="bytes"),
        layers=layers,
    )
    left_out = len(result.attempts) - len(near)
    beyond = (
        f" {count(left_out, 'size')} far beyond the largest batch are in the table only."
        if left_out
        else ""
    )
    confirmed = (
        "Measured sizes were run on the GPU." if result.confirmed else "No size was run on a GPU."
    )
    return Chart(
        title="Memory against batch size", caption=f"Predicted. {confirmed}{beyond}", views=[view]
    )


def _law_layers(
    law: MemoryLaw | None, attempts: Sequence[Attempt], colour: str, name: str
) -> list[Layer]:
    if law is None or not attempts:
        return []
    ends = [min(a.batch_size for a in attempts), max(a.batch_size for a in attempts)]
    return [
        Layer(
            kind="line",
            name=name,
            points=[[x, law.intercept_bytes + law.bytes_per_sample * x] for x in ends],
            colour=colour,
        )
    ]


def _dots(name: str, attempts: Sequence[Attempt], colour: str) -> list[Layer]:
    shown = sorted(
        (a for a in attempts if a.peak_reserved_bytes is not None), key=lambda a: a.batch_size
    )
    details = [[_source(a), f"retries: {a.num_alloc_retries}"] for a in shown]
    return (
        [
            Layer(
                kind="dot",
                name=name,
                points=[[a.batch_size, a.peak_reserved_bytes] for a in shown],
                colour=colour,
                details=details,
            )
        ]
        if shown
        else []
    )


def _other_runs(measured: Sequence[Measurement]) -> list[Layer]:
    points = [
        [m.knobs["batch_size"], m.peak_reserved_bytes]
        for m in measured
        if m.peak_reserved_bytes is not None and isinstance(m.knobs.get("batch_size"), int)
    ]
    return (
        [
            Layer(
                kind="dot",
                name="reserved (measured by probe)",
                points=sorted(points),
                colour="measured",
            )
        ]
        if points
        else []
    )


def _source(a: Attempt) -> str:
    return a.source if a.simulated else "interpolated"


def _choices(result: MaxBatch) -> Table:
    chosen = [
        (name, choice) for name in verdicts.CHOICES if (choice := getattr(result, name)) is not None
    ]
    rows = [[name, str(choice.batch_size), choice.reason] for name, choice in chosen]
    if result.micro_batch is not None:
        why = f"{result.accumulation_steps} steps of it make a batch of {result.global_batch}"
        rows.append(["micro-batch", str(result.micro_batch), why])
    columns = [Column("choice", left=True), Column("batch", "samples"), Column("why", left=True)]
    return Table(
        title="What to choose",
        columns=columns,
        rows=rows,
        origin=_origin(result),
        samples=_samples(result),
        not_modelled=result.limits,
        notes=result.notes,
    )


def _attempts(result: MaxBatch) -> Table:
    columns, rows = table_of(
        sorted(result.attempts, key=lambda a: (a.batch_size, a.source)),
        [
            (Column("batch", "samples"), lambda a: str(a.batch_size)),
            (Column("fits"), lambda a: FITS.get(a.outcome, a.outcome.replace("_", " "))),
            (Column("allocated"), lambda a: size(a.peak_allocated_bytes)),
            (Column("reserved"), lambda a: size(a.peak_reserved_bytes)),
            (
                Column("share"),
                lambda a: (
                    ""
                    if a.peak_reserved_bytes is None
                    else f"{100 * a.peak_reserved_bytes / result.capacity_bytes:.1f} %"
                ),
            ),
            (Column("retries"), lambda a: number(a.num_alloc_retries)),
            (Column("step"), lambda a: duration(a.step_seconds)),
            (Column("source", left=True), _source),
        ],
    )
    return Table(
        title="Every size looked at",
        columns=columns,
        rows=rows,
        origin=_origin(result),
        samples=_samples(result),
        not_modelled=result.limits,
    )


def _origin(result: MaxBatch) -> str:
    return (
        "predicted, and measured where it says so"
        if any(a.source == "measured" for a in result.attempts)
        else PREDICTED
    )


def _samples(result: MaxBatch) -> str:
    simulated = sum(a.simulated and a.source == "predicted" for a in result.attempts)
    run = sum(a.source == "measured" for a in result.attempts)
    return f"{count(simulated, 'size')} simulated, {run} run on a GPU"


def _speed(result: MaxBatch) -> Section:
    sources = list(dict.fromkeys(s.source for s in result.speeds))
    usable = [s for s in result.speeds if not s.empties_cache]
    slower = [s for s in result.speeds if s.empties_cache]
    layers = [
        Layer(
            kind="line",
            name=f"samples a second ({', '.join(sources)})",
            points=[[s.batch_size, s.samples_per_second] for s in usable],
            colour="allocated",
        ),
        Layer(
            kind="dot",
            name="timed",
            points=[[s.batch_size, s.samples_per_second] for s in usable],
            colour="good",
            details=[[s.source, f"bound by {s.bound_by}"] for s in usable],
        ),
    ]
    if slower:
        dots = [[s.batch_size, s.samples_per_second] for s in slower]
        layers.append(
            Layer(
                kind="dot", name="empties the cache: slower than shown", points=dots, colour="bad"
            )
        )
    for name, choice, colour in (
        ("knee", result.knee, "peak"),
        ("fastest", result.fastest, "measured"),
    ):
        if choice is not None:
            layers.append(
                Layer(
                    kind="down",
                    name=f"{name}: {choice.batch_size}",
                    points=[[choice.batch_size]],
                    colour=colour,
                )
            )
    view = View(
        name="",
        x=Axis(label="batch size", unit="number"),
        y=Axis(label="samples a second", unit="number"),
        layers=layers,
    )
    caption = f"{', '.join(sources).capitalize()}. The knee is the smallest size with 95 % of the most samples a second."
    columns, rows = table_of(
        result.speeds,
        [
            (Column("batch", "samples"), lambda s: str(s.batch_size)),
            (Column("step"), lambda s: duration(s.step_seconds)),
            (Column("rate", "samples/s"), lambda s: f"{s.samples_per_second:.4g}"),
            (Column("source", left=True), lambda s: s.source),
            (Column("bound by", left=True), lambda s: s.bound_by),
            (
                Column("note", left=True),
                lambda s: "the allocator empties its cache: slower" if s.empties_cache else "",
            ),
        ],
    )
    table = Table(
        title="Samples a second",
        columns=columns,
        rows=rows,
        origin=", ".join(sources),
        samples=count(len(result.speeds), "size"),
        not_modelled=result.limits,
    )
    return Section(
        title="Throughput against batch size",
        figures=[Chart(title="Throughput", caption=caption, views=[view])],
        tables=[table],
    )
