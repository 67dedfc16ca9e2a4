"""A curve over batch sizes, as a section."""

from vramcast.records.prediction import BatchSizeCurve, BatchSizePoint
from vramcast.reporting import sections as page
from vramcast.reporting.step_chart import capacity_of


def of_curve(curve: BatchSizeCurve) -> list[page.Section]:
    return [
        page.Section(
            kind="Predicted",
            title=f"{curve.workload}: memory by batch size",
            verdict=_curve_verdict(curve),
            parts=[_curve_chart(curve), _curve_table(curve)],
            limits=curve.limits,
            made=page.predicted_with(curve),
        )
    ]


def _curve_verdict(curve: BatchSizeCurve) -> page.Remark:
    if curve.capacity_bytes is None:
        sizes = page.count(len(curve.points), "batch size")
        return page.Remark(f"{sizes}; no memory size was given")
    where = curve.gpu or "the given memory"
    largest = max((point.batch_size for point in curve.points if point.fits), default=None)
    if largest is None:
        return page.bad(f"none of these fits on {where}")
    return page.good(f"{largest} is the largest of these that fits on {where}")


def _curve_chart(curve: BatchSizeCurve) -> page.Chart:
    points = curve.points
    reserved = ("batch_size", "peak_reserved_bytes")
    allocated = ("batch_size", "peak_allocated_bytes")
    fits = [point for point in points if point.fits]
    too_large = [point for point in points if not point.fits]
    top = max((point.peak_reserved_bytes for point in points), default=0)
    capacity, far = capacity_of(curve.capacity_bytes, top)
    layers = [
        page.layer_of("line", "reserved (predicted)", "reserved", points, reserved),
        page.layer_of("line", "allocated (predicted)", "allocated", points, allocated),
        page.layer_of("dot", "fits", "good", fits, reserved, _source),
        page.layer_of("dot", "does not fit", "bad", too_large, reserved, _source),
        capacity,
    ]
    return page.chart(
        "Memory against batch size",
        f"Predicted; a size that does not fit is shown with what it would take.{far}",
        page.View(page.BATCH_AXIS, page.MEMORY_AXIS, layers),
    )


def _source(point: BatchSizePoint) -> str:
    return "simulated" if point.simulated else "interpolated"


def _curve_table(curve: BatchSizeCurve) -> page.Table:
    limited = curve.capacity_bytes is not None
    simulated = sum(point.simulated for point in curve.points)
    return page.table_of(
        curve.points,
        {
            "batch": "batch_size",
            "allocated": "peak_allocated_bytes",
            "reserved": "peak_reserved_bytes",
            "fits": lambda p: ("yes" if p.fits else "no") if limited else "",
            "retries": "num_alloc_retries",
            "step": "step_seconds",
            "90 % within": lambda p: page.between(p.step_seconds_low, p.step_seconds_high),
            "source": _source,
        },
        left=("source",),
        title="By batch size",
        tones=[page.Tone.PLAIN if p.fits or not limited else page.Tone.BAD for p in curve.points],
        origin=page.PREDICTED,
        samples=f"{page.count(simulated, 'simulated size')}, the others interpolated",
    )
