"""The time of one step: the host launches kernel after kernel, the GPU works them off; each waits
for the other only where it must."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Sequence

from vramcast.forecast.timing.kernels import (
    RECURRENT,
    KernelTime,
    crosses,
    kernel_class,
    kernel_time,
)
from vramcast.forecast.timing.rates import peak_flops, rates_here
from vramcast.hardware.gpus import Gpu
from vramcast.records.calibration import Rates
from vramcast.records.prediction import BoundBy, StepForecast
from vramcast.tracing.work import BACKWARD, FORWARD, UPDATE, OperatorWork

# the host waits until the GPU has answered
_WAITS = (
    *("_local_scalar_dense", "nonzero", "masked_select", "equal"),
    *("_unique2", "unique_consecutive", "unique_dim", "bincount"),
)
WAITS = frozenset(f"aten::{name}" for name in _WAITS)
KIND_OF_PHASE = {FORWARD: "forward", BACKWARD: "backward", UPDATE: "update"}
REPETITIONS = 3  # by then both sides have found their pace
QUEUE_LENGTH = 1024  # kernels the host can be ahead of the GPU
# A step that may be this much longer than the GPU's work waits for the host.
LAUNCH_BOUND = 1.05
WITHIN_90_PERCENT = 1.645  # standard deviations


def forecast_step(
    works: Sequence[OperatorWork], gpu: Gpu, num_python_calls: int = 0, rates: Rates | None = None
) -> StepForecast:
    rates = rates or rates_here()
    distinct = {id(work): work for work in works}
    time_of = {key: kernel_time(work, gpu, rates) for key, work in distinct.items()}
    kernels = [time_of[id(work)] for work in works]
    costs = host_costs(works, num_python_calls, rates)
    device_seconds = sum(kernel.seconds for kernel in kernels)
    device_factor = device_factor_of(works, kernels, rates, is_other_gpu=gpu.full_name != rates.gpu)
    host_factor = math.exp(WITHIN_90_PERCENT * rates.spread.get("host", 0.0))

    def period(device: float = 1.0, host: float = 1.0) -> float:
        return period_seconds(works, kernels, costs, rates, device, host)

    seconds, high = period(), period(device_factor, host_factor)
    flops = sum(work.flops for work in works)
    return StepForecast(
        seconds=seconds,
        seconds_low=period(1 / device_factor, 1 / host_factor),
        seconds_high=high,
        device_seconds=device_seconds,
        host_seconds=sum(costs),
        flops=flops,
        moved_bytes=sum(work.num_bytes for work in works),
        achieved_fraction=flops / (seconds * peak_flops(gpu, main_precision(works)))
        if seconds
        else 0.0,
        bound_by=_bound_by(high, device_factor * device_seconds, kernels),
        host=rates.host_name,
    )


def device_factor_of(
    works: Sequence[OperatorWork],
    kernels: Sequence[KernelTime],
    rates: Rates,
    *,
    is_other_gpu: bool = False,
) -> float:
    """By how much the GPU's time may be longer or shorter.

    Errors of kernels of one operator are alike, those of different operators are not.
    """
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    kinds: dict[tuple[str, str], OperatorWork] = {}
    for work, kernel in zip(works, kernels, strict=True):
        group = work.operator, work.precision
        seconds[group] += kernel.seconds
        kinds.setdefault(group, work)
    total = sum(seconds.values()) or 1.0
    spreads = {
        group: rates.spread.get(kernel_class(work, rates), 0.0) for group, work in kinds.items()
    }
    variance = sum((seconds[group] / total * spread) ** 2 for group, spread in spreads.items())
    common = ("all", "other_gpu") if is_other_gpu else ("all",)
    variance += sum(rates.spread.get(kind, 0.0) ** 2 for kind in common)
    return math.exp(WITHIN_90_PERCENT * math.sqrt(variance))


def period_seconds(
    works: Sequence[OperatorWork],
    kernels: Sequence[KernelTime],
    costs: Sequence[float],
    rates: Rates,
    device_factor: float = 1.0,
    host_factor: float = 1.0,
) -> float:
    """From the end of one step to the end of the next, once both sides have found their pace.

    `costs` are the host's. The factors make one side slower than known, or faster.
    """
    must_wait_of = {id(work): waits(work) for work in {id(work): work for work in works}.values()}
    waiting = [must_wait_of[id(work)] for work in works]
    latency, gap, wait = rates.host["latency"], rates.host["gap"], rates.host["wait"]
    ends = deque([0.0] * QUEUE_LENGTH, maxlen=QUEUE_LENGTH)  # of the last kernels
    host = device = before = last = 0.0
    for _ in range(REPETITIONS):
        for cost, kernel, must_wait in zip(costs, kernels, waiting, strict=True):
            host += cost * host_factor
            if kernel.seconds:
                host = max(host, ends[0])
                device = max(device + gap, host + latency) + kernel.seconds * device_factor
                ends.append(device)
            if must_wait:
                host = max(host, device) + wait
        before, last = last, max(host, device)
    return last - before


def host_costs(works: Sequence[OperatorWork], num_python_calls: int, rates: Rates) -> list[float]:
    """Seconds of each operator on the host; the program's own Python is spread over them."""
    python = num_python_calls * rates.host.get("python_call", 0.0) / max(1, len(works))
    distinct = {id(work): work for work in works}
    cost_of = {key: host_seconds(work, rates) + python for key, work in distinct.items()}
    return [cost_of[id(work)] for work in works]


def host_seconds(work: OperatorWork, rates: Rates) -> float:
    """The dispatcher, autograd and the launch. A list of tensors costs for each of them."""
    if not work.has_kernel:
        return rates.host["view"]
    seconds = rates.host[KIND_OF_PHASE[work.phase]]
    if work.operator in RECURRENT:  # one call launches the kernels of all its steps
        return seconds + rates.host["recurrent_step"] * work.sizes[0] * work.sizes[2]
    if "_foreach_" in work.operator or "_fused_" in work.operator:
        return seconds + rates.host["tensor_of_list"] * work.sizes[0]
    return seconds


def waits(work: OperatorWork) -> bool:
    """A copy from or to the host too, but one of pinned memory that was not to block."""
    return work.operator in WAITS or crosses(work) and not work.sizes[2]


def main_precision(works: Sequence[OperatorWork]) -> str:
    """In which most of the arithmetic is done."""
    flops = {work.precision: 0.0 for work in works}
    for work in works:
        flops[work.precision] += work.flops
    return max(flops, key=lambda precision: flops[precision], default="fp32")


def _bound_by(seconds: float, device_seconds: float, kernels: Sequence[KernelTime]) -> BoundBy:
    if seconds > LAUNCH_BOUND * device_seconds:
        return BoundBy.LAUNCH
    by_compute = sum(
        kernel.seconds for kernel in kernels if kernel.compute_seconds > kernel.seconds / 2
    )
    return (
        BoundBy.COMPUTE if 2 * by_compute > sum(k.seconds for k in kernels) else BoundBy.BANDWIDTH
    )
