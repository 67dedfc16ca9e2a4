"""The time of one step: the host launches kernels, and the GPU runs them one after the other.

Each waits for the other only where it must.
"""

import math
from collections import defaultdict
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from vramcast.allocator import compiled
from vramcast.forecast.timing.communication import (
    WAIT,
    collective_seconds,
    communication_of,
    is_collective,
)
from vramcast.forecast.timing.kernels import (
    KernelTime,
    crosses,
    kernel_class,
    kernel_time,
)
from vramcast.forecast.timing.power import clock_of
from vramcast.forecast.timing.rates import peak_flops, rates_here
from vramcast.forecast.timing.recurrent import RECURRENT
from vramcast.forecast.timing.streams import (
    QUEUE_LENGTH,
    REPETITIONS,
    has_streams,
    period_of_streams,
)
from vramcast.hardware.gpus import Gpu
from vramcast.hardware.links import Fabric
from vramcast.records.calibration import Rates
from vramcast.records.prediction import BoundBy, StepForecast
from vramcast.tracing.work import EVALUATION, GENERATED, PHASES, REPLAYED, OperatorWork, Works

# the host waits until the GPU has answered
_WAITS = (
    *("_local_scalar_dense", "nonzero", "masked_select", "equal"),
    *("_unique2", "unique_consecutive", "unique_dim", "bincount"),
)
SYNCHRONIZE = "vramcast::synchronize"
WAITS = frozenset((SYNCHRONIZE, *(f"aten::{name}" for name in _WAITS)))
# with a mask if sizes[1] is set (kernels/work.py)
MASKED = ("aten::index", "aten::_index_put_impl_")
# A step that is longer than the GPU's time by this factor waits for the host.
LAUNCH_BOUND = 1.05
WITHIN_90_PERCENT = 1.645  # standard deviations
# The largest spread: among 172 measured steps with busy GPUs, no range wider than a factor of 1.3
# from low to high contained one more.
MOST_KNOWN = math.log(1.3) / 2 / WITHIN_90_PERCENT


def forecast_step(
    done: Iterable[OperatorWork] | Works,
    gpu: Gpu,
    num_python_calls: int = 0,
    rates: Rates | None = None,
    fabric: Fabric | None = None,
) -> StepForecast:
    """The forecast of one step. `fabric` says what connects several GPUs."""
    rates = rates or rates_here()
    works = Works.of(done)
    times = {work: kernel_time(work, gpu, rates) for work in works.distinct}
    kernel_seconds = works.each(lambda work: times[work].seconds)
    by_compute = works.each(lambda work: _seconds_of_arithmetic(times[work]))
    between = works.each(
        lambda work: collective_seconds(work, fabric) if fabric and is_collective(work) else 0.0
    )
    costs = host_costs(works, num_python_calls, rates)
    if rates.power:
        seconds = period_seconds(works, kernel_seconds + between, costs, rates)
        clock = clock_of(works, _sum(by_compute), seconds, gpu, rates.power)
        kernel_seconds += by_compute * (1 / clock - 1)
        by_compute /= clock
    device_seconds = _sum(kernel_seconds)
    device_factor = device_factor_of(
        works, kernel_seconds, rates, is_other_gpu=gpu.full_name != rates.gpu
    )
    host_factor = math.exp(WITHIN_90_PERCENT * rates.spread.get("host", 0.0))

    def period(device: float = 1.0, host: float = 1.0, alone: bool = False) -> float:
        all_seconds = kernel_seconds if alone else kernel_seconds + between
        return period_seconds(works, all_seconds, costs, rates, device, host)

    seconds, high = period(), period(device_factor, host_factor)
    communication = None
    if fabric and between.any():
        communication = communication_of(works, fabric, seconds, period(alone=True))
    flops = _sum(works.each(lambda work: work.counted_flops))
    return StepForecast(
        seconds=seconds,
        seconds_low=period(1 / device_factor, 1 / host_factor) / num_evaluations(works),
        seconds_high=high,
        device_seconds=device_seconds,
        host_seconds=_sum(costs),
        flops=flops,
        moved_bytes=_sum(works.each(lambda work: work.num_bytes)),
        achieved_fraction=flops / (seconds * peak_flops(gpu, main_precision(works)))
        if seconds
        else 0.0,
        bound_by=_bound_by(high, device_factor, device_seconds, _sum(by_compute)),
        host=rates.host_name,
        communication=communication,
    )


def num_evaluations(works: Works) -> int:
    """How often a step calls its closure (L-BFGS). Once converged, it needs only one call."""
    return max(1, int(works.each(lambda work: work.operator == EVALUATION).sum()))


def _sum(numbers: NDArray[np.float64]) -> float:
    """The sum in Python's order, so that the last digits are the same."""
    return float(numbers.cumsum()[-1]) if len(numbers) else 0.0


def device_factor_of(
    works: Works,
    kernel_seconds: NDArray[np.float64],
    rates: Rates,
    *,
    is_other_gpu: bool = False,
) -> float:
    """The factor by which the GPU's time may be longer or shorter.

    Errors of kernels of one operator are alike, and so are those of kernels that torch.compile
    writes.
    """
    sums = np.bincount(works.codes, kernel_seconds, len(works.distinct)).tolist()
    parts: dict[tuple[bool, str, str], float] = defaultdict(float)
    for work, own in zip(works.distinct, sums, strict=True):
        kind = kernel_class(work, rates)
        spread = rates.spread.get(kind, 0.0) / (sum(sums) or 1.0)
        parts[kind == "custom", *_like(work)] += own * spread
    parts[False, "", "all"] = rates.spread.get("all", 0.0)
    parts[True, "", "other"] = rates.spread.get("other_gpu", 0.0) if is_other_gpu else 0.0
    known, unknown = (sum(parts[k] ** 2 for k in parts if k[0] is own) for own in (False, True))
    return math.exp(WITHIN_90_PERCENT * math.sqrt(min(known, MOST_KNOWN**2) + unknown))


def _like(work: OperatorWork) -> tuple[str, str]:
    is_own = work.operator.startswith(GENERATED)
    return (GENERATED, "") if is_own else (work.operator, work.precision)


def period_seconds(
    works: Works,
    kernel_seconds: NDArray[np.float64],
    costs: NDArray[np.float64],
    rates: Rates,
    device_factor: float = 1.0,
    host_factor: float = 1.0,
) -> float:
    """Seconds from the end of one step to the end of the next, once host and GPU have a steady
    rhythm.

    `costs` are the host's seconds.
    """
    waiting = works.each(waits).astype(bool)
    reals = rates.host["latency"], rates.host["gap"], rates.host["wait"]
    if not has_streams(works):
        more = REPETITIONS, QUEUE_LENGTH, *reals, device_factor, host_factor
        found = compiled.step_period(costs, kernel_seconds, waiting, *more)
        if found is not None:
            return found
    return period_of_streams(
        works, kernel_seconds * device_factor, costs * host_factor, waiting, reals
    )


def host_costs(works: Works, num_python_calls: int, rates: Rates) -> NDArray[np.float64]:
    """Seconds of each operator on the host; the program's own Python is spread over them."""
    python = num_python_calls * rates.host.get("python_call", 0.0) / max(1, len(works))
    return works.each(lambda work: host_seconds(work, rates) + python)


def host_seconds(work: OperatorWork, rates: Rates) -> float:
    """The dispatcher, autograd and the launch. A list of tensors costs for each of them."""
    if work.phase == REPLAYED or work.operator == WAIT:
        return 0.0
    if not work.has_kernel:  # sizes[0] is the bytes read on the host (native/host_values.h)
        return rates.host["view"] + work.sizes[0] * rates.host.get("byte", 0.0)
    seconds = rates.host[PHASES[work.phase]]
    if work.operator in RECURRENT:  # one call launches the kernels of all its steps
        return seconds + rates.host["recurrent_step"] * work.sizes[0] * work.sizes[2]
    is_list = "_foreach_" in work.operator or "_fused_" in work.operator
    if is_list and not work.is_generated:
        return seconds + rates.host["tensor_of_list"] * work.sizes[0]
    return seconds


def waits(work: OperatorWork) -> bool:
    """Whether the host waits for this operator. Copies between host and GPU count too, unless they
    are pinned and non-blocking, and so do masks as indices."""
    is_masked = work.operator in MASKED and work.sizes[1] > 0
    return work.operator in WAITS or is_masked or crosses(work) and not work.sizes[2]


def main_precision(works: Works) -> str:
    """The precision in which most of the arithmetic is done."""
    flops: dict[str, float] = defaultdict(float)
    for code, count in enumerate(np.bincount(works.codes).tolist()):
        flops[works.distinct[code].precision] += count * works.distinct[code].counted_flops
    return max(flops, key=flops.__getitem__, default="fp32")


def _seconds_of_arithmetic(kernel: KernelTime) -> float:
    """The kernel's seconds if it is bound by arithmetic, else 0."""
    return kernel.seconds if kernel.compute_seconds > kernel.seconds / 2 else 0.0


def _bound_by(
    seconds: float, device_factor: float, device_seconds: float, by_compute: float
) -> BoundBy:
    if seconds > LAUNCH_BOUND * (device_factor * device_seconds):
        return BoundBy.LAUNCH
    return BoundBy.COMPUTE if 2 * by_compute > device_seconds else BoundBy.BANDWIDTH
