"""The model and the plain reference agree after every event, whatever the settings, the capacity
and the sequence."""

from __future__ import annotations

import random
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st
from reference import ReferenceAllocator

from vramcast.allocator.model import CachingAllocator, OutOfMemory
from vramcast.allocator.settings import AllocatorSettings

MIB = 2**20

# Sizes near every boundary the allocator knows, and anything in between.
sizes = st.one_of(
    st.integers(1, 2048),
    st.integers(1, 3 * MIB),
    st.integers(MIB - 600, MIB + 600),
    st.integers(10 * MIB - 600, 10 * MIB + 600),
    st.integers(MIB, 80 * MIB),
    st.sampled_from([512, MIB, 2 * MIB, 5 * MIB, 10 * MIB, 20 * MIB, 21 * MIB, 30 * MIB, 40 * MIB]),
)

allocator_settings = st.builds(
    AllocatorSettings,
    expandable_segments=st.booleans(),
    max_split_size_bytes=st.sampled_from([None, None, 32 * MIB, 40 * MIB]),
    roundup_power2_divisions=st.sampled_from([(), (), (4,) * 16, (1, 2, 4, 8, 0, 2) + (16,) * 10]),
    garbage_collection_threshold=st.sampled_from([0.0, 0.0, 0.3, 0.6]),
    large_segment_bytes=st.sampled_from([20 * MIB, 20 * MIB, 12 * MIB, 32 * MIB]),
    max_non_split_rounding_bytes=st.just(32 * MIB),
)

capacities = st.one_of(st.none(), st.integers(30, 400).map(lambda mib: mib * MIB))


def long_run(seed: int) -> list[int | float | None]:
    """Hypothesis keeps its lists short; fragmentation, retries and garbage collection need long
    ones."""
    pick = random.Random(seed)
    limits = [4096, MIB, 3 * MIB, 12 * MIB, 45 * MIB, 80 * MIB]
    run: list[int | float | None] = []
    for _ in range(120):
        kind = pick.random()
        run.append(
            None
            if kind < 0.02
            else pick.random()
            if kind < 0.5
            else pick.randint(1, pick.choice(limits))
        )
    return run


# An integer is a size to allocate, a float picks the live block to free, None empties the cache.
fractions = st.floats(0, 1, exclude_max=True)
short_runs = st.lists(st.one_of(sizes, sizes, fractions, fractions, st.none()), max_size=80)
actions = st.one_of(short_runs, st.integers(0, 2**32).map(long_run))

thorough = settings(max_examples=600, derandomize=True)


def carry_out(
    allocator: CachingAllocator | ReferenceAllocator, todo: list[int | float | None]
) -> Iterator[bool]:
    """Yields after every action whether it ran into the capacity."""
    live: list[int] = []
    for block_id, action in enumerate(todo, start=1):
        ran_out = False
        if action is None:
            allocator.empty_cache()
        elif isinstance(action, float):
            if live:
                allocator.free(live.pop(int(action * len(live))))
        else:
            try:
                allocator.malloc(block_id, action)
                live.append(block_id)
            except OutOfMemory:
                ran_out = True
        yield ran_out


def statistics(allocator: CachingAllocator | ReferenceAllocator) -> tuple[int, ...]:
    return (
        allocator.allocated_bytes,
        allocator.reserved_bytes,
        allocator.peak_allocated_bytes,
        allocator.peak_reserved_bytes,
        allocator.num_alloc_retries,
    )


@thorough
@given(allocator_settings, capacities, actions)
def test_model_and_reference_agree_on_every_statistic_and_every_block(
    chosen: AllocatorSettings, capacity_bytes: int | None, todo: list[int | float | None]
) -> None:
    model, reference = (
        CachingAllocator(chosen, capacity_bytes),
        ReferenceAllocator(chosen, capacity_bytes),
    )
    for model_ran_out, reference_ran_out in zip(
        carry_out(model, todo), carry_out(reference, todo), strict=True
    ):
        assert model_ran_out == reference_ran_out
        assert statistics(model) == statistics(reference)
        model_ranges = [
            (
                segment.address,
                segment.is_large,
                [(b.size_bytes, b.block_id) for b in segment.blocks],
            )
            for segment in model.snapshot()
        ]
        assert model_ranges == reference.ranges()


@thorough
@given(allocator_settings, capacities, actions)
def test_blocks_tile_their_segments_and_reserved_stays_within_capacity(
    chosen: AllocatorSettings, capacity_bytes: int | None, todo: list[int | float | None]
) -> None:
    allocator = CachingAllocator(chosen, capacity_bytes)
    for _ in carry_out(allocator, todo):
        segments = allocator.snapshot()
        end_of_last = -1
        for segment in segments:
            assert segment.address >= end_of_last, "segments overlap"
            address = segment.address
            for block in segment.blocks:
                assert block.address == address
                assert block.requested_bytes <= block.size_bytes
                address += block.size_bytes
            assert address == segment.address + segment.size_bytes
            end_of_last = address
            assert not any(
                a.block_id is None and b.block_id is None
                for a, b in zip(segment.blocks, segment.blocks[1:], strict=False)
            )
        assert sum(segment.size_bytes for segment in segments) == allocator.reserved_bytes
        in_use = [
            block for segment in segments for block in segment.blocks if block.block_id is not None
        ]
        assert sum(block.size_bytes for block in in_use) == allocator.allocated_bytes
        assert capacity_bytes is None or allocator.reserved_bytes <= capacity_bytes


@thorough
@given(allocator_settings, capacities, actions)
def test_nothing_is_left_reserved_once_all_is_freed_and_the_cache_emptied(
    chosen: AllocatorSettings, capacity_bytes: int | None, todo: list[int | float | None]
) -> None:
    allocator = CachingAllocator(chosen, capacity_bytes)
    for _ in carry_out(allocator, todo):
        pass
    for block in [block for segment in allocator.snapshot() for block in segment.blocks]:
        if block.block_id is not None:
            allocator.free(block.block_id)
    allocator.empty_cache()
    assert (allocator.allocated_bytes, allocator.reserved_bytes, len(allocator.snapshot())) == (
        0,
        0,
        0,
    )
