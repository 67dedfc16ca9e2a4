"""How the allocator's memory is cut up where most is allocated, or where an allocation fails."""

from itertools import groupby

from vramcast.allocator.blocks import Block, Segment
from vramcast.allocator.replay import Replay, segments_after
from vramcast.forecast.budget import Budget
from vramcast.records.step_memory import MemorySegment, SegmentMap
from vramcast.tracing.trace import SimulatedRun

MOST_SEGMENTS = 60
MOST_EVENTS = 100_000  # in Python they take a third of a second


def segment_map(trace: SimulatedRun, budget: Budget, limited: Replay) -> SegmentMap | None:
    """`limited` is within the budget, which is that of the run."""
    num_events = len(limited.allocated_bytes)  # up to the one that fails
    last = limited.allocated_peak_event if limited.fits else num_events
    if not 0 <= last < MOST_EVENTS:
        return None
    found = segments_after(
        trace.events[: last + 1],
        trace.sizes,
        budget.settings,
        budget.capacity_bytes,
        keys=trace.streams,
        held_until=trace.held_until or {},
        first_kernel=trace.first_kernel,
    )
    found.sort(key=lambda segment: -segment.size_bytes)
    free = [b.size_bytes for segment in found for b in segment.blocks if b.block_id is None]
    return SegmentMap(
        segments=[_segment(segment, trace) for segment in found[:MOST_SEGMENTS]],
        num_segments=len(found),
        free_bytes=sum(free),
        num_free=len(free),
        largest_free_bytes=max(free, default=0),
    )


def _segment(segment: Segment, trace: SimulatedRun) -> MemorySegment:
    """Neighbours of one category together."""

    def category(block: Block) -> str:
        if block.block_id is None:
            return ""
        return trace.categories.words[int(trace.categories.codes[block.block_id - 1])]

    return MemorySegment(
        num_bytes=segment.size_bytes,
        blocks=[
            (name, sum(block.size_bytes for block in blocks))
            for name, blocks in groupby(segment.blocks, category)
        ],
    )
