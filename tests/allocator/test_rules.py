"""Each rule of the allocator in one sentence and a few numbers."""

from __future__ import annotations

import pytest

from vramcast.allocator.model import CachingAllocator, OutOfMemory
from vramcast.allocator.settings import AllocatorSettings

MIB = 2**20


def allocator_with(
    *sizes: int, conf: str = "", capacity_bytes: int | None = None
) -> CachingAllocator:
    """Serves `sizes` as blocks 1, 2, ..."""
    allocator = CachingAllocator(AllocatorSettings.parse(conf), capacity_bytes)
    for block_id, size in enumerate(sizes, start=1):
        allocator.malloc(block_id, size)
    return allocator


def block_sizes(allocator: CachingAllocator) -> list[list[int]]:
    return [[block.size_bytes for block in segment.blocks] for segment in allocator.snapshot()]


@pytest.mark.parametrize(
    ("requested", "allocated"), [(1, 512), (512, 512), (513, 1024), (MIB, MIB)]
)
def test_sizes_are_rounded_up_to_512_bytes(requested: int, allocated: int) -> None:
    assert allocator_with(requested).allocated_bytes == allocated


@pytest.mark.parametrize(
    ("requested", "reserved"),
    [
        (1, 2),
        (MIB, 2),
        (MIB + 1, 20),
        (10 * MIB - 512, 20),
        (10 * MIB, 10),
        (10 * MIB + 1, 12),
        (33 * MIB, 34),
    ],
)
def test_a_segment_is_2_mib_or_20_mib_or_the_request_rounded_up_to_2_mib(
    requested: int, reserved: int
) -> None:
    assert allocator_with(requested).reserved_bytes == reserved * MIB


def test_large_segment_size_replaces_the_20_mib() -> None:
    assert allocator_with(2 * MIB, conf="large_segment_size_mb:64").reserved_bytes == 64 * MIB


def test_power_of_two_divisions_round_up_to_the_next_step() -> None:
    # between 1024 and 2048 KiB with 4 divisions the steps are 256 KiB apart
    assert (
        allocator_with(1200 * 1024, conf="roundup_power2_divisions:4")
        .snapshot()[0]
        .blocks[0]
        .size_bytes
        == 1280 * 1024
    )


def test_sizes_up_to_512_bytes_per_division_are_rounded_plainly() -> None:
    assert allocator_with(1025, conf="roundup_power2_divisions:4").allocated_bytes == 1536
    assert allocator_with(2049, conf="roundup_power2_divisions:4").allocated_bytes == 2560


def test_small_blocks_are_split_down_to_512_bytes() -> None:
    assert block_sizes(allocator_with(MIB, MIB - 512)) == [[MIB, MIB - 512, 512]]


def test_a_large_block_is_split_only_when_more_than_1_mib_remains() -> None:
    assert (
        allocator_with(11 * MIB).allocated_bytes == 12 * MIB
    )  # 1 MiB remains: the block counts whole
    assert allocator_with(11 * MIB - 512).allocated_bytes == 11 * MIB - 512


def test_best_fit_takes_the_smallest_block_that_is_large_enough() -> None:
    allocator = allocator_with(40 * MIB, 30 * MIB, 50 * MIB)
    for block_id in (1, 2, 3):
        allocator.free(block_id)
    allocator.malloc(4, 30 * MIB)
    assert sorted(map(sum, block_sizes(allocator))) == [30 * MIB, 40 * MIB, 50 * MIB]
    assert [
        block.size_bytes for s in allocator.snapshot() for block in s.blocks if block.block_id == 4
    ] == [30 * MIB]


def test_among_equal_blocks_the_lowest_address_wins() -> None:
    allocator = allocator_with(30 * MIB, 30 * MIB)
    lowest = allocator.snapshot()[0].address
    allocator.free(1)
    allocator.free(2)
    allocator.malloc(3, 30 * MIB)
    assert [
        block.address for s in allocator.snapshot() for block in s.blocks if block.block_id == 3
    ] == [lowest]


def test_a_freed_block_merges_with_both_neighbours() -> None:
    allocator = allocator_with(512, 512, 512)
    for block_id in (1, 3, 2):
        allocator.free(block_id)
    assert block_sizes(allocator) == [[2 * MIB]]


def test_small_requests_never_use_the_large_pool() -> None:
    allocator = allocator_with(30 * MIB)
    allocator.free(1)
    allocator.malloc(2, 512)
    assert allocator.reserved_bytes == 32 * MIB


def test_peaks_stay_when_memory_is_freed() -> None:
    allocator = allocator_with(30 * MIB)
    allocator.free(1)
    allocator.empty_cache()
    assert (allocator.allocated_bytes, allocator.reserved_bytes) == (0, 0)
    assert (allocator.peak_allocated_bytes, allocator.peak_reserved_bytes) == (30 * MIB, 30 * MIB)


def test_emptying_the_cache_keeps_segments_that_are_partly_in_use() -> None:
    allocator = allocator_with(2 * MIB, 2 * MIB, 30 * MIB)
    allocator.free(1)
    allocator.free(3)
    allocator.empty_cache()
    assert allocator.reserved_bytes == 20 * MIB
    assert len(allocator.snapshot()) == 1


def test_an_oversized_block_is_not_used_for_a_smaller_request() -> None:
    allocator = allocator_with(60 * MIB, conf="max_split_size_mb:40")
    allocator.free(1)
    allocator.malloc(2, 30 * MIB)
    assert allocator.reserved_bytes == 90 * MIB


def test_an_oversized_request_takes_an_oversized_block_only_if_less_than_20_mib_are_wasted() -> (
    None
):
    for requested_mib, reserved_mib in ((42, 60), (40, 100)):
        allocator = allocator_with(60 * MIB, conf="max_split_size_mb:40")
        allocator.free(1)
        allocator.malloc(2, requested_mib * MIB)
        assert allocator.reserved_bytes == reserved_mib * MIB


def test_at_capacity_the_cache_is_released_and_the_request_retried() -> None:
    allocator = allocator_with(60 * MIB, capacity_bytes=100 * MIB)
    allocator.free(1)
    allocator.malloc(2, 80 * MIB)
    assert (allocator.reserved_bytes, allocator.num_alloc_retries) == (80 * MIB, 1)


def test_a_segment_may_fill_the_capacity_exactly() -> None:
    allocator = allocator_with(60 * MIB, 40 * MIB, capacity_bytes=100 * MIB)
    assert (allocator.reserved_bytes, allocator.num_alloc_retries) == (100 * MIB, 0)


def test_oversized_cached_blocks_are_released_without_a_retry() -> None:
    allocator = allocator_with(60 * MIB, capacity_bytes=100 * MIB, conf="max_split_size_mb:40")
    allocator.free(1)
    allocator.malloc(2, 30 * MIB)
    allocator.malloc(3, 30 * MIB)
    assert (allocator.reserved_bytes, allocator.num_alloc_retries) == (60 * MIB, 0)


def test_out_of_memory_tells_what_was_asked_and_what_was_held() -> None:
    allocator = allocator_with(60 * MIB, capacity_bytes=100 * MIB)
    with pytest.raises(OutOfMemory) as failure:
        allocator.malloc(2, 50 * MIB - 5)
    error = failure.value
    assert (error.requested_bytes, error.segment_bytes) == (50 * MIB - 5, 50 * MIB)
    assert (error.allocated_bytes, error.reserved_bytes) == (60 * MIB, 60 * MIB)


def test_the_allocator_goes_on_after_running_out() -> None:
    allocator = allocator_with(60 * MIB, capacity_bytes=100 * MIB)
    with pytest.raises(OutOfMemory):
        allocator.malloc(2, 50 * MIB)
    allocator.free(1)
    allocator.malloc(2, 50 * MIB)
    assert allocator.allocated_bytes == 60 * MIB - 10 * MIB


def test_garbage_collection_releases_the_older_cached_segments_above_the_threshold() -> None:
    allocator = allocator_with(
        30 * MIB, 40 * MIB, capacity_bytes=200 * MIB, conf="garbage_collection_threshold:0.3"
    )
    allocator.free(1)
    allocator.malloc(3, 60 * MIB)  # 70 MiB held, above 60: block 1 is released first
    assert (allocator.reserved_bytes, allocator.num_alloc_retries) == (100 * MIB, 0)


def test_garbage_collection_needs_a_known_capacity() -> None:
    allocator = allocator_with(30 * MIB, 40 * MIB, conf="garbage_collection_threshold:0.3")
    allocator.free(1)
    allocator.malloc(3, 60 * MIB)
    assert allocator.reserved_bytes == 130 * MIB


class TestExpandableSegments:
    conf = "expandable_segments:True"

    def test_the_large_pool_grows_in_20_mib_and_the_small_one_in_2_mib(self) -> None:
        assert allocator_with(33 * MIB, 1, conf=self.conf).reserved_bytes == 42 * MIB

    def test_growing_uses_the_free_end_of_what_is_mapped(self) -> None:
        allocator = allocator_with(33 * MIB, 27 * MIB, conf=self.conf)
        assert (allocator.reserved_bytes, len(allocator.snapshot())) == (60 * MIB, 1)

    def test_large_blocks_are_split_down_to_512_bytes(self) -> None:
        assert block_sizes(allocator_with(20 * MIB - 512, conf=self.conf)) == [
            [20 * MIB - 512, 512]
        ]

    def test_a_gap_is_preferred_over_the_end_that_could_still_grow(self) -> None:
        allocator = allocator_with(
            10 * MIB, 2 * MIB, 3 * MIB, conf=self.conf
        )  # 5 MiB are left at the end
        allocator.free(1)
        allocator.malloc(4, 4 * MIB)
        assert block_sizes(allocator) == [[4 * MIB, 6 * MIB, 2 * MIB, 3 * MIB, 5 * MIB]]

    def test_emptying_the_cache_unmaps_whole_granules_only(self) -> None:
        allocator = allocator_with(5 * MIB, 50 * MIB, 5 * MIB, conf=self.conf)
        allocator.free(2)
        allocator.empty_cache()
        assert block_sizes(allocator) == [[5 * MIB, 15 * MIB], [15 * MIB, 5 * MIB]]

    def test_holes_are_filled_before_the_end_grows(self) -> None:
        allocator = allocator_with(5 * MIB, 50 * MIB, 5 * MIB, conf=self.conf)
        allocator.free(2)
        allocator.empty_cache()
        allocator.malloc(4, 30 * MIB)
        assert block_sizes(allocator) == [[5 * MIB, 30 * MIB, 20 * MIB, 5 * MIB]]

    def test_at_capacity_free_granules_move_to_where_they_are_needed(self) -> None:
        allocator = allocator_with(40 * MIB, 20 * MIB, capacity_bytes=100 * MIB, conf=self.conf)
        allocator.free(1)
        allocator.malloc(3, 60 * MIB)
        assert (allocator.reserved_bytes, allocator.num_alloc_retries) == (80 * MIB, 1)

    def test_mapped_memory_never_exceeds_the_capacity(self) -> None:
        with pytest.raises(OutOfMemory):
            allocator_with(21 * MIB, capacity_bytes=30 * MIB, conf=self.conf)


@pytest.mark.parametrize("conf", ["", "expandable_segments:True"])
def test_memory_is_used_again_only_on_its_own_stream(conf: str) -> None:
    allocator = allocator_with(MIB, conf=conf)
    allocator.free(1)
    allocator.malloc(2, MIB, 7)
    assert allocator.reserved_bytes == 4 * MIB
    allocator.malloc(3, MIB)
    assert allocator.reserved_bytes == 4 * MIB
    assert {segment.key for segment in allocator.snapshot()} == {0, 7}


def test_memory_that_another_stream_uses_is_free_but_not_used_again() -> None:
    allocator = allocator_with(20 * MIB)
    allocator.hold(1)
    assert allocator.allocated_bytes == 0
    allocator.malloc(2, 20 * MIB)
    assert allocator.reserved_bytes == 40 * MIB
    allocator.release(1)
    allocator.malloc(3, 20 * MIB)
    assert allocator.reserved_bytes == 40 * MIB


def test_before_it_gives_up_the_allocator_waits_for_all_streams() -> None:
    allocator = allocator_with(20 * MIB, capacity_bytes=30 * MIB)
    allocator.hold(1)
    allocator.malloc(2, 20 * MIB, 7)
    allocator.release(1)
    assert allocator.reserved_bytes == 20 * MIB
    assert allocator.num_alloc_retries == 1
