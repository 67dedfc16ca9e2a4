"""A trial on the real GPU. The host waits for no single step: the GPU is as busy as in training."""

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from numbers import Real
from pathlib import Path
from typing import Any

import torch

from vramcast.allocator.settings import from_environment
from vramcast.hardware.nvml import MemorySource, UsedMemory
from vramcast.probing.facts import Phase, Reporter
from vramcast.probing.trial import Trial
from vramcast.processes.lifetime import end_if_forked
from vramcast.records.measurement import Memory
from vramcast.simulate.ownership import Ownership
from vramcast.workload import check_step
from vramcast.workload.switches import apply_allocator, apply_switches, switches_in_force

Step = Callable[[], Any]
TRACED = "--trace recorded every allocation, which makes the steps slower"


class Clock:
    """Times steps on the device and fetches their losses without making the host wait."""

    def __init__(self, report: Reporter, num_steps: int) -> None:
        self._report, self._num_steps = report, num_steps
        self._pending: deque[tuple[Any, Any, bool, Callable[[], float | None]]] = deque()
        self._losses: torch.Tensor | None = None
        self._count = 0

    def time(self, step: Step, is_measured: bool) -> None:
        start = recorded_event()
        loss = self._copy(step())
        self.add(start, recorded_event(), is_measured, loss)

    def add(
        self,
        start: Any,
        end: Any,
        is_measured: bool,
        loss: Callable[[], float | None] = lambda: None,
    ) -> None:
        """Adds a step between two events."""
        self._pending.append((start, end, is_measured, loss))
        while self._pending and self._pending[0][1].query():
            self._tell_oldest()

    def drain(self) -> None:
        """Waits for all steps, one by one: the host may be many steps ahead, and each one that ends
        is progress."""
        while self._pending:
            self._pending[0][1].synchronize()
            self._tell_oldest()
        torch.cuda.synchronize()

    def _tell_oldest(self) -> None:
        start, end, is_measured, loss = self._pending.popleft()
        self._report.step(is_measured, start.elapsed_time(end) / 1e3, loss())

    def _copy(self, loss: Any) -> Callable[[], float | None]:
        """Starts to copy the loss to the host. The result reads it when the device has got there.
        So the next step finds the loss's memory free."""
        # with tensor parallelism it is a DTensor, which torch cannot copy into a plain tensor
        loss = loss.to_local() if hasattr(loss, "to_local") else loss
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or loss.is_complex():
            # `Real` includes numpy's numbers
            value = float(loss) if isinstance(loss, Real) else None
            return lambda: value
        if self._losses is None or self._losses.dtype != loss.dtype:
            size = min(self._num_steps, 1 << 20)
            self._losses = torch.empty(size, dtype=loss.dtype, pin_memory=True)
            self._count = 0
        place = self._losses[self._count % len(self._losses)]
        self._count += 1
        place.copy_(loss.detach().reshape(()), non_blocking=True)
        return lambda: float(place)


def recorded_event() -> Any:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


class GpuRun:
    def __init__(self, trial: Trial, report: Reporter) -> None:
        self.trial, self.report = trial, report
        self.history: Any = None

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        """Starts CUDA under the trial's settings. However the run ends, its memory is reported."""
        self.prepare()
        self.start()
        with self.telling_end():
            yield

    def prepare(self) -> None:
        """Must be called before CUDA starts."""
        if not torch.cuda.is_available():
            raise NotImplementedError("torch finds no CUDA GPU in this process")
        if self.trial.allocator:
            apply_allocator(self.trial.allocator)
        self._memory = UsedMemory()

    @contextlib.contextmanager
    def telling_end(self) -> Iterator[None]:
        try:
            yield
        finally:
            self.tell_end()

    def tell_end(self) -> None:
        # These numbers are still right after running out of memory. A broken context gives none,
        # and this error must not hide why it broke.
        with contextlib.suppress(Exception):
            retries = torch.cuda.memory_stats()["num_alloc_retries"]
            self.report.tell(last=self.peaks(), num_alloc_retries=retries)
            outside, source = self._outside_bytes()
            self.report.tell(outside_bytes=outside, process_source=source)

    def start(self) -> None:
        total = torch.cuda.mem_get_info()[1]  # starts CUDA
        properties = torch.cuda.get_device_properties(0)
        if self.trial.memory_cap_bytes is not None:
            fraction = fraction_for(self.trial.memory_cap_bytes, properties.total_memory)
            torch.cuda.set_per_process_memory_fraction(fraction)
        torch.empty(1, device="cuda")
        self._uuid = f"GPU-{properties.uuid}"
        state = self._memory.before.get(self._uuid)
        self.report.tell(
            gpu=properties.name,
            capacity_bytes=total,
            torch_version=torch.__version__,
            cuda_version=torch.version.cuda,
            context_bytes=self._outside_bytes()[0],
            allocator_settings=self.trial.allocator or from_environment(),
            driver_version=state and state.driver_version,
            driver_model=state and state.driver_model,
        )

    def _outside_bytes(self) -> tuple[int, MemorySource]:
        free, total = torch.cuda.mem_get_info()
        used, source = self._memory.of_process(self._uuid) or (total - free, MemorySource.CUDA)
        # torch.cuda.memory_reserved() is 0 while CUDA starts
        stats = torch._C._cuda_memoryStats(torch.cuda.current_device())
        return used - stats["reserved_bytes"]["all"]["current"], source

    def go(self, function: Callable[..., Any], knobs: dict[str, Any]) -> None:
        if self.trial.trace_folder is not None:
            self.start_history()
            self.report.tell(notes=[TRACED])
        step = self.watched(lambda: self._build(function, knobs))()
        self.report.tell(build=self.peaks())
        clock = Clock(self.report, self.trial.warmup_steps + self.trial.measure_steps)
        try:
            self._steps(step, clock)
        finally:
            # reports the steps that ended before one that failed; a broken context gives no answer
            with contextlib.suppress(RuntimeError):
                clock.drain()
        if self.history is not None:
            self.report.tell(phase=Phase.TRACE)
            self.finish_history()

    def start_history(self) -> None:
        from vramcast.probing.allocation_history import History

        self.history = History()
        self.history.start()

    def _build(self, function: Callable[..., Any], knobs: dict[str, Any]) -> Step:
        self.report.tell(phase=Phase.BUILD)
        torch.manual_seed(0)
        apply_switches(self.trial.switches)
        started = time.perf_counter()
        ownership = Ownership(lambda addresses: [0] * len(addresses))
        with ownership.watching():
            step = check_step(function(**knobs))
        apply_switches(self.trial.switches)  # the workload may have set some itself
        torch.cuda.synchronize()
        num_parameters, num_trainable = ownership.num_parameters()
        self.report.tell(
            build_seconds=time.perf_counter() - started,
            switches=switches_in_force(),
            num_parameters=num_parameters,
            num_trainable_parameters=num_trainable,
        )
        return step

    def _steps(self, step: Step, clock: Clock) -> None:
        num_warmup = self.trial.warmup_steps
        self.report.tell(phase=Phase.WARM_UP)
        started = time.perf_counter()
        for index in range(num_warmup + self.trial.measure_steps):
            if index == num_warmup:
                clock.drain()
                self.report.tell(cold=self.peaks(), phase=Phase.MEASURE)
                torch.cuda.reset_peak_memory_stats()
                started = time.perf_counter()
            if self.history is not None:
                self.history.mark_step(index + 1)
            is_measured = index >= num_warmup
            clock.time(step if is_measured else self.watched(step), is_measured)
            if index == 0:
                self.report.tell(first_step=self.peaks())
        clock.drain()
        self.report.tell(wall_seconds=time.perf_counter() - started, warm=self.peaks())

    def watched(self, call: Step) -> Step:
        """The call, with its memory counted. The GPU's allocator counts every call anyway."""
        return call

    def peaks(self) -> Memory:
        return Memory(
            allocated_bytes=torch.cuda.max_memory_allocated(),
            reserved_bytes=torch.cuda.max_memory_reserved(),
        )

    def finish_history(self) -> None:
        """Writes the trace files of the recorded history."""
        from vramcast.tracing.files import from_rows, write_files

        events, snapshot = self.history.finish()
        facts = self.report.facts
        trace = from_rows(
            events,
            source="measured",
            workload=self.trial.workload,
            knobs=facts.knobs or {},
            gpu=facts.gpu or "",
            torch_version=facts.torch_version,
            allocator_settings=facts.allocator_settings or "",
        )
        # the run's folder was checked before the run
        end_if_forked()
        write_files(Path(self.trial.trace_folder or ""), trace, snapshot, force=True)


def fraction_for(cap_bytes: int, total_bytes: int) -> float:
    """The fraction that torch turns back into exactly this many bytes: it multiplies and rounds
    down."""
    fraction = min(cap_bytes / total_bytes, 1.0)
    while fraction < 1.0 and int(fraction * total_bytes) < cap_bytes:
        fraction = math.nextafter(fraction, 2.0)
    return fraction
