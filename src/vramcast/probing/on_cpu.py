"""A trial on the CPU: times, losses and the memory of its tensors."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from vramcast.probing.building import Step, build_step, is_one_number, plain_loss
from vramcast.probing.cuda_on_cpu import cuda_means_cpu
from vramcast.probing.facts import Phase, Reporter
from vramcast.probing.trial import Trial
from vramcast.records.measurement import Memory

NOT_A_GPU = (
    "run on the CPU: memory is that of its tensors, there is no caching allocator, "
    "and times are the CPU's"
)


class CpuRun:
    def __init__(self, trial: Trial, report: Reporter) -> None:
        self.trial, self.report, self.facts = trial, report, report.facts
        self._memory = TensorMemory()

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        self.facts.torch_version = torch.__version__
        self.facts.notes.append(NOT_A_GPU)
        try:
            with cuda_means_cpu():
                yield
        except BaseException:
            self.facts.last = self._memory.peaks()  # how far it came
            raise

    def go(self, function: Callable[..., Any], knobs: dict[str, Any]) -> None:
        facts = self.facts
        with self._memory:
            step = build_step(self.trial, self.report, function, knobs)
        facts.build = self._memory.peaks()
        self.report.phase(Phase.WARM_UP)
        for index in range(self.trial.warmup_steps):
            with self._memory:
                self._time(step, is_measured=False)
            if index == 0:
                facts.first_step = self._memory.peaks()
                self.report.tell()
        facts.cold = self._memory.peaks()
        self.report.phase(Phase.MEASURE)
        started = time.perf_counter()
        for _ in range(self.trial.measure_steps):
            self._time(step, is_measured=True)
        facts.wall_seconds = time.perf_counter() - started
        # Of two steps more: watching every tensor would slow the measured steps down. The first
        # sees what those left (gradients, optimizer state), so all of it is counted in the second.
        self.report.phase(Phase.MEMORY)
        with self._memory:
            step()
            self._memory.reset_peak()
            step()
        facts.warm = self._memory.peaks()

    def _time(self, step: Step, *, is_measured: bool) -> None:
        started = time.perf_counter()
        loss = step()
        seconds = time.perf_counter() - started
        value = float(loss) if is_one_number(loss) else plain_loss(loss)
        self.report.step(is_measured, seconds, value)


class TensorMemory(TorchDispatchMode):
    """Bytes of all tensor storages made while it watches, until they die."""

    def __init__(self) -> None:
        super().__init__()
        self._alive: dict[int, int] = {}
        self.now_bytes = self.peak_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, kwargs, result)):
            if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and leaf.is_cpu:
                self._saw(leaf.untyped_storage())
        return result

    def _saw(self, storage: torch.UntypedStorage) -> None:
        key, num_bytes = storage._cdata, storage.nbytes()
        if key not in self._alive:
            weakref.finalize(storage, self._gone, key)
        self.now_bytes += num_bytes - self._alive.get(key, 0)  # a storage can be resized
        self._alive[key] = num_bytes
        self.peak_bytes = max(self.peak_bytes, self.now_bytes)

    def _gone(self, key: int) -> None:
        self.now_bytes -= self._alive.pop(key)

    def reset_peak(self) -> None:
        self.peak_bytes = self.now_bytes

    def peaks(self) -> Memory:
        return Memory(allocated_bytes=self.peak_bytes, reserved_bytes=self.peak_bytes)
