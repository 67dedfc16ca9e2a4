"""torch's CUDA caching allocator for one device.

A request takes the best fitting free block of its pool; every stream has pools of its own. If there
is none, the allocator does the following in this order: it collects garbage if that is set, takes a
new segment from the device, releases oversized cached blocks, releases everything cached (a retry),
and gives up.
"""

from bisect import bisect_left
from collections.abc import Hashable
from dataclasses import dataclass
from statistics import fmean

from vramcast.allocator.addresses import AddressSpace
from vramcast.allocator.blocks import (
    IN_USE,
    OWN_SEGMENT_BYTES,
    SEGMENT_ROUNDING_BYTES,
    SMALL_REQUEST_BYTES,
    SMALL_SEGMENT_BYTES,
    UNLIMITED_BYTES,
    DeviceMemory,
    Observer,
    Pool,
    Searches,
    Segment,
    Span,
    round_up,
    snapshot_of,
)
from vramcast.allocator.expandable import ExpandableSegment, index_of_least_growable
from vramcast.allocator.settings import AllocatorSettings

LARGE_POOL_BASE_ADDRESS = 2**50
NEXT_POOLS_ADDRESS = 2**51
DEFAULT_STREAM = 0
PRIVATE = 1 << 40  # a pool's number in a key, beside the stream


@dataclass(eq=False)
class OutOfMemory(Exception):
    """The device could not serve a request even with the cache emptied."""

    requested_bytes: int
    segment_bytes: int
    allocated_bytes: int
    reserved_bytes: int


@dataclass(frozen=True)
class Pools:
    """The pools of one stream. With expandable segments each has one segment."""

    small: Pool
    large: Pool
    segments: tuple[ExpandableSegment, ...] = ()


class CachingAllocator:
    def __init__(
        self,
        settings: AllocatorSettings,
        capacity_bytes: int | None = None,
        observer: Observer = lambda action, address, num_bytes: None,
    ) -> None:
        self.settings = settings
        self.allocated_bytes = 0
        self.peak_allocated_bytes = 0
        self.num_alloc_retries = 0
        self.memory = DeviceMemory(capacity_bytes, observer)
        self._limits_splits = settings.max_split_size_bytes is not None
        self._max_split_bytes = settings.max_split_size_bytes or UNLIMITED_BYTES
        self._collects_garbage = (
            settings.garbage_collection_threshold > 0.0 and capacity_bytes is not None
        )
        self._searches = Searches(), Searches()
        self._pools: dict[Hashable, Pools] = {}
        self._blocks_in_use: dict[int, Span] = {}
        self._held: dict[int, Span] = {}
        self._segment_heads: dict[int, Span] = {}
        self.addresses = AddressSpace()

    @property
    def reserved_bytes(self) -> int:
        return self.memory.reserved_bytes

    @property
    def peak_reserved_bytes(self) -> int:
        return self.memory.peak_reserved_bytes

    def malloc(self, block_id: int, num_bytes: int, key: Hashable = DEFAULT_STREAM) -> int:
        """Allocates a block and returns its size. The key of its pools is the stream. From PRIVATE
        on it also has the number of a private pool, as of CUDA graphs, which keeps its memory."""
        size_bytes = self.settings.rounded(num_bytes)
        pools = self._pools.get(key) or self._new_pools(key)
        pool = pools.small if size_bytes <= SMALL_REQUEST_BYTES else pools.large
        span = self._best_fit(pool, size_bytes)
        if span is None:
            span = self._span_from_device(pools, pool, size_bytes, num_bytes)
        span.state = IN_USE
        rest_bytes = span.size_bytes - size_bytes
        if rest_bytes >= pool.min_rest_bytes and size_bytes < pool.split_below_bytes:
            pool.add_free(span.cut(size_bytes))
        span.block_id = block_id
        span.requested_bytes = num_bytes
        self._blocks_in_use[block_id] = span
        self.allocated_bytes += span.size_bytes
        self.peak_allocated_bytes = max(self.peak_allocated_bytes, self.allocated_bytes)
        return span.size_bytes

    def free(self, block_id: int) -> None:
        span = self._blocks_in_use.pop(block_id)
        self.allocated_bytes -= span.size_bytes
        span.pool.add_free(span)

    def hold(self, block_id: int) -> None:
        """The program has freed the block, but another stream still uses it, so it cannot be used
        again yet."""
        span = self._held[block_id] = self._blocks_in_use.pop(block_id)
        self.allocated_bytes -= span.size_bytes

    def release(self, block_id: int) -> None:
        """Ends `hold`, unless the cache was emptied meanwhile."""
        span = self._held.pop(block_id, None)
        if span is not None:
            span.pool.add_free(span)

    def has(self, block_id: int) -> bool:
        return block_id in self._blocks_in_use

    def address_of(self, block_id: int) -> int:
        return self._blocks_in_use[block_id].address

    def empty_cache(self) -> None:
        """Waits for all streams, then gives back every segment of which no part is in use."""
        for block_id in list(self._held):
            self.release(block_id)
        for key, pools in self._pools.items():
            if isinstance(key, int) and key >= PRIVATE:
                continue
            for segment in pools.segments:
                segment.release_free_granules()
            if not pools.segments:
                self._release_whole_segments(pools.large)
                self._release_whole_segments(pools.small)

    def snapshot(self) -> list[Segment]:
        heads = [segment.head for pools in self._pools.values() for segment in pools.segments]
        heads += self._segment_heads.values()
        segments = [segment for head in heads for segment in snapshot_of(head)]
        return sorted(segments, key=lambda segment: segment.address)

    def _new_pools(self, key: Hashable) -> Pools:
        small, large = (Pool(is_large, key, self._searches[is_large]) for is_large in (False, True))
        first_address = len(self._pools) * NEXT_POOLS_ADDRESS
        segments: tuple[ExpandableSegment, ...] = ()
        if self.settings.expandable_segments:
            segments = (
                ExpandableSegment(
                    small,
                    self.memory,
                    base_address=first_address,
                    granule_bytes=SMALL_SEGMENT_BYTES,
                ),
                ExpandableSegment(
                    large,
                    self.memory,
                    base_address=first_address + LARGE_POOL_BASE_ADDRESS,
                    granule_bytes=self.settings.large_segment_bytes,
                ),
            )
        else:
            large.min_rest_bytes = SMALL_REQUEST_BYTES + 1
            large.split_below_bytes = self._max_split_bytes
        self._pools[key] = Pools(small, large, segments)
        return self._pools[key]

    def _segment_bytes_for(self, size_bytes: int) -> int:
        if size_bytes <= SMALL_REQUEST_BYTES:
            return SMALL_SEGMENT_BYTES
        if size_bytes < OWN_SEGMENT_BYTES:
            return self.settings.large_segment_bytes
        return round_up(size_bytes, SEGMENT_ROUNDING_BYTES)

    def _best_fit(self, pool: Pool, size_bytes: int) -> Span | None:
        free = pool.free
        pool.searches.count += 1
        index = bisect_left(free, (size_bytes,))
        if index == len(free):
            return None
        if self.settings.expandable_segments:
            index = index_of_least_growable(free, index)
        candidate_bytes, _, span = free[index]
        if self._limits_splits and not self._may_use(candidate_bytes, size_bytes):
            return None
        del free[index]
        return span

    def _may_use(self, candidate_bytes: int, size_bytes: int) -> bool:
        """Whether max_split_size allows it: oversized blocks are kept for oversized requests that
        waste little."""
        if size_bytes < self._max_split_bytes:
            return candidate_bytes < self._max_split_bytes
        return candidate_bytes < size_bytes + self.settings.max_non_split_rounding_bytes

    def _span_from_device(
        self, pools: Pools, pool: Pool, size_bytes: int, requested_bytes: int
    ) -> Span:
        segment_bytes = self._segment_bytes_for(size_bytes)
        if self._collects_garbage:
            self._collect_garbage()
        span = self._new_span(pools, pool, size_bytes, segment_bytes)
        if span is None and self._release_oversized(pool, size_bytes):
            span = self._new_span(pools, pool, size_bytes, segment_bytes)
        if span is None:
            self.empty_cache()
            self.num_alloc_retries += 1
            span = self._new_span(pools, pool, size_bytes, segment_bytes)
        if span is None:
            raise OutOfMemory(
                requested_bytes, segment_bytes, self.allocated_bytes, self.reserved_bytes
            )
        return span

    def _new_span(
        self, pools: Pools, pool: Pool, size_bytes: int, segment_bytes: int
    ) -> Span | None:
        if pools.segments:
            # torch asks for room for a whole segment first, though growing may map less than that.
            has_room = self.memory.has_room_for(segment_bytes)
            return pools.segments[pool.is_large].grow(size_bytes) if has_room else None
        if not self.memory.take(segment_bytes):
            return None
        span = Span(self.addresses.take(segment_bytes), segment_bytes, pool, IN_USE)
        self._segment_heads[span.address] = span
        self.memory.tell("segment_alloc", span.address, segment_bytes)
        return span

    def _release_whole_segments(self, pool: Pool) -> None:
        for _, _, span in list(pool.free):
            if span.is_whole_segment():
                self._release_segment(span)

    def _release_segment(self, span: Span) -> None:
        span.pool.remove_free(span)
        del self._segment_heads[span.address]
        self.memory.give_back(span.size_bytes)
        self.memory.tell("segment_free", span.address, span.size_bytes)
        self.addresses.give_back(span.address, span.size_bytes)

    def _release_oversized(self, pool: Pool, size_bytes: int) -> bool:
        """Gives back one cached block that makes room, or else the largest ones. Returns whether
        that may be enough."""
        if not self._limits_splits or self.settings.expandable_segments:
            return False
        wanted_bytes = max(size_bytes, self._max_split_bytes)
        index = bisect_left(pool.free, (wanted_bytes,))
        if index < len(pool.free):
            self._release_segment(pool.free[index][2])
            return True
        released_bytes = 0
        while pool.free and released_bytes < wanted_bytes:
            largest_bytes, _, largest = pool.free[-1]
            if largest_bytes < self._max_split_bytes:
                break
            released_bytes += largest_bytes
            self._release_segment(largest)
        return released_bytes >= wanted_bytes

    def _collect_garbage(self) -> None:
        """Above the threshold, releases the older cached large segments until below it."""
        assert self.memory.capacity_bytes is not None
        threshold = self.settings.garbage_collection_threshold
        excess_bytes = self.reserved_bytes - int(threshold * self.memory.capacity_bytes)
        free = [span for pools in self._pools.values() for _, _, span in pools.large.free]
        candidates = [span for span in free if span.is_whole_segment()]
        while excess_bytes > 0 and candidates:
            excess_bytes -= self._release_older_half(candidates)

    def _release_older_half(self, candidates: list[Span]) -> int:
        """Releases all segments of at least average age: stopping early would bring the next round
        too soon."""
        average = fmean(span.cached_at_search for span in candidates)
        old = [span for span in candidates if span.cached_at_search <= average]
        candidates[:] = [span for span in candidates if span.cached_at_search > average]
        for span in old:
            self._release_segment(span)
        return sum(span.size_bytes for span in old)
