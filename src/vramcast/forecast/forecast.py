"""From a trace to an answer: replay it through the allocator, see what is alive at the peak, decide whether it fits. No torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vramcast.allocator.replay import Replay, history, live_at, replay, thinned
from vramcast.allocator.settings import AllocatorSettings
from vramcast.forecast.step_memory import alive_groups, rounded, step_memory
from vramcast.forecast.timing.pipeline import forecast_step
from vramcast.hardware.calibration.table import DEFAULT_KERNELS_BYTES
from vramcast.hardware.gpus import Gpu
from vramcast.records.calibration import Calibration
from vramcast.records.prediction import CATEGORIES, BatchSizePoint, LargeTensor, Prediction
from vramcast.tracing.simulated import Trace

NUM_LARGEST = 10
NO_TIME = "no GPU was named"
NO_GPU = "no GPU was named: kernels and workspaces are those of an H200"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What the allocator may take, and on which GPU."""

    gpu: Gpu | None
    memory_bytes: int | None
    settings: AllocatorSettings
    settings_text: str = ""

    calibration: Calibration | None = None
    calibration_limits: Sequence[str] = ()

    @property
    def capacity_bytes(self) -> int | None:
        if self.memory_bytes is not None:
            return self.memory_bytes
        return self.gpu.total_bytes - self._taken_bytes if self.gpu else None

    @property
    def _taken_bytes(self) -> int:
        """Of the GPU's memory, by a process that trains, before its first tensor."""
        assert self.gpu is not None
        if self.calibration is not None and self._same_gpu:
            return self.calibration.device_bytes + self.calibration.libraries_bytes
        return self.gpu.context_bytes + DEFAULT_KERNELS_BYTES

    def process_bytes(self, reserved_bytes: int, trace: Trace) -> int | None:
        """As nvidia-smi shows it."""
        if self.gpu is None:
            return None
        if self.calibration is None or not self._same_gpu:
            return reserved_bytes + self.gpu.context_bytes + DEFAULT_KERNELS_BYTES
        loaded = self.calibration.process_bytes
        loaded += self.calibration.libraries_bytes if trace.uses_libraries else 0
        loaded += self.calibration.solver_bytes if trace.uses_solver else 0
        return reserved_bytes + loaded

    @property
    def _same_gpu(self) -> bool:
        """The size of the context depends on more than the architecture."""
        return (
            self.gpu is not None
            and self.calibration is not None
            and self.calibration.gpu == self.gpu.full_name
        )

    def limits(self) -> list[str]:
        if self.gpu is None:
            return [NO_GPU]
        if self.calibration is not None and not self._same_gpu:
            return [
                *self.calibration_limits,
                f"the memory of the CUDA context on {self.gpu.name} is an estimate",
            ]
        return list(self.calibration_limits)


def forecast(
    trace: Trace, budget: Budget, *, workload: str, knobs: dict[str, Any], seconds: float
) -> Prediction:
    capacity = budget.capacity_bytes
    free = replay(trace.events, trace.sizes, budget.settings)
    limited = free
    if capacity is not None and (
        free.peak_reserved_bytes > capacity or budget.settings.depends_on_capacity
    ):
        limited = replay(trace.events, trace.sizes, budget.settings, capacity)
    # what does not fit is shown as it would be with enough memory
    shown = limited if limited.fits else free
    step = forecast_step(trace.works, budget.gpu) if budget.gpu and trace.works else None
    tokens = tokens_of_step(knobs)
    moments = history(
        trace.events, trace.sizes, budget.settings, capacity if shown is not free else None
    )
    peak = shown.allocated_peak_event
    return Prediction(
        workload=workload,
        knobs=knobs,
        gpu=budget.gpu.name if budget.gpu else None,
        capacity_bytes=capacity,
        peak_allocated_bytes=shown.peak_allocated_bytes,
        peak_reserved_bytes=shown.peak_reserved_bytes,
        process_bytes=budget.process_bytes(shown.peak_reserved_bytes, trace),
        first_step_allocated_bytes=shown.peak_allocated_after_step[1],
        first_step_reserved_bytes=shown.reserved_after_step[1],
        fits=limited.fits,
        headroom_bytes=None if capacity is None else capacity - shown.peak_reserved_bytes,
        num_alloc_retries=limited.num_alloc_retries,
        failed_allocation_bytes=limited.out_of_memory.requested_bytes
        if limited.out_of_memory
        else None,
        num_parameters=trace.num_parameters,
        breakdown_bytes=breakdown(trace, shown),
        largest_tensors=largest_tensors(trace, peak),
        timeline=[list(point) for point in thinned(moments)],
        peak_phase=peak_phase(trace, peak),
        step_memory=step_memory(
            trace.events,
            trace.sizes,
            trace.categories,
            lambda number: _described(trace, number),
            peak_event=peak,
            history=moments,
        ),
        alive_at_peak=alive_groups(
            live_at(trace.events, peak),
            trace.sizes,
            trace.categories,
            lambda number: _described(trace, number),
        ),
        step=step,
        step_seconds=step.seconds if step else None,
        step_seconds_reason="" if step else NO_TIME,
        tokens_per_second=tokens / step.seconds if step and tokens else None,
        limits=[*trace.notes, *budget.limits(), *time_limits(trace)],
        allocator_settings=budget.settings_text,
        torch_version=trace.torch_version,
        seconds=seconds,
        uncalibrated_kernels=list(trace.uncalibrated_kernels),
    )


def time_limits(trace: Trace) -> list[str]:
    """Of an operator that is not torch's own only the bytes are known."""
    others = sorted(
        {
            work.operator
            for work in trace.works
            if work.has_kernel and not work.operator.startswith("aten::")
        }
    )
    return (
        [
            f"the time of {', '.join(others)} is that of the bytes moved: what they compute is not known"
        ]
        if others
        else []
    )


def tokens_of_step(knobs: dict[str, Any]) -> int | None:
    batch_size, seq_len = knobs.get("batch_size"), knobs.get("seq_len")
    return (
        batch_size * seq_len if isinstance(batch_size, int) and isinstance(seq_len, int) else None
    )


def breakdown(trace: Trace, shown: Replay) -> dict[str, int]:
    """Bytes per category when the most is allocated; what the allocator holds beyond that is cached. Sums to peak reserved."""
    sums: Counter[str] = Counter()
    for number in live_at(trace.events, shown.allocated_peak_event):
        sums[trace.categories[number - 1]] += rounded(trace.sizes[number - 1])
    result = {category: sums.get(category, 0) for category in CATEGORIES}
    result["cached_unused"] = shown.peak_reserved_bytes - sum(sums.values())
    return result


def largest_tensors(trace: Trace, event: int) -> list[LargeTensor]:
    alive = sorted(live_at(trace.events, event), key=lambda number: -trace.sizes[number - 1])[
        :NUM_LARGEST
    ]
    return [_described(trace, number) for number in alive]


def _described(trace: Trace, number: int) -> LargeTensor:
    return _large_tensor(**asdict(trace.detail_of(number)))


def _large_tensor(*, operator: str, node: str, shape: tuple[int, ...], **rest: Any) -> LargeTensor:
    return LargeTensor(
        operator=f"{operator} ({node})" if node else operator, shape=list(shape), **rest
    )


def peak_phase(trace: Trace, event: int) -> str:
    """In which step an event is: 'build', 'step 1', ..."""
    steps = sum(1 for e in trace.events[: event + 1] if e == 0)
    return f"step {steps}" if steps else "build"


def batch_size_point(
    batch_size: int, trace: Trace, sizes: Sequence[int], budget: Budget, *, simulated: bool
) -> BatchSizePoint:
    """`sizes` are the trace's own where it was simulated at this batch size, else interpolated: then there is no time."""
    events = trace.events
    result = replay(events, sizes, budget.settings, budget.capacity_bytes)
    # what does not fit is shown as it would be with enough memory
    shown = result if result.fits else replay(events, sizes, budget.settings)
    step = (
        forecast_step(trace.works, budget.gpu) if simulated and budget.gpu and trace.works else None
    )
    return BatchSizePoint(
        batch_size=batch_size,
        peak_allocated_bytes=shown.peak_allocated_bytes,
        peak_reserved_bytes=shown.peak_reserved_bytes,
        fits=result.fits,
        num_alloc_retries=result.num_alloc_retries,
        simulated=simulated,
        step_seconds=step.seconds if step else None,
        bound_by=step.bound_by if step else "",
    )
