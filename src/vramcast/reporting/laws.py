"""Laws of memory: as sliders in the page, and those of `vramcast fit` as sections."""

from __future__ import annotations

from collections.abc import Mapping

from vramcast.hardware.gpus import find_gpu
from vramcast.records.fit import FittedRow, MemoryFit, parse_term
from vramcast.records.max_batch import MaxBatch, MemoryLaw
from vramcast.reporting.sections import (
    FITTED,
    NO_AXIS,
    Axis,
    Calculator,
    Chart,
    Column,
    Layer,
    Section,
    Slider,
    Table,
    View,
    count,
    percent,
    size,
    table_of,
)
from vramcast.units import format_bytes

# The GPUs people ask about, smallest first.
GPUS = (
    *("rtx-4070-ti", "rtx-4080", "rtx-4090", "rtx-5090", "a100-40gb"),
    *("l40s", "a100-80gb", "h100-80gb", "h200", "b200"),
)


def _gpus_beside(own: Mapping[str, int]) -> list[tuple[str, int]]:
    """The record's own GPUs, and well-known others, with what the allocator may take there."""
    others = {name: find_gpu(name).usable_bytes for name in GPUS if name not in own}
    return sorted({**others, **own}.items(), key=lambda item: item[1])


def calculator_of(
    found: MemoryFit, title: str, own: Mapping[str, int], start: Mapping[str, int] | None = None
) -> list[Calculator]:
    """None where no knob moves."""
    moving = [knob for knob in found.knobs if knob.largest > knob.smallest]
    if not moving:
        return []
    sizes = [row.measured_reserved_bytes for row in found.rows]
    worst = max(abs(row.error_percent) for row in found.rows)
    sliders = []
    for knob in sorted(moving, key=lambda knob: knob.name):
        is_batch = knob.name == "batch_size"
        smallest, largest = int(knob.smallest), int(knob.largest)
        sliders.append(
            Slider(
                name=knob.name,
                smallest=1 if is_batch else smallest,
                largest=largest,
                value=(start or {}).get(knob.name, largest if is_batch else smallest),
                step=1 if is_batch else _step(smallest, largest),
            )
        )
    return [
        Calculator(
            title=title,
            caption=f"Computed from the law through {count(len(found.rows), 'size')}; "
            f"there it is off by at most {worst:.2f} %.",
            terms=[
                (found.coefficients[name], parse_term(text)) for name, text in found.terms.items()
            ],
            fixed={knob.name: knob.smallest for knob in found.knobs if knob not in moving},
            floor_bytes=found.floor_bytes or 0,
            overhead_bytes=found.overhead_bytes,
            known_bytes=(min(sizes), max(sizes)),
            sliders=sliders,
            gpus=_gpus_beside(own),
        )
    ]


def _step(smallest: int, largest: int) -> int:
    """The largest power of two that reaches both ends: lengths are mostly multiples of one."""
    both = smallest | largest
    return both & -both


def batch_calculator(law: MemoryLaw, result: MaxBatch) -> Calculator:
    sizes = [a.peak_reserved_bytes for a in result.attempts if a.peak_reserved_bytes is not None]
    largest = result.largest_batch or 1
    start = result.recommended or result.maximum
    value = start.batch_size if start else largest
    # Below the sizes the law was made from, the optimizer may take more than the batch.
    smallest = min(law.smallest_batch or 1, value)
    slider = Slider(name="batch_size", smallest=smallest, largest=max(4 * largest, 8), value=value)
    return Calculator(
        title="Memory for a batch size",
        caption=f"Computed from the predicted law, which is {law.reach}. It does not know when "
        "the allocator empties its cache: near the edge more may fit.",
        terms=[(law.intercept_bytes, 1), (law.bytes_per_sample, "batch_size")],
        fixed={},
        floor_bytes=0,
        overhead_bytes=0,
        known_bytes=(min(sizes, default=0), max(sizes, default=0)),
        sliders=[slider],
        gpus=_gpus_beside({result.gpu or "the given memory": result.capacity_bytes}),
    )


def of_fit(found: MemoryFit) -> list[Section]:
    terms = found.terms.items()
    law = " + ".join(f"{found.coefficients[name]:.6g} x ({text})" for name, text in terms)
    if found.floor_bytes is not None:
        law = f"the larger of {format_bytes(found.floor_bytes)} and {law}"
    overhead = format_bytes(found.overhead_bytes)
    not_used = [f"not used: {why}" for why in found.left_out.values()]
    return [
        Section(
            kind="Fitted law",
            title=found.group or "all runs",
            verdict=f"allocated = {law}",
            text=[
                f"reserved = allocated + {overhead} (median overhead)",
                f"without the overhead, allocated is off by at most {_worst(found)}",
            ],
            figures=[*_errors(found), *calculator_of(found, "Memory for other knobs", {})],
            tables=[_rows(found), *([_knobs(found)] if found.knobs else [])],
            notes=[*not_used, *found.notes],
            made=f"Fitted to {count(len(found.rows), 'run')} with {count(len(terms), 'term')}.",
        )
    ]


def _worst(found: MemoryFit) -> str:
    inside = f"{max(abs(row.allocated_error_percent) for row in found.rows):.2f} %"
    errors = [row.left_out_allocated_error_percent for row in found.rows]
    left_out = [abs(error) for error in errors if error is not None]
    return f"{inside}, left out by {max(left_out):.2f} %" if left_out else inside


def _errors(found: MemoryFit) -> list[Chart]:
    """Where the law was made from as many runs as it has terms, every error is zero."""
    if len(found.rows) <= len(found.terms):
        return []
    rows = [row for row in found.rows if row.left_out_error_percent is not None]
    left_out = [(row.name, row.left_out_error_percent) for row in rows]
    inside = [(row.name, row.error_percent) for row in found.rows]
    views = [
        View(
            name=name,
            x=Axis(label="error of reserved", unit="percent"),
            y=NO_AXIS,
            layers=[
                Layer(
                    kind="bar",
                    name=name,
                    points=[[run, 0, error, rank] for rank, (run, error) in enumerate(errors)],
                    colour=colour,
                    details=[[percent(error)] for _, error in errors],
                )
            ],
            pointer="point",
        )
        for name, errors, colour in (
            ("left out of the fit", left_out, "reserved"),
            ("in the fit", inside, "fitted"),
        )
        if errors
    ]
    caption = "Fitted against measured: the error at every run, left out of the fit and in it."
    return [Chart(title="Error at every run", caption=caption, views=views, detail=True)]


def _rows(found: MemoryFit) -> Table:
    return table_of(
        found.rows,
        [
            (Column("run", left=True), lambda r: r.name),
            (Column("measured reserved"), lambda r: size(r.measured_reserved_bytes)),
            (Column("fitted"), lambda r: size(r.fitted_reserved_bytes)),
            (Column("error"), lambda r: percent(r.error_percent)),
            (Column("left out"), lambda r: percent(r.left_out_error_percent)),
            (Column("allocated"), lambda r: percent(r.allocated_error_percent)),
            (Column("by", left=True), lambda r: _piece(found, r)),
        ],
        title="Runs, and the errors of the law",
        origin=f"measured, and {FITTED} where a column says so",
        samples=f"{count(len(found.rows), 'run')} for {count(len(found.terms), 'term')}",
    )


def _piece(found: MemoryFit, row: FittedRow) -> str:
    return "" if found.floor_bytes is None else "floor" if row.on_floor else "law"


def _knobs(found: MemoryFit) -> Table:
    return Table(
        title="What each knob takes",
        columns=[
            Column("knob", left=True),
            Column("saved at the smallest"),
            Column("measured from"),
            Column("to"),
        ],
        rows=[
            [k.name, f"{100 * k.share:.1f} %", f"{k.smallest:g}", f"{k.largest:g}"]
            for k in found.knobs
        ],
        origin=FITTED,
        samples=f"of the largest of {count(len(found.rows), 'run')}",
    )
