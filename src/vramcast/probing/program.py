"""A trial of a whole program, by the line that starts it.

The same rule as in a simulation says when enough was seen. CUDA starts when the program starts it,
so variables that the program sets before that, such as PYTORCH_ALLOC_CONF, take effect.
"""

import contextlib
import os
import sys
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn, Protocol

import torch
from torch.nn.modules import module as nn_module

from vramcast.allocator.settings import VARIABLES
from vramcast.errors import UsageError
from vramcast.probing.cuda_on_cpu import cuda_means_cpu
from vramcast.probing.facts import Phase, Reporter
from vramcast.probing.on_cpu import NOT_A_GPU, CpuRun
from vramcast.probing.on_gpu import TRACED, Clock, GpuRun, recorded_event
from vramcast.probing.phase_peaks import NOTHING, PhasePeaks, has_started, larger
from vramcast.probing.trial import Trial
from vramcast.programs.program_run import ProgramRun, counts
from vramcast.programs.settling import Memory as WatchedMemory
from vramcast.records.measurement import Device, Memory, MemoryOf, Outcome
from vramcast.records.phases import Phase as SeenPhase
from vramcast.records.phases import PhaseName
from vramcast.simulate.session import OUT_OF_MEMORY_NOTE
from vramcast.workload.launch_line import Program
from vramcast.workload.switches import apply_switches, switches_in_force

WATCHED = "every tensor was counted, which makes the steps slower"
# the real function, because a program may replace it
_exit = os._exit


class _OnDevice(Protocol):
    """The GPU here, or the CPU in its place."""

    history: Any

    def around(self) -> contextlib.AbstractContextManager[None]: ...

    def allocated_bytes(self) -> int: ...

    def peak_allocated_bytes(self) -> int: ...

    def take_peaks(self) -> Memory:
        """The peaks since the last call."""

    def now(self) -> Any:
        """An event of the device now. None where it cannot have one."""

    def has_been_used(self) -> bool: ...

    def num_out_of_memory(self) -> int: ...

    def tell_end(self) -> None: ...

    def write_history(self) -> None: ...


class _OnGpu(GpuRun):
    def __init__(self, trial: Trial, report: Reporter) -> None:
        super().__init__(trial, report)
        self._peaks = PhasePeaks()

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        if self.trial.allocator is not None:
            for name in VARIABLES:
                os.environ.pop(name, None)
            os.environ[VARIABLES[0]] = self.trial.allocator
        self.prepare()
        torch.cuda._lazy_call(self.start)  # type: ignore[no-untyped-call]
        with self.telling_end(), self._peaks.unnoticed():
            yield

    def start(self) -> None:
        """Called when the program starts CUDA."""
        super().start()
        if self.trial.trace_folder is not None:
            self.start_history()

    def allocated_bytes(self) -> int:
        return torch.cuda.memory_allocated() if has_started() else 0

    def peak_allocated_bytes(self) -> int:
        return self._peaks.of_run().allocated_bytes

    def take_peaks(self) -> Memory:
        return self._peaks.take()

    def peaks(self) -> Memory:
        return self._peaks.of_run()

    def now(self) -> Any:
        if not has_started() or torch.cuda.is_current_stream_capturing():
            return None
        return recorded_event()

    def has_been_used(self) -> bool:
        # the first allocation is made when CUDA starts
        return has_started() and torch.cuda.memory_stats()["allocation.all.allocated"] > 1

    def num_out_of_memory(self) -> int:
        return int(torch.cuda.memory_stats().get("num_ooms", 0))

    def write_history(self) -> None:
        if self.history is not None:
            self.report.tell(phase=Phase.TRACE)
            self.finish_history()


class _OnCpu(CpuRun):
    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        self.report.tell(torch_version=torch.__version__)
        self._of_run = NOTHING
        with cuda_means_cpu(), self._tensors:
            yield

    def allocated_bytes(self) -> int:
        return self._tensors.now_bytes

    def peak_allocated_bytes(self) -> int:
        return larger(self._of_run, self.peaks()).allocated_bytes

    def take_peaks(self) -> Memory:
        peaks = self.peaks()
        self._of_run = larger(self._of_run, peaks)
        self._tensors.peak_bytes = self._tensors.now_bytes
        return peaks

    def now(self) -> Any:
        return recorded_event()

    def has_been_used(self) -> bool:
        return True

    def num_out_of_memory(self) -> int:
        return 0

    def tell_end(self) -> None: ...

    def write_history(self) -> None: ...


class MeasuredProgram(ProgramRun):
    def __init__(self, trial: Trial, report: Reporter, program: Program, scratch: Path) -> None:
        super().__init__(
            program, scratch, steps=trial.num_steps, whole=trial.whole, stdin=trial.stdin
        )
        self._trial, self._report = trial, report
        is_cpu = trial.device == Device.CPU
        self._device: _OnDevice = (_OnCpu if is_cpu else _OnGpu)(trial, report)
        self._clock = Clock(report, 1)
        self._phase = PhaseName.BUILD
        self._peaks: dict[PhaseName, Memory] = {}
        # the end of the last step, if nothing else came after it
        self._step_began: Any = None
        self._num_begun = 0
        self._started = time.perf_counter()
        # by id, because tensors compare by value, and one may belong to several modules
        self._parameters: dict[int, weakref.ref[Any]] = {}

    @contextlib.contextmanager
    def around(self) -> Iterator[WatchedMemory]:
        with self._device.around():
            self._report.tell(phase=Phase.BUILD)
            apply_switches(self._trial.switches)
            hook = nn_module.register_module_parameter_registration_hook(self._saw_parameter)
            try:
                yield self._device
            finally:
                hook.remove()

    def _saw_parameter(self, module: Any, name: str, parameter: Any) -> None:
        if parameter is not None:
            self._parameters[id(parameter)] = weakref.ref(parameter)

    def begin(self, phase: PhaseName) -> None:
        self._note_peaks()
        self._phase = phase
        self._num_begun += 1
        if self._device.history is not None:
            self._device.history.mark_step(self._num_begun)
        if phase is not PhaseName.TRAIN:
            self._step_began = None
            self._report.tell(phase=Phase(phase))
            return
        if self.watcher.num_steps == 0 and self._step_began is None:
            self._step_began = self._device.now()
            self._report.tell(build_seconds=time.perf_counter() - self._started)
        is_warm = self.watcher.num_steps >= self._trial.warmup_steps
        self._report.tell(phase=Phase.MEASURE if is_warm else Phase.WARM_UP)

    def end_step(self) -> None:
        ended = self._device.now()
        if self._step_began is not None and ended is not None:
            is_measured = self.watcher.num_steps > self._trial.warmup_steps
            self._clock.add(self._step_began, ended, is_measured)
        self._step_began = ended

    def _note_peaks(self) -> None:
        before = self._peaks.get(self._phase, NOTHING)
        self._peaks[self._phase] = larger(before, self._device.take_peaks())
        seen = counts(self.watcher)
        self._report.tell(
            phases=[
                SeenPhase(
                    name=name,
                    num_steps=seen.get(name, 0),
                    peak_allocated_bytes=peaks.allocated_bytes,
                    peak_reserved_bytes=peaks.reserved_bytes,
                )
                for name, peaks in self._peaks.items()
            ]
        )

    def has_used_gpu(self) -> bool:
        return self._device.has_been_used()

    def launched(self, program: Program) -> Program:
        if program.world_size > 1:
            raise UsageError(
                f"The program starts {program.world_size} processes, and probe runs one.",
                "Let it start one, or use vramcast predict, which simulates several.",
            )
        return program

    def describe(self, remarks: list[str]) -> None:
        # a broken context answers nothing
        with contextlib.suppress(RuntimeError):
            self._clock.drain()
        self._note_peaks()
        if self._device.num_out_of_memory():
            remarks = [*remarks, OUT_OF_MEMORY_NOTE]
        if self._trial.device == Device.CPU:
            remarks = [NOT_A_GPU, WATCHED, *remarks]
        elif self._trial.trace_folder is not None:
            remarks = [TRACED, *remarks]
        self._report.tell(
            notes=remarks,
            switches=switches_in_force(),
            num_parameters=self._num_parameters(),
        )
        self._device.tell_end()
        self._device.write_history()
        self._report.tell(outcome=Outcome.OK)

    def _num_parameters(self) -> int:
        alive = [reference() for reference in self._parameters.values()]
        return sum(parameter.numel() for parameter in alive if parameter is not None)

    def deliver(self) -> NoReturn:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        _exit(0)

    def failed(self, what: str, advice: str, error: BaseException | None = None) -> NoReturn:
        self._report.tell(failed_at_seconds=time.monotonic())
        with contextlib.suppress(RuntimeError):
            self._clock.drain()
            self._note_peaks()
        if error is not None:
            raise error
        is_short = self._device.num_out_of_memory() > 0
        self._device.tell_end()
        self._report.tell(
            outcome=Outcome.OUT_OF_MEMORY if is_short else Outcome.CRASHED,
            out_of_memory_on=MemoryOf.GPU if is_short else None,
            error=f"{what} It had run out of GPU memory." if is_short else what,
        )
        self.deliver()
