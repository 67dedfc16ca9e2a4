"""Kernels that torch.compile has written are timed by what their blocks do."""

from __future__ import annotations

import pytest

from vramcast.forecast.timing.kernels import kernel_time
from vramcast.forecast.timing.pipeline import forecast_step
from vramcast.forecast.timing.rates import shipped
from vramcast.hardware.gpus import find_gpu
from vramcast.tracing.work import FORWARD, FUSED, PLAIN, OperatorWork

H200 = find_gpu("h200")
FP32, MANY_BLOCKS = 6, 100_000
BYTES = 4e9


def kernel(
    operations: float = 0.0,
    num_bytes: float = BYTES,
    blocks: int = MANY_BLOCKS,
    waiting: int = 0,
    asked: int = 0,
) -> OperatorWork:
    sizes = (blocks, 0, waiting, asked)
    return OperatorWork(f"{FUSED}poi_0", FP32, operations, num_bytes, sizes, FORWARD, PLAIN)


def seconds(work: OperatorWork) -> float:
    return kernel_time(work, H200, shipped()).seconds


def test_memory_decides_where_little_is_computed() -> None:
    bare = seconds(kernel())
    assert bare == pytest.approx(BYTES / (0.91 * 4.8e12), rel=0.01)
    assert seconds(kernel(operations=1e9)) == pytest.approx(bare, rel=0.01)


def test_arithmetic_and_what_is_asked_of_the_cache_decide_where_there_is_more_of_them() -> None:
    lanes = H200.flops_per_second["fp32"] / 2
    assert seconds(kernel(operations=lanes * 5e-3)) == pytest.approx(5e-3, rel=0.02)
    assert seconds(kernel(asked=int(20 * BYTES))) > 3 * seconds(kernel())


def test_a_few_blocks_leave_multiprocessors_idle() -> None:
    some, few = (kernel(operations=1e11, num_bytes=1e6, blocks=n) for n in (132, 33))
    assert seconds(few) == pytest.approx(4 * seconds(some), rel=0.02)


def test_waiting_comes_on_top() -> None:
    assert seconds(kernel(waiting=250_000)) - seconds(kernel()) == pytest.approx(250e-6)


def test_additions_to_places_that_blocks_share_take_their_time() -> None:
    sizes = (0, 1 << 28, 384, 1 << 28)
    assert seconds(kernel()._replace(sizes=sizes)) > 2 * seconds(kernel())


def test_a_kernel_that_is_named_after_a_convolution_or_a_list_is_none() -> None:
    for name in ("poi_fused_convolution_backward_1", "for_fused__foreach_add_2"):
        work = kernel(operations=1e9)._replace(operator=f"{FUSED}{name}")
        assert seconds(work) == seconds(kernel(operations=1e9))
        step = forecast_step([work] * 100, H200)
        assert step.host_seconds == pytest.approx(
            forecast_step([kernel()] * 100, H200).host_seconds
        )


def test_what_fused_kernels_cost_are_no_floating_point_operations() -> None:
    """Else they would take energy as products in fp32 do, and the clock would be told too low."""
    step = forecast_step([kernel(operations=1e13)] * 100, H200)
    assert step.flops == 0
    assert step.device_seconds == pytest.approx(100 * seconds(kernel(operations=1e13)))
