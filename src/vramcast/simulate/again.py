"""A workload that was simulated, simulated again under another rule, for a second answer."""

import contextlib
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from vramcast.errors import WorkloadError
from vramcast.forecast.forecast import forecast, timing_limit
from vramcast.records.prediction import Prediction
from vramcast.simulate.host_reads import FEW_OVERLAPS, MANY_OVERLAPS
from vramcast.simulate.job import Job
from vramcast.simulate.kept_by_nccl import AT_ONCE, AT_THE_LATEST, USUALLY
from vramcast.simulate.session import STEPS
from vramcast.tracing.trace import SimulatedRun

BOUNDS = "peak_reserved_bytes_low", "peak_reserved_bytes_high"
NCCL = "when NCCL's process group lets tensors go"
BOXES = "how many boxes a detector proposes where they are wanted"
FASTEST = "which kernels are the fastest (cudnn.benchmark)"
# What is kept adds up where steps are shorter than the time between two looks.
MORE_STEPS = 2
DRAWS = 10


def as_eager(job: Job) -> dict[str, Any]:
    """What the step takes without torch.compile. It may not run without, which is no fault."""
    from vramcast.simulate.patches import torch_compile

    with contextlib.suppress(WorkloadError), torch_compile.switched_off(job.session.gpu):
        eager = _simulated(job)
        return {
            "eager_peak_reserved_bytes": eager.peak_reserved_bytes,
            "eager_step_seconds": eager.step_seconds,
        }
    return {}


def with_bounds(job: Job, found: dict[str, Any]) -> dict[str, Any]:
    """What it takes where NCCL's process group keeps tensors as briefly, or as long, as it may; it
    fits where it does in any case."""
    kept, peaks = job.session.gpu.kept_by_nccl, [found[name] for name in BOUNDS]
    options = {} if "line" in job.request else {"steps": STEPS + MORE_STEPS}
    try:
        for kept.noticed_after_seconds in (AT_ONCE, AT_THE_LATEST):
            other = _simulated(job, **options)
            peaks += [getattr(other, name) for name in BOUNDS]
            if not other.fits:
                failed = found["failed_allocation_bytes"] or other.failed_allocation_bytes
                found = {**found, "fits": False, "failed_allocation_bytes": failed}
    finally:
        kept.noticed_after_seconds = USUALLY
    return _within(peaks, found, NCCL)


def with_other_kernels(job: Job, found: dict[str, Any]) -> dict[str, Any]:
    """What it takes where every convolution's fastest kernel takes the least memory of those that
    cuDNN tries, the most, or any: gaps of many sizes may take more than either."""
    gpu, peaks = job.session.gpu, [found[name] for name in BOUNDS]
    choices: list[Callable[[Sequence[int]], int]] = [min, max, *map(_drawn, range(DRAWS))]
    try:
        for gpu.fastest in choices:
            with contextlib.suppress(WorkloadError):
                peaks.append(_simulated(job).peak_reserved_bytes)
    finally:
        gpu.fastest = None
    return _within(peaks, found, FASTEST, "with those that cuDNN names first")


def with_more_boxes(job: Job, found: dict[str, Any]) -> dict[str, Any]:
    """What it takes where a detector has learned to propose boxes that are wanted."""
    reads, peaks = job.session.gpu.reads, [found[name] for name in BOUNDS]
    reads.overlaps = MANY_OVERLAPS
    try:
        with contextlib.suppress(WorkloadError):
            peaks.append(_simulated(job).peak_reserved_bytes)
    finally:
        reads.overlaps = FEW_OVERLAPS
    return _within(peaks, found, BOXES, "with new weights")


def _drawn(number: int) -> Callable[[Sequence[int]], int]:
    """Chooses one, the same of the same ones."""
    return lambda tried: Random(f"{number} {tried}").choice(tried)


def _within(peaks: Sequence[int], found: dict[str, Any], *what: str) -> dict[str, Any]:
    low, high = min(peaks), max(peaks)
    limit = timing_limit((low, found["peak_reserved_bytes"], high), *what)
    bounds = dict(zip(BOUNDS, (low, high), strict=True))
    return {**found, **bounds, "limits": sorted([*found["limits"], *limit])}


def _simulated(job: Job, **options: Any) -> Prediction:
    def said(run: SimulatedRun) -> Prediction:
        budget = job.budget.of(run)
        return forecast(run, budget, workload=job.workload, knobs={}, is_detailed=False)

    return job.run(said, locate=False, **options)
