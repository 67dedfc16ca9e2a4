"""Of products in groups it is told how many groups there are and what each has on average."""

from __future__ import annotations

import pytest
import torch

from vramcast.forecast.timing.kernels import kernel_time
from vramcast.forecast.timing.rates import shipped
from vramcast.hardware.gpus import find_gpu
from vramcast.simulate.kernels.work import work_of
from vramcast.tracing.work import FORWARD, PLAIN, OperatorWork

WORDS, INSIDE, OUTSIDE, GROUPS = 4100, 256, 512, 8
FLOPS = 2.0 * WORDS * INSIDE * OUTSIDE


def meta(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.bfloat16, device="meta")


@pytest.mark.parametrize(
    ("left", "right", "result", "sizes"),
    [
        ((WORDS, INSIDE), (GROUPS, INSIDE, OUTSIDE), (WORDS, OUTSIDE), (513, OUTSIDE, INSIDE)),
        ((GROUPS, OUTSIDE, INSIDE), (INSIDE, WORDS), (OUTSIDE, WORDS), (OUTSIDE, 513, INSIDE)),
        ((INSIDE, WORDS), (WORDS, OUTSIDE), (GROUPS, INSIDE, OUTSIDE), (INSIDE, OUTSIDE, 513)),
    ],
)
def test_whatever_groups_share_each_has_its_part(
    left: tuple[int, ...], right: tuple[int, ...], result: tuple[int, ...], sizes: tuple[int, ...]
) -> None:
    named = {"x": meta(*left), "mat2": meta(*right)}
    _, flops, _, found, _ = work_of("_grouped_mm", list(named.values()), named, meta(*result))
    assert flops == FLOPS
    assert tuple(found) == (GROUPS, *sizes)


def test_many_small_groups_take_longer_than_few_large_ones() -> None:
    gpu, rates = find_gpu("h200"), shipped()

    def seconds(groups: int) -> float:
        sizes = (groups, 65_536 // groups, 1024, 1024)
        work = OperatorWork("aten::_grouped_mm", 15, 2.0 * 65_536 * 1024**2, 3e8, sizes, FORWARD, 1)
        assert work.access == PLAIN
        return kernel_time(work, gpu, rates).seconds

    assert seconds(8) < seconds(2048)
    flops_per_second = 2.0 * 65_536 * 1024**2 / seconds(8)
    assert 5e14 < flops_per_second < gpu.flops_per_second["bf16"]
