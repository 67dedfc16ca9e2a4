"""The time of one step: the host launches kernel after kernel, the GPU works them off; each waits
for the other only where it must."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from vramcast.forecast.timing.kernels import RECURRENT, KernelTime, kernel_time, peak_flops
from vramcast.forecast.timing.rates import shipped
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
TO_THE_HOST = 2  # native/work.h: of a copy
KIND_OF_PHASE = {FORWARD: "forward", BACKWARD: "backward", UPDATE: "update"}
REPETITIONS = 3  # by then both sides have found their pace
QUEUE_LENGTH = 1024  # kernels the host can be ahead of the GPU
LAUNCH_BOUND = 1.05  # a step this much longer than the GPU's work waits for the host


def forecast_step(
    works: Sequence[OperatorWork], gpu: Gpu, rates: Rates | None = None
) -> StepForecast:
    rates = rates or shipped()
    kernels = [kernel_time(work, gpu, rates) for work in works]
    device_seconds = sum(kernel.seconds for kernel in kernels)
    seconds = period_seconds(works, kernels, rates)
    flops = sum(work.flops for work in works)
    return StepForecast(
        seconds=seconds,
        device_seconds=device_seconds,
        host_seconds=sum(host_seconds(work, rates) for work in works),
        flops=flops,
        moved_bytes=sum(work.num_bytes for work in works),
        achieved_fraction=flops / (seconds * peak_flops(gpu, main_precision(works)))
        if seconds
        else 0.0,
        bound_by=_bound_by(seconds, device_seconds, kernels),
    )


def period_seconds(
    works: Sequence[OperatorWork], kernels: Sequence[KernelTime], rates: Rates
) -> float:
    """From the end of one step to the end of the next, once both sides have found their pace."""
    costs = [host_seconds(work, rates) for work in works]
    waiting = [waits(work) for work in works]
    latency, gap, wait = rates.host["latency"], rates.host["gap"], rates.host["wait"]
    ends = deque([0.0] * QUEUE_LENGTH, maxlen=QUEUE_LENGTH)  # of the last kernels
    host = device = before = last = 0.0
    for _ in range(REPETITIONS):
        for cost, kernel, must_wait in zip(costs, kernels, waiting, strict=True):
            host += cost
            if kernel.seconds:
                host = max(host, ends[0])
                device = max(device + gap, host + latency) + kernel.seconds
                ends.append(device)
            if must_wait:
                host = max(host, device) + wait
        before, last = last, max(host, device)
    return last - before


def host_seconds(work: OperatorWork, rates: Rates) -> float:
    """Python, the dispatcher, autograd and the launch. A list of tensors costs for each of them."""
    if not work.has_kernel:
        return rates.host["view"]
    seconds = rates.host[KIND_OF_PHASE[work.phase]]
    if work.operator in RECURRENT:  # one call launches the kernels of all its steps
        return seconds + rates.host["recurrent_step"] * work.sizes[0] * work.sizes[2]
    if "_foreach_" in work.operator or "_fused_" in work.operator:
        return seconds + rates.host["tensor_of_list"] * work.sizes[0]
    return seconds


def waits(work: OperatorWork) -> bool:
    return work.operator in WAITS or (
        work.operator == "aten::copy_" and work.sizes[0] == TO_THE_HOST
    )


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
    return BoundBy.COMPUTE if by_compute > device_seconds / 2 else BoundBy.BANDWIDTH
