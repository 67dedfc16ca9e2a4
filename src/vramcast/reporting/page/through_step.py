"""Memory through a step as a chart: categories stacked, allocated and reserved, the capacity, the peak, and what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from vramcast.records.prediction import CATEGORIES, LargeTensor, Prediction, StepMemory
from vramcast.reporting.page.sections import Axis, Chart, Layer, View, count
from vramcast.units import format_bytes

FAR = 2.5  # times what is drawn
OTHERS = "activations"  # the colour of a category that is not known


def words(category: str) -> str:
    return category.replace("_", " ")


def colour_of(category: str) -> str:
    return category if category in CATEGORIES else OTHERS


def described(t: LargeTensor) -> list[str]:
    """A tensor in a few lines: its kind and name, shape, where it was made."""
    shape = (
        f"{t.dtype}[{', '.join(map(str, t.shape))}]"
        if t.shape or t.dtype not in ("", "bytes")
        else ""
    )  # "bytes": a kernel's scratch
    what = " ".join(part for part in (words(t.category), t.name) if part)
    lines = [
        f"{format_bytes(t.num_bytes)} {what}".rstrip(),
        shape,
        t.operator.removeprefix("aten::"),
        t.module,
        t.source,
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
    capacity_bytes: int | None,
    peak_reserved_bytes: int | None,
    measured: Sequence[Layer] = (),
) -> Chart:
    """`measured`: further layers, laid over the predicted ones."""
    layers = [*_areas(memory), *_totals(memory, origin), *measured]
    top = max(peak_reserved_bytes or 0, max(point[1] for point in memory.points))
    layers += capacity_layer(capacity_bytes, top)
    peak = memory.points[memory.peak_point]
    layers.append(
        Layer(
            kind="dot",
            name="peak",
            points=[peak[:2]],
            colour="peak",
            details=[["most is allocated here", *_change(memory, memory.peak_point)]],
        )
    )
    reserved = (
        f", {format_bytes(peak_reserved_bytes)} reserved" if peak_reserved_bytes is not None else ""
    )
    caption = (
        f"{origin.capitalize()}: the peak is {format_bytes(peak[1])} allocated{reserved}, at event {peak[0]:,} of {memory.num_events:,} in {memory.phase}. "
        f"{count(len(memory.points), 'point')} of {count(memory.num_events, 'event')} are drawn.{far_capacity(capacity_bytes, top)}"
    )
    x = Axis(label=f"allocations and frees through {memory.phase}", unit="number")
    return Chart(
        title=f"Memory through {memory.phase}",
        caption=caption,
        views=[View(name="", x=x, y=Axis(label="memory", unit="bytes"), layers=layers)],
    )


def _areas(memory: StepMemory) -> list[Layer]:
    """As categories are listed everywhere, and what is not known last."""
    known = [column for column in CATEGORIES if column in memory.columns]
    others = [
        column
        for column in memory.columns
        if column not in (*known, "event", "allocated", "reserved")
    ]
    places = {name: memory.columns.index(name) for name in (*known, *others)}
    return [
        Layer(
            kind="area",
            name=words(name),
            points=[[p[0], p[place]] for p in memory.points],
            colour=colour_of(name),
        )
        for name, place in places.items()
        if any(p[place] for p in memory.points)
    ]


def _totals(memory: StepMemory, origin: str) -> list[Layer]:
    changes = [_change(memory, index) for index in range(len(memory.points))]
    layers = [
        Layer(
            kind="step",
            name=f"allocated ({origin})",
            points=[p[:2] for p in memory.points],
            colour="allocated",
            details=changes,
        )
    ]
    if "reserved" in memory.columns:
        layers.append(
            Layer(
                kind="step",
                name=f"reserved ({origin})",
                points=[[p[0], p[2]] for p in memory.points],
                colour="reserved",
            )
        )
    return layers


def _change(memory: StepMemory, index: int) -> list[str]:
    change = memory.changes[index]
    if not change:
        return []
    first, *rest = described(memory.tensors[change[0]])
    return [f"{'allocated' if change[1] else 'freed'}: {first}", *rest]


def run_chart(p: Prediction) -> Chart:
    """Of an earlier record, which knows only the totals over build and steps."""
    layers = [
        Layer(
            kind="step",
            name="allocated (predicted)",
            points=[[event, allocated] for event, allocated, _ in p.timeline],
            colour="allocated",
        ),
        Layer(
            kind="step",
            name="reserved (predicted)",
            points=[[event, reserved] for event, _, reserved in p.timeline],
            colour="reserved",
        ),
    ]
    layers += capacity_layer(p.capacity_bytes, p.peak_reserved_bytes)
    x = Axis(label="allocations and frees through build and steps", unit="number")
    return Chart(
        title="Memory through build and steps",
        caption="Predicted. This record was made by an earlier version: it does not say which tensors these are."
        + far_capacity(p.capacity_bytes, p.peak_reserved_bytes),
        views=[View(name="", x=x, y=Axis(label="memory", unit="bytes"), layers=layers)],
    )
