from __future__ import annotations

import pytest

from vramcast.allocator.settings import AllocatorSettings
from vramcast.errors import UsageError

MIB = 2**20


def test_an_empty_text_means_the_defaults() -> None:
    assert AllocatorSettings.parse("") == AllocatorSettings()


def test_every_supported_key_is_read() -> None:
    text = (
        "backend:native, expandable_segments:True,max_split_size_mb:128,roundup_power2_divisions:4,"
        "garbage_collection_threshold:0.8,large_segment_size_mb:32,max_non_split_rounding_mb:40"
    )
    assert AllocatorSettings.parse(text) == AllocatorSettings(
        expandable_segments=True,
        max_split_size_bytes=128 * MIB,
        roundup_power2_divisions=(4,) * 16,
        garbage_collection_threshold=0.8,
        large_segment_bytes=32 * MIB,
        max_non_split_rounding_bytes=40 * MIB,
    )


def test_non_split_rounding_follows_the_segment_size_unless_given() -> None:
    assert (
        AllocatorSettings.parse("large_segment_size_mb:64").max_non_split_rounding_bytes == 64 * MIB
    )


# The expected numbers were read out of torch 2.13 after it had parsed the same text.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[256:1,512:2,1024:4,>:8]", (1,) * 9 + (2, 4) + (8,) * 5),
        ("[64:8,>:2]", (8,) * 7 + (2,) * 9),
        ("[4:2,16:4]", (2, 2, 2, 0, 4) + (0,) * 11),
        ("[>:8]", (0,) + (8,) * 15),
        ("[1:4,>:0]", (4,) + (0,) * 15),
        ("[65536:4]", (4,) * 16),
        ("8", (8,) * 16),
    ],
)
def test_roundup_divisions_fill_the_intervals_as_torch_does(
    text: str, expected: tuple[int, ...]
) -> None:
    assert (
        AllocatorSettings.parse(f"roundup_power2_divisions:{text}").roundup_power2_divisions
        == expected
    )


def test_divisions_are_looked_up_by_power_of_two_from_1_mib() -> None:
    settings = AllocatorSettings(roundup_power2_divisions=tuple(range(16)))
    assert [
        settings.divisions_for(size)
        for size in (1, MIB, 2 * MIB - 1, 2 * MIB, 5 * MIB, 2**35, 2**50)
    ] == [0, 0, 0, 1, 2, 15, 15]


@pytest.mark.parametrize(
    "text",
    [
        "pinned_use_background_threads:True",
        "backend:cudaMallocAsync",
        "expandable_segments:true",
        "expandable_segments",
        "max_split_size_mb:19",
        "max_split_size_mb:-1",
        "max_split_size_mb:30.5",
        "max_split_size_mb:many",
        "large_segment_size_mb:10",
        "large_segment_size_mb:64,max_split_size_mb:32",
        "max_split_size_mb:32,large_segment_size_mb:64",
        "max_non_split_rounding_mb:19",
        "garbage_collection_threshold:0",
        "garbage_collection_threshold:1",
        "garbage_collection_threshold:nan",
        "garbage_collection_threshold:most",
        "roundup_power2_divisions:3",
        "roundup_power2_divisions:0",
        "roundup_power2_divisions:[256:3]",
        "roundup_power2_divisions:[3:4]",
        "roundup_power2_divisions:[256]",
        "roundup_power2_divisions:[256:1",
    ],
)
def test_what_torch_or_the_model_does_not_take_is_refused_by_name(text: str) -> None:
    with pytest.raises(UsageError) as refusal:
        AllocatorSettings.parse(text)
    keys = [setting.split(":")[0] for setting in text.split(",")]
    assert any(key in refusal.value.message for key in keys)
    assert "expandable_segments:True|False" in refusal.value.advice


def test_the_refused_key_and_value_are_both_in_the_message() -> None:
    with pytest.raises(UsageError, match="release_lock_on_cudamalloc:True"):
        AllocatorSettings.parse("release_lock_on_cudamalloc:True")
