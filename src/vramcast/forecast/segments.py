"""The allocator's segments and blocks when most is allocated, or when an allocation fails."""

from itertools import groupby

from vramcast.allocator.replay import Piece, Replay, segments_after
from vramcast.forecast.budget import Budget
from vramcast.records.step_memory import MemorySegment, SegmentMap
from vramcast.tracing.trace import SimulatedRun

MOST_SEGMENTS = 60
# with rare settings the model runs in Python: this many take a third of a second
MOST_EVENTS = 100_000


def segment_map(trace: SimulatedRun, budget: Budget, limited: Replay) -> SegmentMap | None:
    """The largest segments. `limited` is the replay within the run's budget."""
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
    """A segment; neighbouring blocks of one category are put together."""

    def category(piece: Piece) -> str:
        if piece.block_id is None:
            return ""
        return trace.categories.words[int(trace.categories.codes[piece.block_id - 1])]

    return MemorySegment(
        num_bytes=_num_bytes(pieces),
        blocks=[(name, _num_bytes(list(group))) for name, group in groupby(pieces, category)],
    )
