"""Laws of memory with sliders, and the fitted laws of `vramcast fit` as sections."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from vramcast.hardware.gpus import find_gpu
from vramcast.records.fit import FittedRow, MemoryFit
from vramcast.records.max_batch import MaxBatch, MemoryLaw
from vramcast.reporting.page.sections import (
    FITTED,
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

# the sizes people ask about, smallest first
GPUS = (
    "rtx-4070-ti",
    "rtx-4080",
    "rtx-4090",
    "rtx-5090",
    "a100-40gb",
    "l40s",
    "a100-80gb",
    "h100-80gb",
    "h200",
    "b200",
)
OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Pow: "**",
}


def expression(text: str) -> Any:
    """A term as nested lists, for a page that computes without running text: a number, a knob's name, or [operator, left, right]."""
    return _expression(ast.parse(text, mode="eval").body)


def _expression(node: ast.AST) -> Any:
    if isinstance(node, ast.BinOp):
        return [OPERATORS[type(node.op)], _expression(node.left), _expression(node.right)]
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    raise ValueError(f"{ast.unparse(node)!r} is not arithmetic")


def gpus_beside(own: Mapping[str, int]) -> list[tuple[str, int]]:
    """The record's own GPUs with what its allocator may take there, and well-known others with what is left beside the CUDA context."""
    others = {name: find_gpu(name).usable_bytes for name in GPUS if name not in own}
    return sorted({**others, **own}.items(), key=lambda item: item[1])


def of_fit(
    found: MemoryFit, title: str, own: Mapping[str, int], start: Mapping[str, int] | None = None
) -> Calculator | None:
    """None where no knob moves, or one is no number."""
    moving = [knob for knob in found.knobs if knob.largest > knob.smallest]
    if not moving:
        return None
    sizes = [row.measured_reserved_bytes for row in found.rows]
    worst = max(abs(row.error_percent) for row in found.rows)
    return Calculator(
        title=title,
        caption=f"Computed from the law through {count(len(found.rows), 'size')}; there it is off by at most {worst:.2f} %.",
        terms=[(found.coefficients[name], expression(text)) for name, text in found.terms.items()],
        fixed={knob.name: knob.smallest for knob in found.knobs if knob not in moving},
        floor_bytes=found.floor_bytes or 0,
        overhead_bytes=found.overhead_bytes,
        known_bytes=(min(sizes), max(sizes)),
        sliders=[
            Slider(
                name=knob.name,
                smallest=1 if knob.name == "batch_size" else int(knob.smallest),
                largest=int(knob.largest),
                value=(start or {}).get(
                    knob.name, int(knob.largest if knob.name == "batch_size" else knob.smallest)
                ),
                step=1
                if knob.name == "batch_size"
                else _step(int(knob.smallest), int(knob.largest)),
            )
            for knob in sorted(moving, key=lambda knob: knob.name)
        ],
        gpus=gpus_beside(own),
    )


def _step(smallest: int, largest: int) -> int:
    """The largest power of two that reaches both ends: lengths are mostly multiples of one."""
    both = smallest | largest
    return both & -both


def of_batch_law(law: MemoryLaw, result: MaxBatch) -> Calculator:
    sizes = [a.peak_reserved_bytes for a in result.attempts if a.peak_reserved_bytes is not None]
    largest = result.largest_batch or 1
    start = result.recommended or result.maximum
    return Calculator(
        title="Memory for a batch size",
        caption=f"Computed from the predicted law, which is {law.reach}. "
        "It knows nothing of a cache that is emptied: near the edge more may fit.",
        terms=[(law.intercept_bytes, 1), (law.bytes_per_sample, "batch_size")],
        fixed={},
        floor_bytes=0,
        overhead_bytes=0,
        known_bytes=(min(sizes), max(sizes)),
        sliders=[_batch_slider(law, largest, start.batch_size if start else largest)],
        gpus=gpus_beside({result.gpu or "the given memory": result.capacity_bytes}),
    )


def _batch_slider(law: MemoryLaw, largest: int, value: int) -> Slider:
    """Not below the sizes the law was made from: there the optimizer may take more than the batch."""
    return Slider(
        name="batch_size",
        smallest=min(law.smallest_batch or 1, value),
        largest=max(4 * largest, 8),
        value=value,
    )


def sections_of(fits: Sequence[MemoryFit]) -> list[Section]:
    return [_section(found) for found in fits]


def _section(found: MemoryFit) -> Section:
    law = " + ".join(
        f"{found.coefficients[name]:.6g} x ({text})" for name, text in found.terms.items()
    )
    if found.floor_bytes is not None:
        law = f"the larger of {format_bytes(found.floor_bytes)} and {law}"
    calculator = of_fit(found, "Memory for other knobs", {})
    return Section(
        title=f"Fitted law: {found.group or 'all runs'}",
        verdict=f"allocated = {law}",
        text=[f"reserved = allocated + {format_bytes(found.overhead_bytes)}, the median overhead."],
        figures=[
            *([_errors(found)] if len(found.rows) > len(found.terms) else []),
            *([calculator] if calculator else []),
        ],
        tables=[_rows(found), *([_knobs(found)] if found.knobs else [])],
    )


def _errors(found: MemoryFit) -> Chart:
    views = []
    for name, field, colour in (
        ("left out of the fit", "left_out_error_percent", "reserved"),
        ("in the fit", "error_percent", "fitted"),
    ):
        errors = [
            (row.name, error, rank)
            for rank, row in enumerate(found.rows)
            if (error := getattr(row, field)) is not None
        ]
        points, details = (
            [[run, 0, error, rank] for run, error, rank in errors],
            [[percent(error)] for _, error, _ in errors],
        )
        layer = Layer(kind="bar", name=name, points=points, colour=colour, details=details)
        views += (
            [
                View(
                    name=name,
                    x=Axis(label="error of reserved", unit="percent"),
                    y=Axis(label=""),
                    layers=[layer],
                    pointer="point",
                )
            ]
            if errors
            else []
        )
    caption = "Fitted against measured: the law's error at every run, when it is left out of the fit and when it is in it."
    return Chart(title="Error at every run", caption=caption, views=views)


def _rows(found: MemoryFit) -> Table:
    columns, rows = table_of(
        found.rows,
        [
            (Column("run", left=True), lambda r: r.name),
            (Column("reserved, measured"), lambda r: size(r.measured_reserved_bytes)),
            (Column("reserved, fitted"), lambda r: size(r.fitted_reserved_bytes)),
            (Column("error"), lambda r: percent(r.error_percent)),
            (Column("error, left out"), lambda r: percent(r.left_out_error_percent)),
            (Column("error, allocated"), lambda r: percent(r.allocated_error_percent)),
            (Column("by", left=True), lambda r: _piece(found, r)),
        ],
    )
    notes = [*(f"not used: {why}" for why in found.left_out.values()), *found.notes]
    samples = f"{count(len(found.rows), 'run')} for {count(len(found.terms), 'term')}"
    return Table(
        title="Runs",
        columns=columns,
        rows=rows,
        origin=f"measured, and {FITTED} where a column says so",
        samples=samples,
        notes=notes,
    )


def _piece(found: MemoryFit, row: FittedRow) -> str:
    return "" if found.floor_bytes is None else "floor" if row.on_floor else "law"


def _knobs(found: MemoryFit) -> Table:
    rows = [
        [k.name, f"{100 * k.share:.1f} %", f"{k.smallest:g}", f"{k.largest:g}"] for k in found.knobs
    ]
    columns = [
        Column("knob", left=True),
        Column("goes when it goes to 1"),
        Column("smallest measured"),
        Column("largest measured"),
    ]
    return Table(
        title="What each knob takes",
        columns=columns,
        rows=rows,
        origin=FITTED,
        samples=f"of the largest of {count(len(found.rows), 'run')}",
    )
