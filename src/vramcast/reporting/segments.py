"""The allocator's segments and the blocks in them, as bars."""

from collections import Counter

from vramcast.records.prediction import CATEGORIES, Prediction
from vramcast.reporting import sections as page
from vramcast.reporting.tensors import colour_of, words

MOST_ROWS = 16
FREE = "free"


def segments_chart(p: Prediction) -> page.Chart | None:
    """The chart. Equal segments are one bar."""
    found = p.segment_map
    if found is None or not found.segments:
        return None
    alike = Counter(tuple(segment.blocks) for segment in found.segments)
    rows = list(alike.items())[:MOST_ROWS]
    bars = [
        bar for rank, (blocks, number) in enumerate(rows, 1) for bar in _bars(rank, number, blocks)
    ]
    names = {name for blocks, _ in rows for name, _ in blocks}
    ordered = sorted(names, key=[*CATEGORIES, *sorted(names)].index)
    colours = {words(n) or FREE: colour_of(n) if n else "cached_unused" for n in ordered}
    num_drawn = sum(number for _, number in rows)
    drawn = f", the {num_drawn} largest are drawn" if num_drawn < found.num_segments else ""
    at = "Where it fails" if p.failure else "At the peak"
    free = page.count(found.num_free, "piece")
    asked = page.given("; {} is asked for", page.size(p.failed_allocation_bytes))
    return page.chart(
        "How the allocator's memory is cut up",
        f"Predicted. {at}: {page.count(found.num_segments, 'segment')} from the driver"
        f"{drawn}. {page.size(found.free_bytes)} is free in {free}, the "
        f"largest of {page.size(found.largest_free_bytes)}{asked}.",
        page.bar_view(page.MEMORY_AXIS, bars, colours),
    )


def _bars(rank: int, number: int, blocks: tuple[tuple[str, int], ...]) -> list[page.Bar]:
    label = f"{rank}. ({number} alike)" if number > 1 else f"{rank}."
    bars, begin = [], 0
    for category, num_bytes in blocks:
        name = words(category) or FREE
        end = begin + num_bytes
        bars.append(page.Bar(name, label, begin, end, [f"{page.size(num_bytes)} {name}"]))
        begin = end
    return bars
