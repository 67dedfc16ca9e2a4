"""A curve over batch sizes as sections."""

from __future__ import annotations

from vramcast.records.prediction import BatchSizeCurve, BatchSizePoint
from vramcast.reporting.sections import (
    BATCH_AXIS,
    MEMORY_AXIS,
    PREDICTED,
    Chart,
    Column,
    Layer,
    Section,
    Table,
    Tone,
    chart,
    count,
    duration,
    predicted_with,
    size,
    table_of,
)
from vramcast.reporting.step_chart import capacity_layer, far_capacity


def of_curve(curve: BatchSizeCurve) -> list[Section]:
    verdict, tone = _verdict(curve)
    return [
        Section(
            kind="Predicted",
            title=f"{curve.workload}: memory by batch size",
            verdict=verdict,
            tone=tone,
            figures=[_chart(curve)],
            tables=[_table(curve)],
            limits=curve.limits,
            made=f"All numbers are predicted {predicted_with(curve.torch_version, curve.seconds)}",
        )
    ]


def _verdict(curve: BatchSizeCurve) -> tuple[str, Tone]:
    sizes = count(len(curve.points), "batch size")
    if curve.capacity_bytes is None:
        return f"{sizes}; how much memory there is was not given", Tone.PLAIN
    where = curve.gpu or "the given memory"
    fitting = [point.batch_size for point in curve.points if point.fits]
    if not fitting:
        return f"✗ none of these fits on {where}", Tone.BAD
    return f"✓ {max(fitting)} is the largest of these that fits on {where}", Tone.GOOD


def _chart(curve: BatchSizeCurve) -> Chart:
    points = curve.points
    top = max((point.peak_reserved_bytes for point in points), default=0)
    lines = [
        Layer(
            kind="line",
            name=f"{name} (predicted)",
            points=[[point.batch_size, getattr(point, f"peak_{name}_bytes")] for point in points],
            colour=name,
        )
        for name in ("reserved", "allocated")
    ]
    dots = [
        Layer(
            kind="dot",
            name=name,
            points=[[p.batch_size, p.peak_reserved_bytes] for p in points if p.fits is fits],
            colour=colour,
            details=[[_source(p)] for p in points if p.fits is fits],
        )
        for name, fits, colour in (("fits", True, "good"), ("does not fit", False, "bad"))
    ]
    far = far_capacity(curve.capacity_bytes, top)
    return chart(
        "Memory against batch size",
        f"Predicted; a size that does not fit is shown with what it would take.{far}",
        BATCH_AXIS,
        MEMORY_AXIS,
        [*lines, *dots, *capacity_layer(curve.capacity_bytes, top)],
    )


def _source(point: BatchSizePoint) -> str:
    return "simulated" if point.simulated else "interpolated"


def _table(curve: BatchSizeCurve) -> Table:
    limited = curve.capacity_bytes is not None
    num_simulated = sum(point.simulated for point in curve.points)
    return table_of(
        curve.points,
        [
            (Column("batch"), lambda p: str(p.batch_size)),
            (Column("allocated"), lambda p: size(p.peak_allocated_bytes)),
            (Column("reserved"), lambda p: size(p.peak_reserved_bytes)),
            (Column("fits"), lambda p: ("yes" if p.fits else "no") if limited else ""),
            (Column("retries"), lambda p: str(p.num_alloc_retries)),
            (Column("step"), lambda p: duration(p.step_seconds)),
            (Column("source", left=True), _source),
        ],
        title="By batch size",
        tones=[Tone.PLAIN if p.fits or not limited else Tone.BAD for p in curve.points],
        origin=PREDICTED,
        samples=f"{count(num_simulated, 'simulated size')}, the others interpolated",
    )
