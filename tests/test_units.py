from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramcast.errors import UsageError
from vramcast.units import (
    GiB,
    KiB,
    MiB,
    format_bytes,
    format_count,
    format_seconds,
    memory_in_bytes,
    parse_duration,
    parse_size,
)

sizes = st.integers(min_value=1, max_value=2**50)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("24GiB", 24 * GiB),
        ("24 GiB", 24 * GiB),
        ("  24gib ", 24 * GiB),
        ("24GB", 24 * 10**9),
        ("512MiB", 512 * MiB),
        ("64 KiB", 64 * KiB),
        ("80G", 80 * GiB),
        ("80g", 80 * GiB),
        ("1.5GiB", 3 * GiB // 2),
        ("1TiB", 1024 * GiB),
        ("150109880320", 150_109_880_320),
        ("7 B", 7),
        ("0.1GB", 10**8),
    ],
)
def test_a_size_is_read_as_a_person_means_it(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "0",
        "0GiB",
        "0.0000000001KiB",
        "-1GiB",
        "-5",
        "nan",
        "inf",
        "GiB",
        "24XiB",
        "24 Gibibytes",
        "1.5",
        "1e9",
        "1,5GiB",
        "1..5G",
    ],
)
def test_a_size_that_makes_no_sense_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError) as refusal:
        parse_size(text)
    assert refusal.value.exit_code == 2
    assert repr(text) in refusal.value.message
    assert "--memory 24GiB" in refusal.value.advice


def test_an_unknown_unit_is_named_in_the_refusal() -> None:
    with pytest.raises(UsageError, match="unknown unit 'XiB'"):
        parse_size("24XiB")


def test_an_absurdly_long_number_is_refused_rather_than_a_crash() -> None:
    with pytest.raises(UsageError):
        parse_size("9" * 5000)


def test_digits_of_other_scripts_are_refused() -> None:
    with pytest.raises(UsageError):
        parse_size("٢٤GiB")


@given(sizes)
def test_plain_bytes_round_trip_exactly(size: int) -> None:
    assert parse_size(str(size)) == size


@given(sizes)
def test_a_printed_size_reads_back_to_within_its_last_digit(size: int) -> None:
    assert parse_size(format_bytes(size)) == pytest.approx(size, rel=0.05)
    if size >= GiB:
        assert parse_size(format_bytes(size)) == pytest.approx(size, rel=0.005)


@given(sizes, sizes)
def test_a_larger_size_never_prints_as_a_smaller_one(a: int, b: int) -> None:
    small, large = sorted((a, b))
    assert parse_size(format_bytes(small)) <= parse_size(format_bytes(large))


@given(st.text())
def test_any_text_is_either_a_positive_size_or_a_usage_error(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert parse_size(text) > 0


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (KiB, "1.0 KiB"),
        (512 * KiB, "512.0 KiB"),
        (MiB - 1, "1.0 MiB"),
        (GiB - 1, "1.00 GiB"),
        (12_229_919_375, "11.39 GiB"),
        (-3 * GiB // 2, "-1.50 GiB"),
        (3 * 2**40, "3.00 TiB"),
    ],
)
def test_bytes_are_written_in_binary_units_with_their_sign(n: int, text: str) -> None:
    assert format_bytes(n) == text


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1500, "1.5 K"),
        (124_439_808, "124.4 M"),
        (1_360_000_000, "1.36 B"),
        (999_999_999_999, "1.00 T"),
        (-2000, "-2.0 K"),
    ],
)
def test_counts_are_written_in_thousands_millions_and_billions(n: int, text: str) -> None:
    assert format_count(n) == text


@given(st.integers(min_value=0, max_value=10**15))
def test_counts_and_bytes_keep_their_sign(n: int) -> None:
    assert format_count(-n) == ("-" if n else "") + format_count(n)
    assert format_bytes(-n) == ("-" if n else "") + format_bytes(n)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.00025, "250 µs"),
        (0.32, "320 ms"),
        (0.9999, "1.0 s"),
        (2.1, "2.1 s"),
        (59.97, "1 min 0 s"),
        (250, "4 min 10 s"),
        (3599.9, "1 h 0 min"),
        (11_520, "3 h 12 min"),
        (183_600, "2 d 3 h"),
        (-2.1, "-2.1 s"),
        (float("nan"), "unknown"),
        (float("inf"), "unknown"),
    ],
)
def test_seconds_are_written_in_the_unit_a_person_would_use(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@given(st.floats(min_value=1e-6, max_value=1e8), st.floats(min_value=1e-6, max_value=1e8))
def test_a_longer_time_never_prints_as_a_shorter_one(a: float, b: float) -> None:
    short, long = sorted((a, b))
    assert _read_back(format_seconds(short)) <= _read_back(format_seconds(long)) * (1 + 1e-9)


def _read_back(text: str) -> float:
    scale = {"µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
    words = text.split()
    return sum(
        float(number) * scale[unit] for number, unit in zip(words[::2], words[1::2], strict=True)
    )


@pytest.mark.parametrize("memory", [24, "24"])
def test_memory_without_a_unit_that_no_gpu_has_is_refused(memory: str | int) -> None:
    with pytest.raises(UsageError, match="--memory 24 is 24 B: no GPU has that") as caught:
        memory_in_bytes(memory)
    assert "--memory 24GiB" in caught.value.advice
    with pytest.raises(UsageError, match="no GPU has that"):
        memory_in_bytes("9" * 20 + "TiB")
    assert memory_in_bytes(24 * GiB) == memory_in_bytes("24GiB") == 24 * GiB
    assert memory_in_bytes(None) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("20min", 1200), ("90s", 90), ("1.5h", 5400), ("170", 170), ("2 d", 172_800), ("3m", 180)],
)
def test_times_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "0", "-5min", "5 parsecs", "nan", "1e3"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a time"):
        parse_duration(text)
