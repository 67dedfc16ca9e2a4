"""A GPU that would exceed its power limit lowers its clock.

So in a long run, kernels that are bound by arithmetic take longer than alone.
"""

from vramcast.forecast.timing.rates import peak_flops
from vramcast.hardware.gpus import Gpu
from vramcast.records.calibration import Power
from vramcast.tracing.work import Works

SLOWEST, HALVINGS = 0.2, 30


def clock_of(works: Works, by_compute: float, seconds: float, gpu: Gpu, power: Power) -> float:
    """The fraction of its highest clock that the GPU keeps, in steps of `seconds`, of which
    `by_compute` are bound by arithmetic. Voltage follows the clock, so an operation's energy grows
    with its square."""
    per_flop = power.joules_per_flop
    highest = 1e-12 * peak_flops(gpu, "bf16") / gpu.num_multiprocessors
    highest /= power.teraflops_of_multiprocessor
    moving = power.joules_per_byte * works.each(lambda work: work.num_bytes).sum()
    arithmetic = works.each(
        lambda work: work.counted_flops * per_flop.get(work.precision, 0.0)
    ).sum()

    def watts(clock: float) -> float:
        joules = arithmetic * (highest * clock) ** 2 + moving
        return float(power.idle_watts + joules / (seconds + by_compute * (1 / clock - 1)))

    low, high = SLOWEST, 1.0
    if gpu.power_watts is None or not seconds or watts(high) <= gpu.power_watts:
        return high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if watts(middle) > gpu.power_watts else (middle, high)
    return low
