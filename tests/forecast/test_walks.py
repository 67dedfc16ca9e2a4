"""Pointwise operators that follow strides, reductions of neighbours, and kernels that are like
recorded ones: against what an H200 took (families_kernels.jsonl.gz in benchmarks/step_time)."""

from __future__ import annotations

from pathlib import Path

import pytest

import vramcast
from vramcast.forecast.timing.kernels import kernel_time, modelled_time
from vramcast.forecast.timing.likeness import factor
from vramcast.forecast.timing.rates import shipped
from vramcast.forecast.timing.reductions import rounds_and_reads
from vramcast.hardware.gpus import find_gpu
from vramcast.tracing.work import PLAIN, STRIDED, OperatorWork

pytestmark = pytest.mark.usefixtures("warm_simulations")
H200 = find_gpu("h200")
BF16, FP32 = 15, 6


def walk(
    elements: int, each_bytes: float, kind: int, reach: int = 0, operator: str = "aten::copy_"
) -> OperatorWork:
    sizes = (-1, elements, kind, reach)
    return OperatorWork(operator, FP32, 0.0, elements * each_bytes, sizes, 0, STRIDED)


@pytest.mark.parametrize(
    ("work", "microseconds"),
    [
        (walk(51_380_224, 8.0, 3 + 16, 64), 266),
        (walk(51_380_224, 8.0, 3 + 16, 12_544), 354),
        (walk(33_554_432, 8.0, 4 + 16, 1 << 20), 635),
        (walk(46_080_000, 8.0, 2, operator="aten::mul"), 144),
    ],
)
def test_what_follows_strides_takes_what_it_took(work: OperatorWork, microseconds: float) -> None:
    seconds = modelled_time(work, H200, shipped()).seconds
    assert seconds == pytest.approx(1e-6 * microseconds, rel=0.2)


def test_every_dimension_that_cannot_be_joined_costs_and_casting_does() -> None:
    kinds = (2, 4, 6, 6 + 256)
    works = [walk(10_000_000, 4.0, kind, operator="aten::mul") for kind in kinds]
    seconds = [kernel_time(work, H200, shipped()).seconds for work in works]
    assert seconds == sorted(set(seconds))


STEP = """
import torch
def build(*, code):
    x = torch.zeros(64, 32, 128, 64, device="cuda")
    row, y = torch.zeros(64, device="cuda"), torch.zeros(64, 1, 128, 1, device="cuda")
    names = {"x": x, "row": row, "y": y, "torch": torch}
    return lambda: exec(code, names)
"""


def seconds_of(code: str, folder: Path) -> float:
    (folder / "w.py").write_text(STEP)
    step = vramcast.predict(f"{folder / 'w.py'}:build", gpu="h200", code=code).step
    assert step is not None
    return step.device_seconds


def test_the_simulated_gpu_sees_how_torch_goes_through_a_tensor(tmp_path: Path) -> None:
    """In vectors; two dimensions; three; and neighbours that lie apart."""
    codes = ("x.neg()", "x * row", "x * y", "x.permute(3, 2, 1, 0).contiguous()")
    seconds = [seconds_of(code, tmp_path) for code in codes]
    assert seconds == sorted(seconds)
    assert seconds[1] > 1.2 * seconds[0] and seconds[3] > 1.5 * seconds[2]


def test_a_view_that_lies_densely_is_gone_through_in_vectors(tmp_path: Path) -> None:
    plain, viewed = (seconds_of(c, tmp_path) for c in ("x.neg()", "x.view(1, 64, -1, 64).neg()"))
    assert viewed == pytest.approx(plain)


def test_short_rows_are_summed_by_as_many_blocks_as_torch_takes() -> None:
    rounds, reads, shares = rounds_and_reads(20, 20, 1 << 24, 132)
    assert (reads, shares) == (1, 1)
    assert rounds == pytest.approx((1 << 24) / 32 / (132 * 4), rel=0.01)
    # in a step of benchmarks/step_time/workloads/fields.py, which no rate was made from
    work = OperatorWork("aten::sum", FP32, 0.0, 21 * 4.0 * (1 << 23), (0, 20, 20, 1 << 23), 0, 3)
    assert modelled_time(work, H200, shipped()).seconds == pytest.approx(1.18e-3, rel=0.25)


def test_recorded_kernels_say_nothing_of_those_that_are_not_like_them() -> None:
    norm = OperatorWork("aten::native_layer_norm", BF16, 0.0, 2e8, (0, 0, 0, 50_000), 0, PLAIN)
    assert factor(norm) != 1.0
    assert factor(norm._replace(operator="aten::strange")) == 1.0
    assert factor(norm._replace(num_bytes=1e30)) == pytest.approx(1.0, abs=0.02)
