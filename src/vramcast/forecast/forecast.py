"""From a trace to a prediction: what the allocator reserves, what is alive at the peak."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vramcast.allocator.replay import Replay, live_at, replay
from vramcast.downsampling import downsample
from vramcast.forecast.bands import phase_bands, step_bands
from vramcast.forecast.budget import Budget
from vramcast.forecast.compilation import (
    allocates_to_compile,
    compilation,
    private_bytes,
    with_filled_caches,
)
from vramcast.forecast.failure import failed_allocation, memory_growth
from vramcast.forecast.segments import segment_map
from vramcast.forecast.step_memory import alive_groups, alive_places, step_memory
from vramcast.forecast.timing.pipeline import forecast_step
from vramcast.records.compiled import Compilation
from vramcast.records.measurement import Outcome
from vramcast.records.prediction import (
    CATEGORIES,
    BatchSizePoint,
    BoundBy,
    LargeTensor,
    Phase,
    PhaseName,
    Prediction,
    StepForecast,
)
from vramcast.tracing.trace import Labels, SimulatedRun
from vramcast.units import format_bytes

NUM_LARGEST = 10
TIMELINE_POINTS = 200
STREAMS = "when memory that several streams use (record_stream) can be used again"


def forecast(
    trace: SimulatedRun,
    budget: Budget,
    *,
    workload: str,
    knobs: dict[str, Any],
    is_detailed: bool = True,
) -> Prediction:
    """The prediction, without the seconds that it took, which the caller knows.

    The details are memory through the step, and what is alive at the peak by category and tensor.
    """
    budget = budget.of(trace)
    limited, shown = replay_within(budget, trace, trace.sizes)
    least, most = _reserved_bounds(trace, budget, shown.peak_reserved_bytes)
    step = _step(trace, budget)
    sizes: list[Any] = [knobs.get(name) for name in ("batch_size", "seq_len")]
    tokens = math.prod(sizes) if all(isinstance(size, int) for size in sizes) else None
    segments = trace.segments or [PhaseName.TRAIN] * (len(shown.peaks_after_step) - 1)
    first_step = 1 + segments.index(PhaseName.TRAIN)
    first_allocated_bytes, first_reserved_bytes = shown.peaks_after_step[first_step]
    failed = limited.out_of_memory
    capacity = budget.capacity_bytes
    details: dict[str, Any] = {
        "breakdown_bytes": {},
        "largest_tensors": [],
        "timeline": [],
        "peak_phase": "",
    }
    if is_detailed:
        details = _details(trace, budget, limited, shown, segments)
    return Prediction(
        workload=workload,
        knobs=knobs,
        gpu=budget.gpu.name if budget.gpu else None,
        capacity_bytes=capacity,
        peak_allocated_bytes=shown.peak_allocated_bytes,
        peak_reserved_bytes=shown.peak_reserved_bytes,
        process_bytes=budget.process_bytes(shown.peak_reserved_bytes, trace),
        first_step_allocated_bytes=first_allocated_bytes,
        first_step_reserved_bytes=first_reserved_bytes,
        fits=limited.fits,
        headroom_bytes=None if capacity is None else capacity - shown.peak_reserved_bytes,
        num_alloc_retries=limited.num_alloc_retries,
        failed_allocation_bytes=failed.requested_bytes if failed else None,
        num_parameters=trace.num_parameters,
        num_trainable_parameters=trace.num_trainable_parameters,
        step=step,
        **_times(step),
        step_seconds_reason="" if step else "no GPU was named",
        tokens_per_second=tokens / step.seconds if step and tokens else None,
        peak_reserved_bytes_low=least,
        peak_reserved_bytes_high=most,
        phases=phases(trace, shown, segments),
        notes=list(trace.remarks),
        limits=[
            *trace.notes,
            *budget.limits(),
            *timing_limit((least, shown.peak_reserved_bytes, most), STREAMS),
            *time_limits(trace),
        ],
        allocator_settings=budget.settings_text,
        torch_version=trace.torch_version,
        seconds=0.0,
        uncalibrated_kernels=list(trace.uncalibrated_kernels),
        attention_order=list(trace.attention_order),
        attention_kernels=list(trace.attention_kernels),
        communicators_bytes=budget.communicators_bytes(trace),
        **details,
    )


def _details(
    trace: SimulatedRun,
    budget: Budget,
    limited: Replay,
    shown: Replay,
    segments: Sequence[PhaseName],
) -> dict[str, Any]:
    """Fields of a prediction: memory through the step, what is alive at the peak, what fails."""
    alive = np.array(live_at(trace.events, shown.allocated_peak_event), np.int64)
    largest = alive[np.argsort(-trace.sizes[alive - 1], kind="stable")][:NUM_LARGEST].tolist()
    block_bytes, categories = shown.block_bytes, trace.categories

    @functools.cache
    def describe(number: int) -> LargeTensor:
        return trace.allocation(number).as_tensor()

    memory = step_memory(
        trace.events,
        block_bytes,
        categories,
        describe,
        shown.reserved_bytes,
        segments,
        shown.allocated_bytes,
    )
    private = private_bytes(trace, budget, alive, shown)
    return {
        "breakdown_bytes": breakdown(categories, alive, shown, private),
        "largest_tensors": [describe(number) for number in largest],
        "timeline": timeline(shown),
        "peak_phase": memory.phase if memory else "",
        "step_memory": memory,
        "alive_at_peak": alive_groups(alive, block_bytes, categories, describe),
        "alive_places": alive_places(alive, block_bytes, categories, describe),
        "phase_bands": phase_bands(trace, segments),
        "step_bands": step_bands(trace, segments),
        "failure": failed_allocation(trace, budget, limited, shown, segments, describe),
        "compilation": _compilation(trace, budget, limited, shown, segments),
        "growth": memory_growth(trace, shown, budget.capacity_bytes, segments, describe),
        "segment_map": segment_map(trace, budget, limited),
    }


def _compilation(
    trace: SimulatedRun,
    budget: Budget,
    limited: Replay,
    shown: Replay,
    segments: Sequence[PhaseName],
) -> Compilation | None:
    if trace.compilations is None:
        return None
    cached = limited, shown
    if allocates_to_compile(trace):
        cached = replay_within(budget, with_filled_caches(trace), trace.sizes)
    return compilation(trace, shown, cached, 1 + segments.index(PhaseName.TRAIN))


def _step(trace: SimulatedRun, budget: Budget) -> StepForecast | None:
    return (
        forecast_step(trace.works, budget.gpu, trace.num_python_calls, fabric=budget.fabric)
        if budget.gpu and trace.works
        else None
    )


def _times(step: StepForecast | None) -> dict[str, Any]:
    return {
        "step_seconds": step.seconds if step else None,
        "step_seconds_low": step.seconds_low if step else None,
        "step_seconds_high": step.seconds_high if step else None,
    }


def replay_within(
    budget: Budget, trace: SimulatedRun, sizes: NDArray[np.int64]
) -> tuple[Replay, Replay]:
    """The replay within the budget, and the replay with enough memory."""
    budget = budget.of(trace)
    around = trace.circumstances()
    limited = replay(trace.events, sizes, budget.settings, budget.capacity_bytes, **around)
    if limited.fits:
        return limited, limited
    return limited, replay(trace.events, sizes, budget.settings, **around)


def _reserved_bounds(trace: SimulatedRun, budget: Budget, shown_bytes: int) -> tuple[int, int]:
    """The least and the most peak reserved bytes: where several streams use memory, it can be used
    again at once after it is freed, or only as late as the host might learn that it is free."""
    if not trace.held_until:
        return shown_bytes, shown_bytes
    peaks = [
        replay(
            trace.events,
            trace.sizes,
            budget.settings,
            **{**trace.circumstances(), "held_until": held},
        ).peak_reserved_bytes
        for held in ({}, trace.held_at_most_until)
    ]
    return min(*peaks, shown_bytes), max(*peaks, shown_bytes)


def timing_limit(
    peaks_bytes: tuple[int, int, int], what: str, by: str = "by predicted times"
) -> list[str]:
    """A text for the limits, where the peak depends on times. The peaks are the lowest, the one
    shown, and the highest."""
    low, shown, high = map(format_bytes, peaks_bytes)
    if peaks_bytes[0] == peaks_bytes[2]:
        return []
    return [
        f"{what} is a matter of time: the peak reserved may be {low} to {high}, and is {shown} "
        f"{by}, which is shown"
    ]


def timeline(shown: Replay) -> list[tuple[int, int, int]]:
    """(event index, allocated bytes, reserved bytes) over the whole run, with both maxima."""
    allocated, reserved = shown.allocated_bytes, shown.reserved_bytes
    kept = downsample(allocated, TIMELINE_POINTS, [int(reserved.argmax())])
    return list(zip(kept, allocated[kept].tolist(), reserved[kept].tolist(), strict=True))


def time_limits(trace: SimulatedRun) -> list[str]:
    """Says which operators are not torch's own: of these only the bytes are known."""
    works = trace.works.distinct
    others = ", ".join(sorted({w.operator for w in works if w.has_kernel and not w.is_known}))
    known = "is that of the bytes moved: what they compute is not known"
    return [f"the time of {others} {known}"] if others else []


def phases(trace: SimulatedRun, shown: Replay, segments: Sequence[PhaseName]) -> list[Phase]:
    """The highest memory of each phase, in the order in which they first came."""
    starts = np.flatnonzero(trace.events == 0).tolist()
    bounds = [0, *starts, len(trace.events)]
    names = [PhaseName.BUILD, *segments]
    peaks: dict[PhaseName, tuple[int, int]] = {}
    for name, begin, end in zip(names, bounds, bounds[1:], strict=False):
        allocated, reserved = peaks.get(name, (0, 0))
        # a phase begins with the memory that is already allocated
        peaks[name] = (
            int(shown.allocated_bytes[begin:end].max(initial=allocated)),
            int(shown.reserved_bytes[begin:end].max(initial=reserved)),
        )
    return [
        Phase(
            name=name,
            num_steps=trace.phase_counts.get(name, segments.count(name)),
            peak_allocated_bytes=allocated,
            peak_reserved_bytes=reserved,
        )
        for name, (allocated, reserved) in peaks.items()
    ]


def breakdown(
    categories: Labels, alive: NDArray[np.int64], shown: Replay, private_bytes: int = 0
) -> dict[str, int]:
    """Bytes in use when most is allocated, by category. The rest of peak reserved is kept by
    private pools, or is cached."""
    result = dict.fromkeys(CATEGORIES, 0)
    owners, block_bytes = categories.codes[alive - 1], shown.block_bytes[alive - 1]
    for code, name in enumerate(categories.words):
        result[name] += int(block_bytes[owners == code].sum())
    result["private_pools"] = private_bytes
    result["cached_unused"] = shown.peak_reserved_bytes - sum(result.values())
    return result


def batch_size_point(
    batch_size: int,
    trace: SimulatedRun,
    sizes: NDArray[np.int64],
    budget: Budget,
    *,
    simulated: bool,
) -> BatchSizePoint:
    """The prediction for one batch size. `sizes` are the trace's own, or interpolated; then no time
    is predicted."""
    result, shown = replay_within(budget, trace, sizes)
    step = _step(trace, budget) if simulated else None
    return BatchSizePoint(
        batch_size=batch_size,
        peak_allocated_bytes=shown.peak_allocated_bytes,
        peak_reserved_bytes=shown.peak_reserved_bytes,
        fits=result.fits,
        outcome=Outcome.OK if result.fits else Outcome.OUT_OF_MEMORY,
        num_alloc_retries=result.num_alloc_retries,
        simulated=simulated,
        **_times(step),
        bound_by=step.bound_by if step else BoundBy.NOT_PREDICTED,
    )
