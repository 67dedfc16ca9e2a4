"""Segments cut into spans, and the pools that hold the free ones.

A segment is a chain of spans, each in use, free, or (expandable segments only) not backed by
memory. A span that becomes free merges with free neighbours at once.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, insort
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from vramcast.allocator.settings import MIN_BLOCK_BYTES

SMALL_REQUEST_BYTES = 2**20  # served by the small pool
SMALL_SEGMENT_BYTES = 2 * 2**20
OWN_SEGMENT_BYTES = 10 * 2**20  # from this size on a request gets a segment of its own
SEGMENT_ROUNDING_BYTES = 2 * 2**20
UNLIMITED_BYTES = sys.maxsize

IN_USE, FREE, UNMAPPED = range(3)


@dataclass(frozen=True)
class Block:
    address: int
    size_bytes: int
    requested_bytes: int
    block_id: int | None  # None: the block is free


@dataclass(frozen=True)
class Segment:
    address: int
    size_bytes: int
    is_large: bool
    key: Hashable  # the key of its pools
    blocks: tuple[Block, ...]


@dataclass(slots=True, eq=False)
class Span:
    address: int
    size_bytes: int
    pool: Pool
    state: int
    before: Span | None = None
    after: Span | None = None
    block_id: int = 0
    requested_bytes: int = 0
    cached_at_search: int = 0

    def cut(self, size_bytes: int) -> Span:
        """Shortens this span and returns the rest, which is linked in after it with the same
        state."""
        address, rest_bytes = self.address + size_bytes, self.size_bytes - size_bytes
        rest = Span(address, rest_bytes, self.pool, self.state, self, self.after)
        if rest.after is not None:
            rest.after.before = rest
        self.after = rest
        self.size_bytes = size_bytes
        return rest

    def absorb_next(self) -> None:
        """Absorbs the next span. The front span survives, so the head of a segment stays the same
        object."""
        absorbed = self.after
        assert absorbed is not None
        self.size_bytes += absorbed.size_bytes
        self.after = absorbed.after
        if self.after is not None:
            self.after.before = self

    def merged(self, state: int, remove: Callable[[Span], None]) -> Span:
        """Absorbs the neighbours in `state`, and calls `remove` for each of them."""
        merged, before, after = self, self.before, self.after
        if before is not None and before.state == state:
            remove(before)
            before.absorb_next()
            merged = before
        if after is not None and after.state == state:
            remove(after)
            merged.absorb_next()
        return merged

    def is_whole_segment(self) -> bool:
        return self.before is self.after is None


@dataclass(slots=True, eq=False)
class Searches:
    """Counts searches in the pools of one size class: the clock by which garbage collection ages
    cached spans."""

    count: int = 0


@dataclass(slots=True, eq=False)
class Pool:
    """The free spans of one size class, ordered by (size, address): best fit is one bisection."""

    is_large: bool
    key: Hashable
    searches: Searches
    min_rest_bytes: int = MIN_BLOCK_BYTES
    split_below_bytes: int = UNLIMITED_BYTES
    free: list[tuple[int, int, Span]] = field(default_factory=list)

    def add_free(self, span: Span) -> Span:
        """Marks a span free and merges it with its free neighbours into the span returned."""
        span = span.merged(FREE, self.remove_free)
        span.state = FREE
        span.cached_at_search = self.searches.count
        insort(self.free, (span.size_bytes, span.address, span))
        return span

    def remove_free(self, span: Span) -> None:
        del self.free[bisect_left(self.free, (span.size_bytes, span.address))]


# Called for every range taken from the device or given back: torch's name for it, address, bytes.
Observer = Callable[[str, int, int], None]


@dataclass(slots=True, eq=False)
class DeviceMemory:
    capacity_bytes: int | None
    tell: Observer
    reserved_bytes: int = 0
    peak_reserved_bytes: int = 0

    def has_room_for(self, num_bytes: int) -> bool:
        return self.capacity_bytes is None or self.reserved_bytes + num_bytes <= self.capacity_bytes

    def take(self, num_bytes: int) -> bool:
        if not self.has_room_for(num_bytes):
            return False
        self.reserved_bytes += num_bytes
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)
        return True

    def give_back(self, num_bytes: int) -> None:
        self.reserved_bytes -= num_bytes


def round_up(num_bytes: int, multiple: int) -> int:
    return -(-num_bytes // multiple) * multiple


def last_power_of_two(number: int) -> int:
    """The largest power of two that is not above the number; of numbers below 1 that is 1."""
    return 1 << max(1, number).bit_length() - 1


def snapshot_of(head: Span) -> list[Segment]:
    """The mapped ranges of a chain. An expandable segment can have several."""
    ranges: list[list[Span]] = [[]]
    span: Span | None = head
    while span is not None:
        if span.state == UNMAPPED:
            ranges.append([])
        else:
            ranges[-1].append(span)
        span = span.after
    return [_segment(spans) for spans in ranges if spans]


def _segment(spans: list[Span]) -> Segment:
    blocks = tuple(
        Block(span.address, span.size_bytes, span.requested_bytes, span.block_id)
        if span.state == IN_USE
        else Block(span.address, span.size_bytes, 0, None)
        for span in spans
    )
    size_bytes = sum(block.size_bytes for block in blocks)
    pool = spans[0].pool
    return Segment(blocks[0].address, size_bytes, pool.is_large, pool.key, blocks)
