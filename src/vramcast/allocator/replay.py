"""Replays a recorded or predicted sequence of allocations.

An event is an integer: +i allocates the i-th allocation (from 1), -i frees it, 0 begins a step, EMPTY_CACHE is
torch.cuda.empty_cache().
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from vramcast.allocator.model import CachingAllocator, OutOfMemory
from vramcast.allocator.settings import AllocatorSettings

EMPTY_CACHE = -(2**62)


@dataclass(frozen=True)
class OutOfMemoryDetails:
    event_index: int
    requested_bytes: int
    segment_bytes: int
    allocated_bytes: int
    reserved_bytes: int


@dataclass(frozen=True)
class Replay:
    """A replay that ran out of memory ends at that event; its peaks are those up to there."""

    peak_allocated_bytes: int
    peak_reserved_bytes: int
    num_alloc_retries: int
    fits: bool
    out_of_memory: OutOfMemoryDetails | None
    allocated_peak_event: int
    """Index of the first event at which the peak was reached; -1 when nothing was allocated."""
    reserved_after_step: tuple[int, ...]
    """Peak reserved bytes so far at each end of a step, and at the end of the replay."""
    peak_allocated_after_step: tuple[int, ...]


def replay(
    events: Sequence[int],
    sizes: Sequence[int],
    settings: AllocatorSettings | None = None,
    capacity_bytes: int | None = None,
) -> Replay:
    allocator = CachingAllocator(settings or AllocatorSettings(), capacity_bytes)
    peaks = _Peaks(allocator)
    out_of_memory = None
    event_index = 0
    malloc, free = (
        allocator.malloc,
        allocator.free,
    )  # bound once: this loop runs for every event of a trace
    try:
        for event_index, event in enumerate(events):
            if event > 0:
                malloc(event, sizes[event - 1])
                if (
                    allocator.peak_allocated_bytes > peaks.allocated_bytes
                    or allocator.peak_reserved_bytes > peaks.reserved_bytes
                ):
                    peaks.note(event_index)
            elif event == 0:
                peaks.mark_step()
            elif event == EMPTY_CACHE:
                allocator.empty_cache()
            else:
                free(-event)
    except OutOfMemory as error:
        peaks.note(event_index)  # an expandable segment may have grown before it failed
        out_of_memory = _details(error, event_index)
    peaks.mark_step()
    return Replay(
        peak_allocated_bytes=allocator.peak_allocated_bytes,
        peak_reserved_bytes=allocator.peak_reserved_bytes,
        num_alloc_retries=allocator.num_alloc_retries,
        fits=out_of_memory is None,
        out_of_memory=out_of_memory,
        allocated_peak_event=peaks.allocated_event,
        reserved_after_step=tuple(peaks.reserved_after_step),
        peak_allocated_after_step=tuple(peaks.allocated_after_step),
    )


class _Peaks:
    """When the peaks were reached, and how high they stood after each step."""

    def __init__(self, allocator: CachingAllocator) -> None:
        self._allocator = allocator
        self.allocated_bytes = self.reserved_bytes = 0
        self.allocated_event = -1
        self.allocated_after_step: list[int] = []
        self.reserved_after_step: list[int] = []

    def note(self, event_index: int) -> None:
        if self._allocator.peak_allocated_bytes > self.allocated_bytes:
            self.allocated_bytes, self.allocated_event = (
                self._allocator.peak_allocated_bytes,
                event_index,
            )
        if self._allocator.peak_reserved_bytes > self.reserved_bytes:
            self.reserved_bytes = self._allocator.peak_reserved_bytes

    def mark_step(self) -> None:
        self.allocated_after_step.append(self.allocated_bytes)
        self.reserved_after_step.append(self.reserved_bytes)


def _details(error: OutOfMemory, event_index: int) -> OutOfMemoryDetails:
    return OutOfMemoryDetails(
        event_index=event_index,
        requested_bytes=error.requested_bytes,
        segment_bytes=error.segment_bytes,
        allocated_bytes=error.allocated_bytes,
        reserved_bytes=error.reserved_bytes,
    )


def live_at(events: Sequence[int], event_index: int) -> list[int]:
    """Ids of the allocations alive just after that event, oldest first."""
    live: dict[int, None] = {}
    for event in events[: event_index + 1]:
        if event > 0:
            live[event] = None
        elif event not in (0, EMPTY_CACHE):
            del live[-event]
    return list(live)


def timeline(
    events: Sequence[int],
    sizes: Sequence[int],
    settings: AllocatorSettings | None = None,
    points: int = 200,
) -> list[tuple[int, int, int]]:
    """At most `points` of (event index, allocated bytes, reserved bytes), among them the first maximum of each."""
    return thinned(history(events, sizes, settings), points)


def history(
    events: Sequence[int],
    sizes: Sequence[int],
    settings: AllocatorSettings | None = None,
    capacity_bytes: int | None = None,
) -> list[tuple[int, int, int]]:
    """(event index, allocated bytes, reserved bytes) after every event; `capacity_bytes` must be enough for all of them."""
    return list(
        _history(events, sizes, CachingAllocator(settings or AllocatorSettings(), capacity_bytes))
    )


def thinned(whole: list[tuple[int, int, int]], points: int = 200) -> list[tuple[int, int, int]]:
    """Of a history at most `points`, among them the first maximum of each."""
    if len(whole) <= points:
        return whole
    num_stretches = max(points // 2, 1)  # each stretch may keep two points
    bounds = [len(whole) * index // num_stretches for index in range(num_stretches + 1)]
    kept: set[tuple[int, int, int]] = set()
    for begin, end in pairwise(bounds):
        stretch = whole[begin:end]
        kept.add(max(stretch, key=lambda point: point[1]))
        kept.add(max(stretch, key=lambda point: point[2]))
    return sorted(kept)


def _history(
    events: Sequence[int], sizes: Sequence[int], allocator: CachingAllocator
) -> Iterator[tuple[int, int, int]]:
    for event_index, event in enumerate(events):
        if event > 0:
            allocator.malloc(event, sizes[event - 1])
        elif event == EMPTY_CACHE:
            allocator.empty_cache()
        elif event < 0:
            allocator.free(-event)
        yield event_index, allocator.allocated_bytes, allocator.reserved_bytes
