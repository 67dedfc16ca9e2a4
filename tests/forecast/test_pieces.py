"""Times of joined tensors, pools and pictures sampled at points."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_works import BF16, FP32, seconds
from test_counted_work import step_of

from vramcast.tracing.work import FORWARD, PLAIN, STRIDED, OperatorWork

ELEMENTS = 1 << 26
RUN = 1 << 13


def joined(kind: int, dtype: int = BF16, run: int = RUN) -> OperatorWork:
    """Two tensors: this many elements that lie beside each other come from one of them."""
    moved = 2.0 * ELEMENTS * (2 if dtype == BF16 else 4)
    access = PLAIN if kind == 1 else STRIDED
    return OperatorWork("aten::cat", dtype, 0.0, moved, (2, ELEMENTS, run, kind), FORWARD, access)


def sampled(points: int, channels: int, operator: str = "grid_sampler_2d") -> OperatorWork:
    moved = 4.0 * (points * (channels + 2) + (1 << 20) * channels)
    sizes = (0, points, channels, (1 << 20) * channels)
    return OperatorWork(f"aten::{operator}", FP32, 0.0, moved, sizes, FORWARD, STRIDED)


def test_tensors_with_gaps_are_joined_element_by_element() -> None:
    in_vectors, densely, with_gaps = (seconds(joined(kind)) for kind in (1, 2, 3))
    assert in_vectors < densely < with_gaps
    # recorded: half as many bytes take the same time where it goes by elements
    assert seconds(joined(3, FP32)) < 1.5 * with_gaps
    assert seconds(joined(1, FP32)) > 1.5 * in_vectors


def test_short_runs_that_are_joined_take_longer() -> None:
    """They write parts of sectors of 32 bytes; vectors have at least eight such elements."""
    for kind, shortest in ((1, 8), (2, 3)):
        assert seconds(joined(kind, run=shortest)) > 1.2 * seconds(joined(kind))


def test_gradients_of_samples_are_added_one_by_one() -> None:
    forward, backward = (
        seconds(sampled(1 << 20, 32, f"grid_sampler_2d{end}")) for end in ("", "_backward")
    )
    assert backward > 2 * forward


def test_few_points_still_take_a_pass_over_all_channels() -> None:
    assert seconds(sampled(64, 512)) > 4 * seconds(sampled(64, 64))


@pytest.mark.usefixtures("warm_simulations")
def test_the_simulation_tells_how_tensors_lie_that_are_joined(tmp_path: Path) -> None:
    rows = "x = large.view(1 << 13, 1 << 13)\n"
    whole = step_of(rows + "torch.cat((x, x), 1)", tmp_path)
    gaps = step_of(rows + "torch.cat((x[:, 1:], x[:, :1]), 1)", tmp_path)
    assert gaps.device_seconds > 0.6 * whole.device_seconds  # half of the elements


@pytest.mark.usefixtures("warm_simulations")
def test_windows_that_overlap_take_longer(tmp_path: Path) -> None:
    pictures = "x = large.view(64, 16, 256, 256)\n"
    apart, over = (
        step_of(f"{pictures}torch.max_pool2d(x, {kernel}, 2)", tmp_path).device_seconds
        for kernel in (2, 5)
    )
    assert over > 1.3 * apart
