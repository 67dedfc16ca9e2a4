"""How the allocator's memory is cut up where most is allocated, or where an allocation fails."""

from itertools import groupby

from vramcast.allocator.replay import Piece, Replay, segments_after
from vramcast.forecast.budget import Budget
from vramcast.records.step_memory import MemorySegment, SegmentMap
from vramcast.tracing.trace import SimulatedRun

MOST_SEGMENTS = 60
MOST_EVENTS = 100_000  # with rare settings they take a third of a second, in Python


def segment_map(trace: SimulatedRun, budget: Budget, limited: Replay) -> SegmentMap | None:
    """`limited` is within the budget, which is that of the run."""
    num_events = len(limited.allocated_bytes)  # up to the one that fails
    last = limited.allocated_peak_event if limited.fits else num_events
    if not 0 <= last < MOST_EVENTS:
        return None
    found = segments_after(
        trace.events[: last + 1],
        trace.sizes[: last + 1],
        budget.settings,
        budget.capacity_bytes,
        **trace.circumstances(),
    )
    found.sort(key=_num_bytes, reverse=True)
    free = [piece.size_bytes for pieces in found for piece in pieces if piece.block_id is None]
    return SegmentMap(
        segments=[_segment(pieces, trace) for pieces in found[:MOST_SEGMENTS]],
        num_segments=len(found),
        free_bytes=sum(free),
        num_free=len(free),
        largest_free_bytes=max(free, default=0),
    )


def _num_bytes(pieces: list[Piece]) -> int:
    return sum(piece.size_bytes for piece in pieces)


def _segment(pieces: list[Piece], trace: SimulatedRun) -> MemorySegment:
    """Neighbours of one category together."""

    def category(piece: Piece) -> str:
        if piece.block_id is None:
            return ""
        return trace.categories.words[int(trace.categories.codes[piece.block_id - 1])]

    return MemorySegment(
        num_bytes=_num_bytes(pieces),
        blocks=[(name, _num_bytes(list(group))) for name, group in groupby(pieces, category)],
    )
