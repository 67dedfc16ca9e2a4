"""A workload that is simulated again for the bounds of what timing decides."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from vramcast.simulate import again
from vramcast.simulate.host_reads import FEW_OVERLAPS
from vramcast.simulate.kept_by_nccl import AT_ONCE, AT_THE_LATEST, USUALLY

GIB = 2**30


def job(peaks: dict[float, int], capacity: int) -> Any:
    """That takes so much, by how late NCCL's process group notices the end of a collective."""
    kept = SimpleNamespace(noticed_after_seconds=USUALLY)

    def run(*_: Any, **__: Any) -> Any:
        peak = peaks[kept.noticed_after_seconds]
        fits = peak <= capacity
        bounds = dict.fromkeys(again.BOUNDS, peak)
        return SimpleNamespace(fits=fits, failed_allocation_bytes=None if fits else 7, **bounds)

    session = SimpleNamespace(gpu=SimpleNamespace(kept_by_nccl=kept))
    return SimpleNamespace(session=session, run=run, request={})


@pytest.mark.parametrize(("capacity", "fits"), [(9 * GIB, True), (7 * GIB, False)])
def test_it_fits_where_it_does_however_late_tensors_are_let_go(capacity: int, fits: bool) -> None:
    shown = {
        "peak_reserved_bytes": 6 * GIB,
        **dict.fromkeys(again.BOUNDS, 6 * GIB),
        "fits": True,
        "failed_allocation_bytes": None,
        "limits": [],
    }
    asked = job({AT_ONCE: 5 * GIB, AT_THE_LATEST: 8 * GIB}, capacity)
    found = again.with_bounds(asked, shown)
    assert [found[name] for name in again.BOUNDS] == [5 * GIB, 8 * GIB]
    assert found["peak_reserved_bytes"] == 6 * GIB
    assert (found["fits"], found["failed_allocation_bytes"]) == (fits, None if fits else 7)
    assert "5.00 GiB to 8.00 GiB, and is 6.00 GiB by predicted times" in found["limits"][0]
    assert asked.session.gpu.kept_by_nccl.noticed_after_seconds == USUALLY


def test_the_fastest_kernels_may_take_the_least_or_the_most_of_those_that_were_tried() -> None:
    gpu = SimpleNamespace(fastest=None)

    def run(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(peak_reserved_bytes=gpu.fastest([5 * GIB, 9 * GIB]))

    asked: Any = SimpleNamespace(session=SimpleNamespace(gpu=gpu), run=run, request={})
    shown = {"peak_reserved_bytes": 6 * GIB, **dict.fromkeys(again.BOUNDS, 6 * GIB), "limits": []}
    found = again.with_other_kernels(asked, shown)
    assert [found[name] for name in again.BOUNDS] == [5 * GIB, 9 * GIB]
    assert found["peak_reserved_bytes"] == 6 * GIB
    assert "is 6.00 GiB with those that cuDNN names first" in found["limits"][0]
    assert gpu.fastest is None


def test_kernels_of_different_convolutions_may_leave_gaps_that_no_other_can_use() -> None:
    gpu = SimpleNamespace(fastest=None)

    def run(*_: Any, **__: Any) -> Any:
        first, second = (gpu.fastest([size, 2 * size]) for size in (GIB, 3 * GIB))
        assert gpu.fastest([GIB, 2 * GIB]) == first  # the same convolution in the next step
        is_mixed = (first == GIB) != (second == 3 * GIB)
        return SimpleNamespace(peak_reserved_bytes=(8 if is_mixed else 6) * GIB)

    asked: Any = SimpleNamespace(session=SimpleNamespace(gpu=gpu), run=run, request={})
    shown = {"peak_reserved_bytes": 6 * GIB, **dict.fromkeys(again.BOUNDS, 6 * GIB), "limits": []}
    found = again.with_other_kernels(asked, shown)
    assert [found[name] for name in again.BOUNDS] == [6 * GIB, 8 * GIB]


def test_a_detector_that_has_learned_takes_more() -> None:
    reads = SimpleNamespace(overlaps=FEW_OVERLAPS)

    def run(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(peak_reserved_bytes=int(40 * reads.overlaps) * GIB)

    gpu = SimpleNamespace(reads=reads)
    asked: Any = SimpleNamespace(session=SimpleNamespace(gpu=gpu), run=run, request={})
    shown = {"peak_reserved_bytes": 6 * GIB, **dict.fromkeys(again.BOUNDS, 6 * GIB), "limits": []}
    found = again.with_more_boxes(asked, shown)
    assert [found[name] for name in again.BOUNDS] == [6 * GIB, 10 * GIB]
    assert "and is 6.00 GiB with new weights" in found["limits"][0]
    assert reads.overlaps == FEW_OVERLAPS
