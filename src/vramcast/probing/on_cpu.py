"""A trial on the CPU: the same step, its time, its losses and the memory of its tensors, on a machine without a GPU."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from vramcast.probing.cuda_on_cpu import cuda_means_cpu
from vramcast.probing.facts import Phase, Reporter
from vramcast.probing.trial import Trial
from vramcast.records.measurement import Clock, Memory
from vramcast.simulate.ownership import Ownership
from vramcast.workload import check_step
from vramcast.workload.switches import apply_switches, switches_in_force


class CpuRun:
    def __init__(self, trial: Trial, report: Reporter) -> None:
        self.trial, self.report = trial, report
        self._memory = TensorMemory()

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        self.report.facts.torch_version = torch.__version__
        self.report.facts.notes.append(NOT_A_GPU)
        try:
            with cuda_means_cpu():
                yield
        except BaseException:
            self.report.facts.last = self._memory.peaks()  # how far it came
            raise

    def go(self, function: Callable[..., Any], knobs: dict[str, Any]) -> None:
        torch.manual_seed(self.trial.seed)
        step = self._build(function, knobs)
        self.report.phase(Phase.WARM_UP)
        for index in range(self.trial.warmup_steps):
            self._time(step, is_measured=False)
            if index == 0:
                self.report.facts.first_step = self._memory.peaks()
                self.report.tell()
        self.report.facts.cold = self._memory.peaks()
        self.report.phase(Phase.MEASURE)
        started = time.perf_counter()
        for _ in range(self.trial.measure_steps):
            self._time(step, is_measured=True)
        self.report.facts.wall_seconds = time.perf_counter() - started
        self.report.facts.clock = Clock.PERF_COUNTER
        self.report.facts.warm = self._warm_memory(step)

    def _warm_memory(self, step: Callable[[], Any]) -> Memory:
        """Of steps of their own: watching every tensor takes time that is not the step's. The first sees what the measured steps left
        (gradients, optimizer state) when it is used, so that the second starts with all of it counted."""
        self.report.phase(Phase.MEMORY)
        with self._memory:
            step()
            self._memory.reset_peak()
            step()
        return self._memory.peaks()

    def _build(self, function: Callable[..., Any], knobs: dict[str, Any]) -> Callable[[], Any]:
        self.report.phase(Phase.BUILD)
        apply_switches(self.trial.switches)
        started = time.perf_counter()
        ownership = Ownership(lambda _: 0)
        try:
            with self._memory:
                step = check_step(function(**knobs))
        finally:
            ownership.close()
        apply_switches(self.trial.switches)
        facts = self.report.facts
        facts.switches = switches_in_force()
        facts.build_seconds = time.perf_counter() - started
        facts.num_parameters = ownership.num_parameters()
        facts.build = self._memory.peaks()
        return step

    def _time(self, step: Callable[[], Any], *, is_measured: bool) -> None:
        started = time.perf_counter()
        with contextlib.nullcontext() if is_measured else self._memory:
            loss = step()
        seconds = time.perf_counter() - started
        self.report.step(is_measured=is_measured, seconds=seconds, loss=_number(loss))


NOT_A_GPU = "run on the CPU: memory is that of its tensors, there is no caching allocator, and times are the CPU's"


def _number(loss: Any) -> float | None:
    if isinstance(loss, torch.Tensor):
        return float(loss) if loss.numel() == 1 and not loss.is_complex() else None
    return float(loss) if isinstance(loss, Real) else None  # numpy's numbers too


class TensorMemory(TorchDispatchMode):
    """Bytes of all tensor storages made while it watches, until they die."""

    def __init__(self) -> None:
        super().__init__()
        self._alive: dict[int, int] = {}
        self._references: dict[int, Any] = {}
        self.now_bytes = self.peak_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, kwargs, result)):
            if (
                isinstance(leaf, torch.Tensor)
                and leaf.layout is torch.strided
                and leaf.device.type == "cpu"
            ):
                self._saw(leaf.untyped_storage())
        return result

    def _saw(self, storage: torch.UntypedStorage) -> None:
        key, num_bytes = storage._cdata, storage.nbytes()
        if key not in self._alive:
            self._references[key] = weakref.ref(storage, lambda _: self._gone(key))
        self.now_bytes += num_bytes - self._alive.get(key, 0)  # a storage can be resized
        self._alive[key] = num_bytes
        self.peak_bytes = max(self.peak_bytes, self.now_bytes)

    def _gone(self, key: int) -> None:
        self.now_bytes -= self._alive.pop(key, 0)
        self._references.pop(key, None)

    def reset_peak(self) -> None:
        self.peak_bytes = self.now_bytes

    def peaks(self) -> Memory:
        return Memory(allocated_bytes=self.peak_bytes, reserved_bytes=self.peak_bytes)
