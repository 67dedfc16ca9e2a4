"""The fastest batch and the knee, from times that were measured and times that were predicted."""

from __future__ import annotations

import pytest

from vramcast.predicting.throughput import fastest, knee, speeds_of
from vramcast.records.prediction import Attempt


def attempt(
    size: int,
    seconds: float | None,
    source: str = "predicted",
    outcome: str = "ok",
    retries: int = 0,
) -> Attempt:
    bound_by = "compute" if source == "predicted" else ""
    sizes = {
        "peak_allocated_bytes": size,
        "peak_reserved_bytes": size,
        "num_alloc_retries": retries,
    }
    return Attempt(
        batch_size=size,
        source=source,
        outcome=outcome,
        step_seconds=seconds,
        bound_by=bound_by,
        **sizes,
    )


LADDER = [
    attempt(1, 0.020),
    attempt(2, 0.021),
    attempt(4, 0.024),
    attempt(8, 0.044),
    attempt(16, 0.085),
]


def test_the_knee_is_the_smallest_size_that_comes_near_the_most_samples_a_second() -> None:
    speeds = speeds_of(LADDER, 16)[0]
    best, bend = fastest(speeds), knee(speeds)
    assert best is not None and best.batch_size == 16 and "188.2 samples/s" in best.reason
    assert (
        bend is not None
        and bend.batch_size == 7
        and "interpolated: the smallest batch with 95 % of the most" in bend.reason
    )


@pytest.mark.parametrize("step", [1, 8, 30, 64, 100])
def test_the_knee_may_lie_between_two_sizes_that_were_timed(step: int) -> None:
    def seconds(size: int) -> float:
        return 0.010 + 0.002 * size

    enough = 0.95 * 100 / seconds(100)
    bend = knee(speeds_of([attempt(size, seconds(size)) for size in (16, 100)], 100)[0], step)
    assert bend is not None
    assert bend.batch_size == next(
        size for size in (*range(step, 100, step), 100) if size / seconds(size) >= enough
    )


def test_the_fastest_need_not_be_the_largest() -> None:
    best = fastest(speeds_of([*LADDER, attempt(20, 0.12)], 20)[0])
    assert best is not None and best.batch_size == 16


def test_a_size_that_empties_the_cache_is_the_fastest_only_where_that_was_measured() -> None:
    predicted = speeds_of([*LADDER, attempt(32, 0.1, retries=1)], 32)[0]
    measured = speeds_of([*LADDER, attempt(32, 0.1, "measured", retries=1)], 32)[0]
    assert [s.batch_size for s in predicted if s.empties_cache] == [32]
    assert (fastest(predicted) or LADDER[0]).batch_size == 16
    assert (fastest(measured) or LADDER[0]).batch_size == 32


def test_a_measured_time_replaces_the_predicted_one_and_scales_the_others() -> None:
    """Otherwise the one size that was run would look slow beside predictions that are too fast."""
    attempts = [*LADDER, attempt(16, 0.170, "measured")]
    found, notes = speeds_of(attempts, 16)
    speeds = {speed.batch_size: speed for speed in found}
    assert (speeds[16].source, speeds[16].step_seconds, speeds[16].bound_by) == (
        "measured",
        0.170,
        "compute",
    )
    assert speeds[8].source == "scaled" and speeds[8].step_seconds == pytest.approx(0.088)
    assert (fastest(found) or LADDER[0]).batch_size == 16
    assert "multiplied by 2.00" in notes[0]


def test_sizes_that_do_not_fit_or_have_no_time_are_left_out() -> None:
    attempts = [
        attempt(4, None),
        attempt(8, 0.1),
        attempt(16, 0.15, outcome="out_of_memory"),
        attempt(20, 0.1),
    ]
    speeds, notes = speeds_of(attempts, 8)
    assert [speed.batch_size for speed in speeds] == [8]
    assert knee(speeds) is None, "one size has no knee"
    assert speeds_of(attempts, None) == ([], []) and fastest([]) is None and notes == []
