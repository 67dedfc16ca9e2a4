"""A trial on the real GPU. Steps are timed with device events and never waited for one by one: the GPU is as busy as in training."""

from __future__ import annotations

import contextlib
import math
import numbers
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from vramcast.allocator.settings import from_environment
from vramcast.hardware import nvml
from vramcast.probing.trial import Trial
from vramcast.probing.worker import Reporter
from vramcast.simulate.ownership import Ownership
from vramcast.workload import check_step
from vramcast.workload.switches import apply_allocator, apply_switches, switches_in_force

MOST_LOSSES = 1 << 20
TRACED = "every allocation was recorded with --trace: the steps are slower for it"


class GpuRun:
    def __init__(self, trial: Trial, report: Reporter) -> None:
        self.trial, self.report = trial, report
        self.history: Any = None

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        """Start CUDA under the trial's settings; whatever happens inside, tell what the allocator saw."""
        if not torch.cuda.is_available():
            self.report.tell(outcome="unsupported", error="torch finds no CUDA GPU in this process")
            raise NotImplementedError("torch finds no CUDA GPU in this process")
        if self.trial.allocator:
            apply_allocator(self.trial.allocator)
        self._start()
        try:
            yield
        finally:
            self.report.tell(**_final_memory(self._used))

    def _start(self) -> None:
        self._used = _UsedMemory()
        total = torch.cuda.mem_get_info()[1]  # starts the context
        properties = torch.cuda.get_device_properties(0)
        if self.trial.memory_cap_bytes is not None:
            torch.cuda.set_per_process_memory_fraction(
                fraction_for(self.trial.memory_cap_bytes, properties.total_memory)
            )
        torch.empty(1, device="cuda")
        self._used.find(f"GPU-{properties.uuid}")
        self.report.tell(
            gpu=properties.name,
            capability=[properties.major, properties.minor],
            capacity_bytes=total,
            torch_version=torch.__version__,
            cuda_version=torch.version.cuda,
            context_bytes=self._used() - torch.cuda.memory_reserved(),
            allocator_settings=self.trial.allocator or from_environment(),
            **self._used.driver(),
        )

    def go(self, function: Callable[..., Any], knobs: dict[str, Any]) -> None:
        torch.manual_seed(self.trial.seed)
        if self.trial.trace_folder is not None:
            from vramcast.probing.history import History

            self.history = History()
            self.history.start()
            self.report.tell(notes=[TRACED])
        step = self._build(function, knobs)
        self._steps(step)
        if self.history is not None:
            self.report.phase("trace")
            events, snapshot = self.history.finish()
            write_trace(self.trial, self.report.facts, events, snapshot)

    def _build(self, function: Callable[..., Any], knobs: dict[str, Any]) -> Callable[[], Any]:
        self.report.phase("build")
        apply_switches(self.trial.switches)
        started = time.perf_counter()
        ownership = Ownership(lambda _: 0)
        try:
            step = check_step(function(**knobs))
        finally:
            ownership.close()
        apply_switches(self.trial.switches)
        self.report.tell(switches=switches_in_force())
        torch.cuda.synchronize()
        self.report.tell(
            build_seconds=time.perf_counter() - started,
            num_parameters=ownership.num_parameters(),
            build=_peaks(),
        )
        return step

    def _steps(self, step: Callable[[], Any]) -> None:
        clock = _Clock(self.report, self.trial.warmup_steps + self.trial.measure_steps)
        try:
            self._timed_steps(step, clock)
        finally:
            with contextlib.suppress(
                RuntimeError
            ):  # steps that ended before one that failed are kept; a broken context answers nothing
                clock.drain()

    def _timed_steps(self, step: Callable[[], Any], clock: _Clock) -> None:
        self.report.phase("warm-up")
        for index in range(self.trial.warmup_steps):
            self._mark(index)
            clock.time(step, warm=False)
            if index == 0:
                self.report.tell(first_step=_peaks())
        clock.drain()
        self.report.tell(cold=_peaks())
        torch.cuda.reset_peak_memory_stats()
        self.report.phase("measure")
        started = time.perf_counter()
        for index in range(self.trial.measure_steps):
            self._mark(self.trial.warmup_steps + index)
            clock.time(step, warm=True)
            if index == 0 and not self.trial.warmup_steps:
                self.report.tell(first_step=_peaks())
        clock.drain()
        self.report.tell(
            wall_seconds=time.perf_counter() - started, clock="cuda_events", warm=_peaks()
        )

    def _mark(self, index: int) -> None:
        if self.history is not None:
            self.history.mark_step(index + 1)


class _Clock:
    """Times steps on the device and fetches their losses through pinned memory, so that neither makes the host wait."""

    def __init__(self, report: Reporter, num_steps: int) -> None:
        self._report, self._num_steps = report, num_steps
        self._pending: deque[tuple[Any, Any, bool, Callable[[], float | None]]] = deque()
        self._losses: torch.Tensor | None = None
        self._count = 0

    def time(self, step: Callable[[], Any], *, warm: bool) -> None:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        loss = self._copy(step())
        end.record()
        self._pending.append((start, end, warm, loss))
        while self._pending and self._pending[0][1].query():
            self._tell(*self._pending.popleft())

    def drain(self) -> None:
        """Step by step: the host may be many steps ahead, and each that ends is a sign of life."""
        while self._pending:
            self._pending[0][1].synchronize()
            self._tell(*self._pending.popleft())
        torch.cuda.synchronize()

    def _tell(self, start: Any, end: Any, warm: bool, loss: Callable[[], float | None]) -> None:
        self._report.step(warm=warm, seconds=start.elapsed_time(end) / 1e3, loss=loss())

    def _copy(self, loss: Any) -> Callable[[], float | None]:
        """How to read the loss once the device has got there. The tensor itself is let go: the next step must find its memory free."""
        if not isinstance(loss, torch.Tensor):
            value = float(loss) if isinstance(loss, numbers.Real) else None
            return lambda: value
        if loss.numel() != 1 or loss.is_complex():
            return lambda: None
        if self._losses is None or self._losses.dtype != loss.dtype:
            self._losses, self._count = (
                torch.empty(min(self._num_steps, MOST_LOSSES), dtype=loss.dtype, pin_memory=True),
                0,
            )
        place = self._losses[self._count % len(self._losses)]
        self._count += 1
        place.copy_(loss.detach().reshape(()), non_blocking=True)
        return lambda: float(place)


class _UsedMemory:
    """GPU memory in use by this process, allocator and all. Made before CUDA starts: where the driver does not list processes (in
    containers), it is what the whole GPU's use has grown by since."""

    def __init__(self) -> None:
        self._before = {state.uuid: state.used_bytes for state in nvml.gpu_states()}
        self._uuid = ""
        self.source = ""

    def find(self, uuid: str) -> None:
        """CUDA has started on this GPU."""
        self._uuid = uuid
        seen = nvml.used_bytes(uuid, os.getpid()) if uuid in self._before else None
        self.source = seen[1] if seen else "mem_get_info"

    def driver(self) -> dict[str, str]:
        states = [state for state in nvml.gpu_states() if state.uuid == self._uuid]
        return (
            {"driver_version": states[0].driver_version, "driver_model": states[0].driver_model}
            if states
            else {}
        )

    def __call__(self) -> int:
        if self.source != "mem_get_info":
            seen = nvml.used_bytes(self._uuid, os.getpid())
            assert seen is not None
            return seen[0] if self.source == "process" else seen[0] - self._before[self._uuid]
        free, total = torch.cuda.mem_get_info()
        return total - free


def fraction_for(cap_bytes: int, total_bytes: int) -> float:
    """The fraction torch turns back into exactly this many bytes (it multiplies and cuts off)."""
    fraction = min(cap_bytes / total_bytes, 1.0)
    while fraction < 1.0 and int(fraction * total_bytes) < cap_bytes:
        fraction = math.nextafter(fraction, 2.0)
    return fraction


def _peaks() -> dict[str, int]:
    return {
        "allocated_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
    }


def _final_memory(used: _UsedMemory) -> dict[str, Any]:
    """At the end, or where it broke off: an out-of-memory error leaves the allocator and these numbers intact."""
    with contextlib.suppress(
        Exception
    ):  # a broken context answers nothing, and must not hide why it broke
        stats = torch.cuda.memory_stats()
        return {
            "last": _peaks(),
            "num_alloc_retries": stats["num_alloc_retries"],
            "outside_bytes": used() - torch.cuda.memory_reserved(),
            "process_source": used.source,
        }
    return {}


def write_trace(
    trial: Trial, facts: dict[str, Any], events: list[Any], snapshot: dict[str, Any]
) -> None:
    from vramcast.tracing.files import from_rows, write_files

    assert trial.trace_folder is not None
    trace = from_rows(
        events,
        source="measured",
        workload=trial.workload,
        knobs=facts["knobs"],
        gpu=facts["gpu"],
        torch_version=torch.__version__,
        allocator_settings=facts["allocator_settings"],
    )
    write_files(
        Path(trial.trace_folder), trace, snapshot, force=True
    )  # the run's folder was checked before the run
