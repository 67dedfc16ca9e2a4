"""The largest size that fits, by rule and against a plain scan."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramcast.forecast.laws import batch_law
from vramcast.forecast.search import accumulation, crossing, ladder, settle, spread


@given(
    intercept=st.integers(0, 1000),
    slope=st.integers(1, 50),
    limit=st.integers(1000, 10**6),
    sizes=st.sets(st.integers(1, 999), min_size=2),
)
def test_on_a_straight_line_the_crossing_is_exact(
    intercept: int, slope: int, limit: int, sizes: set[int]
) -> None:
    found = crossing({size: intercept + slope * size for size in sizes}, limit)
    assert found == pytest.approx((limit - intercept) / slope)


def test_the_crossing_uses_the_sizes_next_to_the_limit() -> None:
    """Below, the peak lies in the optimizer step and does not move."""
    assert crossing({1: 100, 10: 100, 20: 200, 30: 300, 256: 9999}, 250) == 25
    assert crossing({1: 100, 256: 100}, 300) is None
    assert crossing({1: 100}, 300) is None


def test_two_sizes_in_the_same_segments_do_not_hide_that_memory_grows() -> None:
    """The search of a tiny program went from a batch of 7,646 to a million."""
    assert crossing({1: 100, 10: 1000, 11: 1000}, 1100) == pytest.approx(12.1, abs=0.2)


def test_few_sizes_are_spread_over_a_ladder_by_factors() -> None:
    assert ladder(23, 1) == [1, 2, 4, 8, 16]
    assert ladder(24, 8) == [8, 16]
    assert ladder(1, 1) == []
    assert spread([1, 2, 4, 8, 16], [1, 16, 23], 1) == [4]
    assert sorted(spread([1, 2, 4, 8, 16], [1, 16, 23], 9)) == [2, 4, 8]
    assert spread([1, 2, 4], [1], 0) == []


@given(
    edge=st.integers(0, 300),
    guess=st.integers(1, 300),
    step=st.integers(1, 7),
    limit=st.integers(301, 400),
)
def test_a_wrong_guess_of_the_edge_is_put_right_with_few_questions(
    edge: int, guess: int, step: int, limit: int
) -> None:
    asked: list[int] = []

    def fits(size: int) -> bool:
        asked.append(size)
        return size <= edge * step

    found = settle(fits, guess * step, (guess + 1) * step, step=step, limit=limit * step)
    assert found == (edge * step or None, (edge + 1) * step)
    assert len(asked) == len(set(asked)) <= 20


def test_a_guess_at_the_limit_that_holds_is_one_question() -> None:
    asked: list[int] = []
    assert settle(lambda size: asked.append(size) is None, 32, None, step=8, limit=32) == (32, None)
    assert asked == [32]


def test_parts_of_a_global_batch_keep_to_the_multiples_asked_for() -> None:
    assert accumulation(96, 90, 8) == (48, 2)
    assert accumulation(100, 1000, 8) is None


PARTS = [(256, 23, (16, 16)), (256, 300, (256, 1)), (7, 4, (1, 7)), (96, 48, (48, 2))]


@pytest.mark.parametrize(("global_batch", "largest", "expected"), PARTS)
def test_a_global_batch_is_made_of_the_largest_equal_parts_that_fit(
    global_batch: int, largest: int, expected: tuple[int, int]
) -> None:
    assert accumulation(global_batch, largest) == expected


def test_document_000_mistakes_its_first_row_for_the_overhead() -> None:
    """14.62 GB at batch 32 is mostly activations: the law through all its rows has an intercept of
    2.6 GB."""
    rows = {
        32: 14.62,
        40: 17.55,
        48: 20.42,
        56: 23.35,
        64: 26.30,
        72: 29.32,
        80: 32.29,
        88: 35.32,
        96: 38.28,
        104: 41.30,
        112: 44.28,
    }
    rows[114] = 45.04
    law = batch_law({size: round(gigabytes * 1e9) for size, gigabytes in rows.items()})
    assert law is not None
    assert law.intercept_bytes == pytest.approx(2.61e9, abs=0.02e9)
    assert law.bytes_per_sample == pytest.approx(0.3717e9, abs=0.0005e9)
    assert law.largest_residual < 0.01
    assert batch_law({8: 100}) is None
