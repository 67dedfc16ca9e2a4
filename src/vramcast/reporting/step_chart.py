"""Memory through a step as a chart: categories, allocated and reserved, capacity and peak."""

from collections.abc import Mapping, Sequence

from vramcast.records.prediction import (
    CATEGORIES,
    FailedAllocation,
    PhaseName,
    Prediction,
    StepMemory,
)
from vramcast.reporting import sections as page
from vramcast.reporting.allocations import Bands, piece_layers
from vramcast.reporting.tensors import colour_of, described, words

FAR = 2.5  # a capacity above this many times the highest point is not drawn
# the colours are defined in assets/page.css
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


def capacity_of(capacity_bytes: int | None, top_bytes: int) -> tuple[page.Layer, str]:
    """The line of the capacity, and a text for the caption where it is too high to be drawn."""
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
    bands: Bands = (),
    failure: FailedAllocation | None = None,
) -> page.Chart:
    """`measured` is drawn over the rest; `bands` are those of the whole run."""
    peak = memory.points[memory.peak_point]
    top = max(peak_reserved_bytes or 0, *(point[1] for point in memory.points))
    capacity, far = capacity_of(capacity_bytes, top)
    changes = [_change(memory, change) for change in memory.changes]
    at_peak = ["most is allocated here", *changes[memory.peak_point]]
    lines = {
        name: [[point[0], point[place]] for point in memory.points]
        for place, name in enumerate(memory.columns)
    }
    over = [
        page.Layer("step", f"allocated ({origin})", lines["allocated"], "allocated", changes),
        page.Layer("step", f"reserved ({origin})", lines.get("reserved", []), "reserved"),
        *measured,
        capacity,
        _fails(failure, memory.first_event, memory.num_events),
        page.Layer("dot", "peak", [peak[:2]], "peak", [at_peak]),
    ]
    behind = _bands_of_step(memory, bands)
    pieces, areas = piece_layers(memory, bands), _areas(lines)
    x = page.Axis(f"allocations and frees through {memory.phase}")
    categories = [*behind, *areas, *over]
    views = [page.View(x, page.MEMORY_AXIS, categories, "by category", in_terminal=True)]
    if pieces:
        # without the line of allocated memory, which is the top of the pieces
        layers = [*behind, *pieces, *over[1:]]
        views.insert(0, page.View(x, page.MEMORY_AXIS, layers, "every allocation", "piece"))
    reserved = page.given(", {} reserved", page.size(peak_reserved_bytes))
    caption = (
        f"{origin.capitalize()}: the peak is {page.size(peak[1])} allocated{reserved}, "
        f"at event {peak[0]:,} of {memory.num_events:,} in {memory.phase}. "
        f"{_drawn(memory)}{far}"
    )
    return page.chart(f"Memory through {memory.phase}", caption, *views)


def _areas(lines: Mapping[str, list[list[int]]]) -> list[page.Layer]:
    """Categories in the usual order, with unknown ones last."""
    names = sorted(lines.keys() - TOTALS, key=[*CATEGORIES, *lines].index)
    return [
        page.Layer("area", words(name), lines[name], colour_of(name))
        for name in names
        if any(value for _, value in lines[name])
    ]


def _drawn(memory: StepMemory) -> str:
    events = page.count(memory.num_events, "event")
    text = f"The lines have {page.count(len(memory.points), 'point')} for {events}."
    if not memory.allocations:
        return text
    large = page.count(len(memory.allocations), "large allocation")
    return f"{large} are drawn one by one, the smaller ones together. {text}"


def _change(memory: StepMemory, change: Sequence[int]) -> list[str]:
    if not change:
        return []
    first, *rest = described(memory.tensors[change[0]])
    return [f"{'allocated' if change[1] else 'freed'}: {first}", *rest]


def bands_of(p: Prediction) -> Bands:
    """The phases in order. Training is replaced by the parts of a step, where they are known."""
    phases = [band for band in p.phase_bands if not (p.step_bands and band.name == PhaseName.TRAIN)]
    return sorted([*phases, *p.step_bands], key=lambda one: one.first_event)


def _bands(bands: Bands, first_event: int = 0, last_event: int | None = None) -> list[page.Layer]:
    """The bands between two events, counted from the first event."""
    stretches: dict[str, list[list[int]]] = {}
    for band in bands:
        last = band.last_event if last_event is None else min(band.last_event, last_event)
        begin, end = max(band.first_event, first_event) - first_event, last - first_event
        if begin < end or last_event is None:
            stretches.setdefault(band.name, []).append([begin, end])
    return [page.Layer("band", name, stretches[name], PHASE_COLOURS[name]) for name in stretches]


def _bands_of_step(memory: StepMemory, bands: Bands) -> list[page.Layer]:
    """The bands of a step. A single band would colour everything, so it is left out."""
    layers = _bands(bands, memory.first_event, memory.first_event + memory.num_events)
    return layers if len(layers) > 1 else []


def _fails(failure: FailedAllocation | None, first_event: int, num_events: int) -> page.Layer:
    """A mark where memory runs out, if that is between these events."""
    event = -1 if failure is None or failure.event is None else failure.event - first_event
    what = f"fails here: {page.size(failure.tensor.num_bytes)}" if failure else ""
    return page.Layer("down", what, [[event]] if 0 <= event < num_events else [], "bad")


def run_chart(p: Prediction) -> page.Chart:
    capacity, far = capacity_of(p.capacity_bytes, p.peak_reserved_bytes)
    allocated = [[event, value] for event, value, _ in p.timeline]
    reserved = [[event, value] for event, _, value in p.timeline]
    layers = [
        *_bands(bands_of(p)),
        page.Layer("step", "allocated (predicted)", allocated, "allocated"),
        page.Layer("step", "reserved (predicted)", reserved, "reserved"),
        capacity,
        _fails(p.failure, 0, max((event for event, _, _ in p.timeline), default=0) + 1),
    ]
    old = " This record is of an earlier version, which does not say which tensors these are."
    caption = f"Predicted.{far}{'' if p.step_memory else old}"
    through = "through build and steps"
    x = page.Axis(f"allocations and frees {through}")
    view = page.View(x, page.MEMORY_AXIS, layers)
    return page.chart(f"Memory {through}", caption, view, detail=False)
