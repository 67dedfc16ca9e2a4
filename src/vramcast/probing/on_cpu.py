"""A trial on the CPU: times, losses and the memory of its tensors."""

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from vramcast.probing.cuda_on_cpu import cuda_means_cpu
from vramcast.probing.facts import Phase, Reporter
from vramcast.probing.on_gpu import Clock, GpuRun, Step
from vramcast.probing.trial import Trial
from vramcast.records.measurement import Memory

NOT_A_GPU = (
    "run on the CPU: memory is that of the tensors, without a caching allocator, "
    "and times are the CPU's"
)


class CpuRun(GpuRun):
    def __init__(self, trial: Trial, report: Reporter) -> None:
        super().__init__(trial, report)
        self._tensors = TensorMemory()

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        self.report.tell(torch_version=torch.__version__, notes=[NOT_A_GPU])
        try:
            with cuda_means_cpu():
                yield
        except BaseException:
            self.report.tell(last=self.peaks())  # the memory up to the failure
            raise

    def watched(self, call: Step) -> Step:
        def watched() -> Any:
            with self._tensors:
                return call()

        return watched

    def peaks(self) -> Memory:
        peak = self._tensors.peak_bytes
        return Memory(allocated_bytes=peak, reserved_bytes=peak)

    def _steps(self, step: Step, clock: Clock) -> None:
        super()._steps(step, clock)
        if self.trial.warmup_steps == 0:
            # the first step was measured, so its memory was not counted
            self.report.tell(first_step=None)
        # Memory is counted in two more steps, because counting is slow. The first sees the tensors
        # that the measured steps left, so that the second counts them all.
        self.report.tell(phase=Phase.MEMORY)
        with self._tensors:
            step()
            self._tensors.peak_bytes = self._tensors.now_bytes
            step()
        self.report.tell(warm=self.peaks())


class TensorMemory(TorchDispatchMode):
    """Counts the bytes of all tensor storages seen in this mode, until they are freed."""

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
