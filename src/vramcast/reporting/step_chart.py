"""Memory through a step as a chart: categories, allocated and reserved, capacity and peak."""

from collections.abc import Sequence

from vramcast.records.prediction import (
    CATEGORIES,
    LargeTensor,
    PhaseBand,
    PhaseName,
    Prediction,
    StepBand,
    StepMemory,
)
from vramcast.reporting import sections as page

FAR = 2.5  # times the highest thing drawn
# assets/page.css has them
PHASE_COLOURS = {
    "build": "s7",
    "train": "s0",
    "forward": "s0",
    "backward": "s3",
    "optimizer": "s2",
    "evaluate": "s1",
    "save": "s4",
    "other": "s5",
}
TOTALS = {"event", "allocated", "reserved"}  # the other columns are categories


def words(category: str) -> str:
    return category.replace("_", " ")


def colour_of(category: str) -> str:
    return category if category in CATEGORIES else "activations"


def shape_of(tensor: LargeTensor) -> str:
    return f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"


def what_of(tensor: LargeTensor) -> str:
    return f"{words(tensor.category)} {tensor.name}".strip()


def described(tensor: LargeTensor) -> list[str]:
    # A kernel's scratch memory has the type "bytes" and no shape.
    has_shape = tensor.shape or tensor.dtype not in ("", "bytes")
    lines = [
        f"{page.size(tensor.num_bytes)} {what_of(tensor)}".rstrip(),
        shape_of(tensor) if has_shape else "",
        tensor.operator.removeprefix("aten::"),
        tensor.module,
        tensor.source,
    ]
    return [line for line in lines if line]


def capacity_of(capacity_bytes: int | None, top_bytes: int) -> tuple[page.Layer, str]:
    """A line, and what the caption says where it is not drawn: nothing else could be seen."""
    points, note = [], ""
    if capacity_bytes is not None and capacity_bytes > FAR * top_bytes:
        note = f" The capacity, {page.size(capacity_bytes)}, lies far above and is not drawn."
    elif capacity_bytes is not None:
        points = [[capacity_bytes]]
    return page.Layer("across", "capacity", points, "capacity"), note


def step_chart(
    memory: StepMemory,
    origin: str,
    capacity_bytes: int | None = None,
    peak_reserved_bytes: int | None = None,
    measured: Sequence[page.Layer] = (),
) -> page.Chart:
    """`measured` is laid over the rest."""
    peak = memory.points[memory.peak_point]
    top = max(peak_reserved_bytes or 0, *(point[1] for point in memory.points))
    capacity, far = capacity_of(capacity_bytes, top)
    changes = [_change(memory, change) for change in memory.changes]
    at_peak = ["most is allocated here", *changes[memory.peak_point]]
    lines = {
        name: [[point[0], point[place]] for point in memory.points]
        for place, name in enumerate(memory.columns)
    }
    # Categories in the usual order, with unknown ones last.
    names = sorted(lines.keys() - TOTALS, key=[*CATEGORIES, *lines].index)
    layers = [
        *(
            page.Layer("area", words(name), lines[name], colour_of(name))
            for name in names
            if any(value for _, value in lines[name])
        ),
        page.Layer("step", f"allocated ({origin})", lines["allocated"], "allocated", changes),
        page.Layer("step", f"reserved ({origin})", lines.get("reserved", []), "reserved"),
        *measured,
        capacity,
        page.Layer("dot", "peak", [peak[:2]], "peak", [at_peak]),
    ]
    reserved = page.given(", {} reserved", page.size(peak_reserved_bytes))
    events = page.count(memory.num_events, "event")
    caption = (
        f"{origin.capitalize()}: the peak is {page.size(peak[1])} allocated{reserved}, "
        f"at event {peak[0]:,} of {memory.num_events:,} in {memory.phase}. "
        f"{page.count(len(memory.points), 'point')} of {events} are drawn.{far}"
    )
    return _through(memory.phase, caption, layers)


def _through(
    phase: str, caption: str, layers: Sequence[page.Layer], detail: bool = True
) -> page.Chart:
    x = page.Axis(f"allocations and frees through {phase}")
    view = page.View(x, page.MEMORY_AXIS, layers)
    return page.chart(f"Memory through {phase}", caption, view, detail=detail)


def _change(memory: StepMemory, change: Sequence[int]) -> list[str]:
    if not change:
        return []
    first, *rest = described(memory.tensors[change[0]])
    return [f"{'allocated' if change[1] else 'freed'}: {first}", *rest]


def _bands(p: Prediction) -> list[page.Layer]:
    """In the order of a program; a step's parts in place of training where they are known."""
    stretches: dict[str, list[list[int]]] = {}
    bands: list[PhaseBand | StepBand] = [
        *(band for band in p.phase_bands if not (p.step_bands and band.name == PhaseName.TRAIN)),
        *p.step_bands,
    ]
    for band in sorted(bands, key=lambda one: one.first_event):
        stretches.setdefault(band.name, []).append([band.first_event, band.last_event])
    return [page.Layer("band", name, stretches[name], PHASE_COLOURS[name]) for name in stretches]


def run_chart(p: Prediction) -> page.Chart:
    """The totals over the whole simulated run."""
    capacity, far = capacity_of(p.capacity_bytes, p.peak_reserved_bytes)
    allocated = [[event, value] for event, value, _ in p.timeline]
    reserved = [[event, value] for event, _, value in p.timeline]
    layers = [
        *_bands(p),
        page.Layer("step", "allocated (predicted)", allocated, "allocated"),
        page.Layer("step", "reserved (predicted)", reserved, "reserved"),
        capacity,
    ]
    old = " This record is of an earlier version, which does not say which tensors these are."
    caption = f"Predicted.{far}{'' if p.step_memory else old}"
    return _through("build and steps", caption, layers, detail=False)
