"""A GPU that needs more power than it may have lowers its clock: kernels bound by arithmetic take
longer in a long run than one by one, as they were recorded."""

from __future__ import annotations

from vramcast.forecast.timing.rates import peak_flops
from vramcast.hardware.gpus import Gpu
from vramcast.records.calibration import Power
from vramcast.tracing.work import OperatorWork

SLOWEST = 0.2
HALVINGS = 30


def joules_of(work: OperatorWork, gpu: Gpu, power: Power) -> tuple[float, float]:
    """Of its arithmetic at the highest clock, and of its bytes. With the clock goes the voltage,
    and an operation costs its square."""
    clock = 1e-12 * peak_flops(gpu, "bf16") / gpu.num_multiprocessors
    clock /= power.teraflops_of_multiprocessor
    per_flop = power.joules_per_flop.get(work.precision, 0.0) * clock**2
    return work.flops * per_flop, work.num_bytes * power.joules_per_byte


def clock_of(
    arithmetic: float, moving: float, by_compute: float, seconds: float, gpu: Gpu, power: Power
) -> float:
    """The part of its highest clock that a GPU can keep in steps of `seconds`, `by_compute` of
    which are bound by arithmetic; the first two are joules."""
    limit = gpu.power_watts

    def watts(clock: float) -> float:
        longer = seconds + by_compute * (1 / clock - 1)
        return power.idle_watts + (arithmetic * clock**2 + moving) / longer

    if limit is None or not seconds or watts(1.0) <= limit:
        return 1.0
    low, high = SLOWEST, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if watts(middle) > limit else (middle, high)
    return low
