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
# Kept tensors pile up over several steps where a step is shorter than the time between two looks of
# NCCL's watchdog.
MORE_STEPS = 2
DRAWS = 10


def as_eager(job: Job) -> dict[str, Any]:
    """The peak and the step time without torch.compile. Empty where the step fails without it."""
    from vramcast.simulate.patches import torch_compile

    with contextlib.suppress(WorkloadError), torch_compile.switched_off(job.session.gpu):
        eager = _simulated(job)
        return {
            "eager_peak_reserved_bytes": eager.peak_reserved_bytes,
            "eager_step_seconds": eager.step_seconds,
        }
    return {}


def with_bounds(job: Job, found: dict[str, Any]) -> dict[str, Any]:
    """The prediction with the lowest and the highest peak: NCCL's process group lets tensors go as
    soon, or as late, as it may. It fits only if it fits in each case."""
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
    """The prediction with the lowest and the highest peak over choices of each convolution's
    fastest kernel: the one with the smallest workspace, the largest, and random ones. Workspaces of
    mixed sizes may fragment memory more than either extreme."""
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
    """The prediction with the peak of a trained detector, which proposes more boxes that match."""
    reads, peaks = job.session.gpu.reads, [found[name] for name in BOUNDS]
    reads.overlaps = MANY_OVERLAPS
    try:
        with contextlib.suppress(WorkloadError):
            peaks.append(_simulated(job).peak_reserved_bytes)
    finally:
        reads.overlaps = FEW_OVERLAPS
    return _within(peaks, found, BOXES, "with new weights")


def _drawn(number: int) -> Callable[[Sequence[int]], int]:
    """A function that chooses at random, but always the same of the same list."""
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
