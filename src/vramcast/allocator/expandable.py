"""expandable_segments:True. One range of addresses per pool, backed by memory granule by granule.

Growing uses the lowest addresses at which the request fits, including free memory in front of a
hole. Releasing gives back every granule that is entirely free, even in the middle of the range.
"""

from bisect import bisect_left, insort

from vramcast.allocator.blocks import FREE, IN_USE, UNMAPPED, DeviceMemory, Pool, Span, round_up

# torch reserves addresses for 9/8 of the device, then opens a second range. Here one range is
# enough.
NUM_GRANULES = 2**24


class ExpandableSegment:
    def __init__(
        self, pool: Pool, memory: DeviceMemory, *, base_address: int, granule_bytes: int
    ) -> None:
        self._pool, self._memory, self._granule_bytes = pool, memory, granule_bytes
        address = round_up(base_address, granule_bytes)
        self.head = Span(address, NUM_GRANULES * granule_bytes, pool, UNMAPPED)
        self._holes: list[tuple[int, Span]] = []
        self._add_hole(self.head)

    def grow(self, size_bytes: int) -> Span | None:
        """A span of at least `size_bytes`, taken out of the pool; None when the device runs out.

        Memory mapped before it runs out stays mapped, and free: torch does not roll back either.
        """
        span = self._lowest_room_for(size_bytes)
        if span is not None and span.state == UNMAPPED:
            span = self._map_front(span, min(size_bytes, span.size_bytes))
        while span is not None and span.size_bytes < size_bytes:
            hole = span.after
            assert hole is not None
            span = self._map_front(hole, min(size_bytes - span.size_bytes, hole.size_bytes))
        if span is not None:
            self._pool.remove_free(span)
        return span

    def release_free_granules(self) -> None:
        for _, _, span in list(self._pool.free):
            begin = round_up(span.address, self._granule_bytes)
            end = (span.address + span.size_bytes) // self._granule_bytes * self._granule_bytes
            if begin < end:
                self._unmap(span, begin, end)

    def _lowest_room_for(self, size_bytes: int) -> Span | None:
        for _, hole in self._holes:
            start = hole.before if hole.before is not None and hole.before.state == FREE else hole
            if _has_room(start, size_bytes):
                return start
        return None

    def _map_front(self, hole: Span, size_bytes: int) -> Span | None:
        """Backs the front of a hole with memory and returns the free span it becomes part of."""
        mapped_bytes = round_up(size_bytes, self._granule_bytes)
        if not self._memory.take(mapped_bytes):
            return None
        self._remove_hole(hole)
        if mapped_bytes < hole.size_bytes:
            self._add_hole(hole.cut(mapped_bytes))
        self._memory.tell("segment_map", hole.address, mapped_bytes)
        return self._pool.add_free(hole)

    def _unmap(self, span: Span, begin: int, end: int) -> None:
        """Gives back [begin, end) of a free span; what is left on either side stays free."""
        self._pool.remove_free(span)
        hole = span.cut(begin - span.address) if begin > span.address else span
        tail = hole.cut(end - hole.address) if end < hole.address + hole.size_bytes else None
        # before its sides are put back, or free neighbours would merge across it
        hole.state = UNMAPPED
        if hole is not span:
            self._pool.add_free(span)
        if tail is not None:
            self._pool.add_free(tail)
        self._memory.give_back(end - begin)
        self._memory.tell("segment_unmap", begin, end - begin)
        self._add_hole(hole.merged(UNMAPPED, self._remove_hole))

    def _add_hole(self, hole: Span) -> None:
        insort(self._holes, (hole.address, hole))

    def _remove_hole(self, hole: Span) -> None:
        del self._holes[bisect_left(self._holes, (hole.address,))]


def _has_room(start: Span, size_bytes: int) -> bool:
    room_bytes = 0
    span: Span | None = start
    while span is not None and span.state != IN_USE and room_bytes < size_bytes:
        room_bytes += span.size_bytes
        span = span.after
    return room_bytes >= size_bytes


def index_of_least_growable(free: list[tuple[int, int, Span]], index: int) -> int:
    """Best fit, counting a span in front of a hole as large as it could grow."""
    growable_bytes = _growable_bytes(free[index][2])
    while index + 1 < len(free):
        next_growable_bytes = _growable_bytes(free[index + 1][2])
        if next_growable_bytes >= growable_bytes:
            break
        index, growable_bytes = index + 1, next_growable_bytes
    return index


def _growable_bytes(span: Span) -> int:
    after = span.after
    hole_bytes = after.size_bytes if after is not None and after.state == UNMAPPED else 0
    return span.size_bytes + hole_bytes
