"""From a trace to a prediction: replayed through the allocator, what is alive at the peak, whether
it fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vramcast.allocator.replay import Replay, live_at, replay
from vramcast.downsampling import downsample
from vramcast.forecast.budget import Budget
from vramcast.forecast.step_memory import alive_groups, phase_of, step_memory
from vramcast.forecast.timing.pipeline import forecast_step
from vramcast.records.measurement import Outcome
from vramcast.records.prediction import (
    CATEGORIES,
    BatchSizePoint,
    BoundBy,
    LargeTensor,
    Prediction,
    StepForecast,
)
from vramcast.tracing.trace import SimulatedRun

NUM_LARGEST = 10
TIMELINE_POINTS = 200
NO_TIME = "no GPU was named"


def forecast(
    trace: SimulatedRun, budget: Budget, *, workload: str, knobs: dict[str, Any]
) -> Prediction:
    """Without the seconds that it took, which the caller knows."""
    limited, shown = replay_within(budget, trace.events, trace.sizes)
    step = _step(trace, budget)
    batch_size, seq_len = knobs.get("batch_size"), knobs.get("seq_len")
    tokens = (
        batch_size * seq_len if isinstance(batch_size, int) and isinstance(seq_len, int) else None
    )
    alive = live_at(trace.events, shown.allocated_peak_event)
    largest = sorted(alive, key=lambda number: -trace.sizes[number - 1])
    first_allocated_bytes, first_reserved_bytes = shown.peaks_after_step[1]
    failed = limited.out_of_memory
    capacity = budget.capacity_bytes

    def describe(number: int) -> LargeTensor:
        return trace.allocation(number).as_tensor()

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
        breakdown_bytes=breakdown(trace.categories, alive, shown),
        largest_tensors=[describe(number) for number in largest[:NUM_LARGEST]],
        timeline=timeline(shown),
        peak_phase=phase_of(trace.events, shown.allocated_peak_event),
        step_memory=step_memory(
            trace.events, shown.block_bytes, trace.categories, describe, shown.reserved_bytes
        ),
        alive_at_peak=alive_groups(alive, shown.block_bytes, trace.categories, describe),
        step=step,
        step_seconds=step.seconds if step else None,
        step_seconds_reason="" if step else NO_TIME,
        tokens_per_second=tokens / step.seconds if step and tokens else None,
        limits=[*trace.notes, *budget.limits(), *time_limits(trace)],
        allocator_settings=budget.settings_text,
        torch_version=trace.torch_version,
        seconds=0.0,
        uncalibrated_kernels=list(trace.uncalibrated_kernels),
    )


def _step(trace: SimulatedRun, budget: Budget) -> StepForecast | None:
    return forecast_step(trace.works, budget.gpu) if budget.gpu and trace.works else None


def replay_within(
    budget: Budget, events: Sequence[int], sizes: Sequence[int]
) -> tuple[Replay, Replay]:
    """(within the budget, the same or, where that does not fit, with enough memory)."""
    limited = replay(events, sizes, budget.settings, budget.capacity_bytes)
    return limited, limited if limited.fits else replay(events, sizes, budget.settings)


def timeline(shown: Replay) -> list[tuple[int, int, int]]:
    """(event index, allocated bytes, reserved bytes) over the whole run, with both maxima."""
    reserved = shown.reserved_bytes
    highest = reserved.index(max(reserved))
    kept = downsample(shown.allocated_bytes, TIMELINE_POINTS, [highest])
    return [(index, shown.allocated_bytes[index], reserved[index]) for index in kept]


def time_limits(trace: SimulatedRun) -> list[str]:
    """Of an operator that is not torch's own only the bytes are known."""
    kernels = {work.operator for work in trace.works if work.has_kernel}
    others = ", ".join(sorted(name for name in kernels if not name.startswith("aten::")))
    known = "is that of the bytes moved: what they compute is not known"
    return [f"the time of {others} {known}"] if others else []


def breakdown(categories: Sequence[str], alive: Sequence[int], shown: Replay) -> dict[str, int]:
    """The blocks in use when most is allocated, by category; what else is reserved is cached.

    Sums to peak reserved.
    """
    result = dict.fromkeys(CATEGORIES, 0)
    for number in alive:
        result[categories[number - 1]] += shown.block_bytes[number - 1]
    result["cached_unused"] = shown.peak_reserved_bytes - sum(result.values())
    return result


def batch_size_point(
    batch_size: int, trace: SimulatedRun, sizes: Sequence[int], budget: Budget, *, simulated: bool
) -> BatchSizePoint:
    """`sizes` are the trace's own where it was simulated at this batch size, else interpolated:
    then there is no time."""
    result, shown = replay_within(budget, trace.events, sizes)
    step = _step(trace, budget) if simulated else None
    return BatchSizePoint(
        batch_size=batch_size,
        peak_allocated_bytes=shown.peak_allocated_bytes,
        peak_reserved_bytes=shown.peak_reserved_bytes,
        fits=result.fits,
        outcome=Outcome.OK if result.fits else Outcome.OUT_OF_MEMORY,
        num_alloc_retries=result.num_alloc_retries,
        simulated=simulated,
        step_seconds=step.seconds if step else None,
        bound_by=step.bound_by if step else BoundBy.NOT_PREDICTED,
    )
