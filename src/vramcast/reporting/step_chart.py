"""Memory through a step as a chart: categories, allocated and reserved, capacity and peak."""

from __future__ import annotations

from collections.abc import Sequence

from vramcast.records.prediction import CATEGORIES, LargeTensor, Prediction, StepMemory
from vramcast.reporting.sections import MEMORY_AXIS, Axis, Chart, Layer, chart, count
from vramcast.units import format_bytes

FAR = 2.5  # times the highest thing drawn
OTHERS = "activations"  # the colour of a category that is not known


def words(category: str) -> str:
    return category.replace("_", " ")


def colour_of(category: str) -> str:
    return category if category in CATEGORIES else OTHERS


def shape_of(tensor: LargeTensor) -> str:
    return f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"


def described(tensor: LargeTensor) -> list[str]:
    """A tensor in a few lines: its kind and name, shape, where it was made."""
    what = " ".join(part for part in (words(tensor.category), tensor.name) if part)
    # A kernel's scratch memory has the type "bytes" and no shape.
    has_shape = tensor.shape or tensor.dtype not in ("", "bytes")
    lines = [
        f"{format_bytes(tensor.num_bytes)} {what}".rstrip(),
        shape_of(tensor) if has_shape else "",
        tensor.operator.removeprefix("aten::"),
        tensor.module,
        tensor.source,
    ]
    return [line for line in lines if line]


def capacity_layer(capacity_bytes: int | None, top_bytes: int) -> list[Layer]:
    """None where it lies so far above that nothing else could be seen."""
    if capacity_bytes is None or capacity_bytes > FAR * top_bytes:
        return []
    return [Layer(kind="across", name="capacity", points=[[capacity_bytes]], colour="capacity")]


def far_capacity(capacity_bytes: int | None, top_bytes: int) -> str:
    if capacity_bytes is None or capacity_layer(capacity_bytes, top_bytes):
        return ""
    return f" The capacity, {format_bytes(capacity_bytes)}, lies far above and is not drawn."


def step_chart(
    memory: StepMemory,
    *,
    origin: str,
    capacity_bytes: int | None = None,
    peak_reserved_bytes: int | None = None,
    measured: Sequence[Layer] = (),
) -> Chart:
    """`measured`: further layers, laid over the predicted ones."""
    peak = memory.points[memory.peak_point]
    top = max(peak_reserved_bytes or 0, *(point[1] for point in memory.points))
    details = [["most is allocated here", *_change(memory, memory.peak_point)]]
    layers = [
        *_areas(memory),
        *_totals(memory, origin),
        *measured,
        *capacity_layer(capacity_bytes, top),
        Layer(kind="dot", name="peak", points=[peak[:2]], colour="peak", details=details),
    ]
    reserved = ""
    if peak_reserved_bytes is not None:
        reserved = f", {format_bytes(peak_reserved_bytes)} reserved"
    caption = (
        f"{origin.capitalize()}: the peak is {format_bytes(peak[1])} allocated{reserved}, "
        f"at event {peak[0]:,} of {memory.num_events:,} in {memory.phase}. "
        f"{count(len(memory.points), 'point')} of {count(memory.num_events, 'event')} are drawn."
        f"{far_capacity(capacity_bytes, top)}"
    )
    x = Axis(label=f"allocations and frees through {memory.phase}", unit="number")
    return chart(f"Memory through {memory.phase}", caption, x, MEMORY_AXIS, layers)


def _areas(memory: StepMemory) -> list[Layer]:
    """In the usual order of the categories, with unknown ones last."""
    known = [column for column in CATEGORIES if column in memory.columns]
    totals = ("event", "allocated", "reserved")
    others = [column for column in memory.columns if column not in (*known, *totals)]
    places = {name: memory.columns.index(name) for name in (*known, *others)}
    return [
        Layer(
            kind="area",
            name=words(name),
            points=[[point[0], point[place]] for point in memory.points],
            colour=colour_of(name),
        )
        for name, place in places.items()
        if any(point[place] for point in memory.points)
    ]


def _totals(memory: StepMemory, origin: str) -> list[Layer]:
    changes = [_change(memory, index) for index in range(len(memory.points))]
    allocated = _total("allocated", origin, [point[:2] for point in memory.points], changes)
    if "reserved" not in memory.columns:
        return [allocated]
    return [allocated, _total("reserved", origin, [[p[0], p[2]] for p in memory.points])]


def _total(
    name: str, origin: str, points: Sequence[list[int]], details: Sequence[list[str]] = ()
) -> Layer:
    title = f"{name} ({origin})"
    return Layer(kind="step", name=title, points=points, colour=name, details=details)


def _change(memory: StepMemory, index: int) -> list[str]:
    change = memory.changes[index]
    if not change:
        return []
    first, *rest = described(memory.tensors[change[0]])
    return [f"{'allocated' if change[1] else 'freed'}: {first}", *rest]


def run_chart(p: Prediction) -> Chart:
    """The totals over the whole simulated run."""
    layers = [
        _total("allocated", "predicted", [[event, value] for event, value, _ in p.timeline]),
        _total("reserved", "predicted", [[event, value] for event, _, value in p.timeline]),
        *capacity_layer(p.capacity_bytes, p.peak_reserved_bytes),
    ]
    caption = f"Predicted.{far_capacity(p.capacity_bytes, p.peak_reserved_bytes)}"
    if p.step_memory is None:
        caption += (
            " This record is of an earlier version, which does not say which tensors these are."
        )
    x = Axis(label="allocations and frees through build and steps", unit="number")
    title = "Memory through build and steps"
    return chart(title, caption, x, MEMORY_AXIS, layers, detail=False)
