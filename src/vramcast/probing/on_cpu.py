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

from vramcast.probing.redirect import cuda_means_cpu
from vramcast.probing.trial import Trial
from vramcast.probing.worker import Reporter
from vramcast.simulate.ownership import Ownership
from vramcast.workload import check_step
from vramcast.workload.switches import apply_switches, switches_in_force


class CpuRun:
    def __init__(self, trial: Trial, report: Reporter) -> None:
        self.trial, self.report = trial, report
        self._memory = TensorMemory()

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        self.report.tell(torch_version=torch.__version__, notes=[NOT_A_GPU])
        try:
            with cuda_means_cpu():
                yield
        except BaseException:
            self.report.tell(last=self._memory.peaks())  # how far it came
            raise

    def go(self, function: Callable[..., Any], knobs: dict[str, Any]) -> None:
        torch.manual_seed(self.trial.seed)
        step = self._build(function, knobs)
        self.report.phase("warm-up")
        for index in range(self.trial.warmup_steps):
            self._time(step, warm=False, tracked=True)
            if index == 0:
                self.report.tell(first_step=self._memory.peaks())
        self.report.tell(cold=self._memory.peaks())
        self.report.phase("measure")
        started = time.perf_counter()
        for _ in range(self.trial.measure_steps):
            self._time(step, warm=True, tracked=False)
        self.report.tell(wall_seconds=time.perf_counter() - started, clock="perf_counter")
        self.report.tell(warm=self._warm_memory(step))

    def _warm_memory(self, step: Callable[[], Any]) -> dict[str, int]:
        """Of steps of their own: watching every tensor takes time that is not the step's. The first sees what the measured steps left
        (gradients, optimizer state) when it is used, so that the second starts with all of it counted."""
        self.report.phase("memory")
        with self._memory:
            step()
            self._memory.reset_peak()
            step()
        return self._memory.peaks()

    def _build(self, function: Callable[..., Any], knobs: dict[str, Any]) -> Callable[[], Any]:
        self.report.phase("build")
        apply_switches(self.trial.switches)
        started = time.perf_counter()
        ownership = Ownership(lambda _: 0)
        try:
            with self._memory:
                step = check_step(function(**knobs))
        finally:
            ownership.close()
        apply_switches(self.trial.switches)
        self.report.tell(switches=switches_in_force())
        self.report.tell(
            build_seconds=time.perf_counter() - started,
            num_parameters=ownership.num_parameters(),
            build=self._memory.peaks(),
        )
        return step

    def _time(self, step: Callable[[], Any], *, warm: bool, tracked: bool) -> None:
        started = time.perf_counter()
        with self._memory if tracked else contextlib.nullcontext():
            loss = step()
        seconds = time.perf_counter() - started
        self.report.step(warm=warm, seconds=seconds, loss=_number(loss))


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

    def peaks(self) -> dict[str, int]:
        return {"allocated_bytes": self.peak_bytes, "reserved_bytes": self.peak_bytes}
