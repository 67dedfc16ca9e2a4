"""Segments cut into spans, and the pools that hold the free ones.

A segment is a chain of spans, each in use, free, or (expandable segments only) not backed by
memory. Two free spans are never neighbours: whatever becomes free merges at once.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass

SMALL_REQUEST_BYTES = 2**20  # up to here requests are served by the small pool
SMALL_SEGMENT_BYTES = 2 * 2**20
OWN_SEGMENT_BYTES = 10 * 2**20  # from here on a request gets a segment cut to its size
SEGMENT_ROUNDING_BYTES = 2 * 2**20

IN_USE, FREE, UNMAPPED = range(3)


@dataclass(frozen=True)
class Block:
    address: int
    size_bytes: int
    requested_bytes: int
    block_id: int | None
    """None: the block is free."""


@dataclass(frozen=True)
class Segment:
    """A contiguous range of reserved memory."""

    address: int
    size_bytes: int
    is_large: bool
    blocks: tuple[Block, ...]


class Span:
    __slots__ = (
        "address",
        "after",
        "before",
        "block_id",
        "cached_at_search",
        "pool",
        "requested_bytes",
        "size_bytes",
        "state",
    )

    def __init__(
        self,
        address: int,
        size_bytes: int,
        pool: Pool,
        state: int,
        before: Span | None = None,
        after: Span | None = None,
    ) -> None:
        self.address = address
        self.size_bytes = size_bytes
        self.pool = pool
        self.state = state
        self.before = before
        self.after = after
        self.block_id = 0
        self.requested_bytes = 0
        self.cached_at_search = 0

    def cut(self, size_bytes: int) -> Span:
        """Shortens this span to `size_bytes` and returns the rest, linked in behind it with the
        same state."""
        rest = Span(
            self.address + size_bytes,
            self.size_bytes - size_bytes,
            self.pool,
            self.state,
            self,
            self.after,
        )
        if rest.after is not None:
            rest.after.before = rest
        self.after = rest
        self.size_bytes = size_bytes
        return rest

    def absorb_next(self) -> None:
        """Takes over the span behind.

        The front one survives, so the head of a segment stays the same object.
        """
        absorbed = self.after
        assert absorbed is not None
        self.size_bytes += absorbed.size_bytes
        self.after = absorbed.after
        if self.after is not None:
            self.after.before = self

    def is_whole_segment(self) -> bool:
        return self.before is None and self.after is None


class Pool:
    """The free spans of one size class, ordered by (size, address) so that best fit is one
    bisection."""

    __slots__ = ("free", "is_large", "min_rest_bytes", "num_searches", "split_below_bytes")

    def __init__(self, *, is_large: bool, min_rest_bytes: int, split_below_bytes: int) -> None:
        self.is_large = is_large
        self.min_rest_bytes = min_rest_bytes
        self.split_below_bytes = split_below_bytes
        self.free: list[tuple[int, int, Span]] = []
        self.num_searches = 0  # the clock by which garbage collection ages cached spans

    def add_free(self, span: Span) -> Span:
        """Marks a span free, merged with its free neighbours, and returns the span that results."""
        before, after = span.before, span.after
        if before is not None and before.state == FREE:
            self.remove_free(before)
            before.absorb_next()
            span = before
        if after is not None and after.state == FREE:
            self.remove_free(after)
            span.absorb_next()
        span.state = FREE
        span.cached_at_search = self.num_searches
        insort(self.free, (span.size_bytes, span.address, span))
        return span

    def remove_free(self, span: Span) -> None:
        del self.free[bisect_left(self.free, (span.size_bytes, span.address))]


Observer = Callable[[str, int, int], None]
"""Told of every range taken from the device or given back: torch's name for it, address, bytes."""


def no_observer(_action: str, _address: int, _num_bytes: int) -> None:
    """Nobody looks."""


class DeviceMemory:
    """Bytes taken from the device, against its capacity if that is known."""

    __slots__ = ("capacity_bytes", "peak_reserved_bytes", "reserved_bytes", "tell")

    def __init__(self, capacity_bytes: int | None, observer: Observer = no_observer) -> None:
        self.capacity_bytes = capacity_bytes
        self.tell = observer
        self.reserved_bytes = 0
        self.peak_reserved_bytes = 0

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


def snapshot_of(head: Span) -> list[Segment]:
    """The mapped ranges of a chain: one for an ordinary segment, any number for an expandable
    one."""
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
    return Segment(
        spans[0].address, sum(span.size_bytes for span in spans), spans[0].pool.is_large, blocks
    )
