from __future__ import annotations

import time

import pytest

from vramcast.allocator.addresses import AddressSpace, Starts
from vramcast.allocator.replay import EMPTY_CACHE, live_at, replay
from vramcast.allocator.settings import AllocatorSettings

MIB = 2**20

EVENTS = [1, 2, 0, -1, 3, -3, 0, EMPTY_CACHE, -2]
SIZES = [30 * MIB, 40 * MIB, 60 * MIB]


def test_a_replay_reports_both_peaks_and_where_that_of_the_allocated_bytes_was_first_reached() -> (
    None
):
    result = replay(EVENTS, SIZES)
    assert (result.peak_allocated_bytes, result.allocated_peak_event) == (100 * MIB, 4)
    assert result.peak_reserved_bytes == 130 * MIB
    assert (result.fits, result.out_of_memory, result.num_alloc_retries) == (True, None, 0)


def test_what_was_taken_before_the_first_kernel_lies_above() -> None:
    """Of two equal blocks the one with the lower address is taken: in mnist of pytorch/examples
    600 MiB were reserved on an H200 and not 636."""
    events = [1, 2, 3, -2, 4, -3, 5]
    sizes = [mib * MIB for mib in (6, 14, 6, 8, 18)]
    assert replay(events, sizes).peak_reserved_bytes == 40 * MIB
    before = [6, 7, *events[1:]]  # a copy, and the first kernel's result
    small = [1, *sizes[1:], 6 * MIB, 512]
    assert replay(before, small, starts=Starts(kernel=1)).peak_reserved_bytes == 60 * MIB


def test_between_segments_is_what_cublas_takes_for_itself_when_it_starts() -> None:
    """64 MiB on an H200, or what CUBLAS_WORKSPACE_CONFIG says: seen in calls of its driver."""
    for own_bytes in (Starts().cublas_bytes, 32 * MIB):
        space = AddressSpace()
        before = space.take(20 * MIB)
        space.start_cublas(own_bytes)
        assert space.take(32 * MIB) - before == 20 * MIB + own_bytes


def test_nccl_fills_the_gaps_between_segments_when_it_starts() -> None:
    """Of two equal blocks the one with the lower address is taken: a GPT of 355M parameters under
    DistributedDataParallel reserved 21.33 GiB on an H200 and not 20.57."""
    events = [1, 2, 3, -2, 4, -3, 5]
    sizes = [mib * MIB for mib in (6, 14, 6, 8, 18)]
    assert replay(events, sizes).peak_reserved_bytes == 40 * MIB
    assert replay(events, sizes, starts=Starts(collective=2)).peak_reserved_bytes == 58 * MIB


def test_peaks_so_far_are_noted_at_every_mark_and_at_the_end() -> None:
    result = replay(EVENTS, SIZES)
    assert result.peaks_after_step == [
        (70 * MIB, 70 * MIB),
        (100 * MIB, 130 * MIB),
        (100 * MIB, 130 * MIB),
    ]


def test_a_capacity_can_cost_a_retry_and_still_fit() -> None:
    result = replay(EVENTS, SIZES, capacity_bytes=110 * MIB)
    assert (result.fits, result.num_alloc_retries, result.peak_reserved_bytes) == (
        True,
        1,
        100 * MIB,
    )


def test_a_replay_that_does_not_fit_says_at_which_event() -> None:
    result = replay(EVENTS, SIZES, capacity_bytes=90 * MIB)
    assert not result.fits
    assert result.out_of_memory is not None
    assert (len(result.allocated_bytes), result.out_of_memory.requested_bytes) == (4, 60 * MIB)
    assert result.peaks_after_step[-1][1] == result.peak_reserved_bytes == 70 * MIB


def test_settings_reach_the_allocator() -> None:
    assert (
        replay([1], [33 * MIB], AllocatorSettings(expandable_segments=True)).peak_reserved_bytes
        == 40 * MIB
    )


def test_an_empty_replay_has_no_peak_events() -> None:
    result = replay([], [])
    assert (result.peak_reserved_bytes, result.allocated_peak_event) == (0, -1)


@pytest.mark.parametrize(
    ("event_index", "live"), [(0, [1]), (2, [1, 2]), (3, [2]), (4, [2, 3]), (8, [])]
)
def test_live_at_lists_what_is_allocated_just_after_an_event(
    event_index: int, live: list[int]
) -> None:
    assert live_at(EVENTS, event_index) == live


def test_what_is_allocated_and_reserved_is_known_after_every_event() -> None:
    result = replay(EVENTS, SIZES)
    assert len(result.allocated_bytes) == len(result.reserved_bytes) == len(EVENTS)
    assert (result.allocated_bytes[4], result.reserved_bytes[4]) == (100 * MIB, 130 * MIB)
    assert (result.allocated_bytes[7], result.reserved_bytes[7]) == (40 * MIB, 40 * MIB)


@pytest.mark.parametrize(
    ("settings", "block_bytes"),
    [("", [512, 34 * MIB]), ("roundup_power2_divisions:4", [512, 40 * MIB])],
)
def test_the_size_of_every_block_is_what_the_allocator_gave(
    settings: str, block_bytes: list[int]
) -> None:
    """33 MiB take a whole segment of 34 MiB: what is left over is too small to be split off."""
    result = replay([1, 2], [1, 33 * MIB], AllocatorSettings.parse(settings))
    assert list(result.block_bytes) == block_bytes
    assert sum(result.block_bytes) == result.peak_allocated_bytes


def test_a_hundred_thousand_events_take_about_half_a_second_at_most() -> None:
    sizes = [((index * 7919) % 4000 + 1) * 4096 for index in range(50_000)]
    events = [
        event
        for index in range(1, 50_001)
        for event in ((index, 200 - index) if index > 200 else (index,))
    ]
    began = time.process_time()
    replay(events, sizes)
    # Generous, for busy machines: a linear scan would take minutes.
    assert time.process_time() - began < 3.0
