"""One simulated run in this process: build the workload on the simulated GPU, do a few steps, describe what happened."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Callable
from typing import Any

from vramcast.errors import WorkloadError
from vramcast.simulate.device import Allocation, Device
from vramcast.simulate.target import SimulatedGpu
from vramcast.simulate.trace import AllocationDetail, Trace
from vramcast.workload import bind_knobs, check_step, user_traceback

STEPS = 4  # the first has no optimizer state, the second allocates it, the next ones show whether memory still grows
SITE_MINIMUM_BYTES = 64 << 10
UPDATE = 2
CATEGORY_OF_PHASE = {0: "activations", 1: "temporaries", UPDATE: "temporaries"}
PHASE_NAMES = {0: "forward", 1: "backward", UPDATE: "update"}


class Session:
    """The simulated device with everything that has to be in place around it."""

    def __init__(self, device: Device, gpu: SimulatedGpu, workspaces: tuple[int, int]) -> None:
        from vramcast.simulate import kernels

        self.device, self.gpu = device, gpu
        gpu.allocated_bytes, gpu.peak_allocated_bytes, gpu.empty_cache = device.allocated_bytes, device.peak_allocated_bytes, device.empty_cache
        device.set_gpu(gpu.num_multiprocessors, gpu.max_threads_per_multiprocessor, *workspaces)
        kernels.install(device.library, gpu.capability, gpu.num_multiprocessors)
        kernels.Target.notes = gpu.notes

    def run(self, function: Callable[..., Any], knobs: dict[str, Any], steps: int = STEPS) -> Trace:
        """Build with these knobs, step, and give the trace."""
        import torch

        from vramcast.simulate.ownership import Ownership
        from vramcast.simulate.patches import installed
        from vramcast.simulate.sites import Sites

        self.gpu.notes.clear()
        sites, ownership = Sites(), Ownership(self.device.block_id)
        values = bind_knobs(function, {}, knobs)
        torch.manual_seed(0)
        with installed(self.gpu), self.device.on():
            torch.empty(1, device="cuda")  # the first allocation of a process makes the context and a small segment
            self.device.on_large_allocation(sites.here, SITE_MINIMUM_BYTES)
            try:
                self._steps(function, values, steps, ownership)
            finally:
                self.device.on_large_allocation(lambda: -1, 1 << 62)
                ownership.close()
                trace = self._describe(sites, ownership)
                gc.collect()
                self.device.reset()
        return trace

    def _steps(self, function: Callable[..., Any], knobs: dict[str, Any], steps: int, ownership: Any) -> None:
        from vramcast.simulate.patches import patch_triton

        patch_triton(self.gpu.note)
        step = check_step(self._user_code(lambda: function(**knobs), "build"))
        patch_triton(self.gpu.note)
        ownership.look()
        for _ in range(steps):
            self.device.mark()
            self._user_code(step, "step")
            ownership.look()
        if self.device.peak_allocated_bytes() <= 512:
            raise WorkloadError(
                "The step never allocates anything on the GPU.",
                'Build the model and its inputs on the device "cuda": model.cuda(), torch.randn(..., device="cuda").',
            )

    def _user_code(self, call: Callable[[], Any], what: str) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return call()
            except WorkloadError:
                raise
            except Exception as error:
                raise WorkloadError(
                    f"The workload's {what} failed: {type(error).__name__}: {error}\n{user_traceback(error)}".rstrip(),
                    "The lines above are yours, innermost last. The same code should run on a real GPU.",
                ) from None

    def _describe(self, sites: Any, ownership: Any) -> Trace:
        import torch

        allocations = self.device.allocations()
        categories = [self._category(number, a, ownership) for number, a in enumerate(allocations, 1)]
        details = {}
        # the largest tensors of each moment are among the largest of all
        largest = sorted(range(len(allocations)), key=lambda i: -allocations[i].num_bytes)[:2000]
        seen_by_sequence = {a.sequence_number: a.site for a in allocations if a.site >= 0}
        for index in largest:
            details[index + 1] = self._detail(index + 1, allocations[index], categories[index], sites, ownership, seen_by_sequence)
        return Trace(
            events=self.device.events(),
            sizes=[a.num_bytes for a in allocations],
            categories=categories,
            num_parameters=ownership.num_parameters(),
            notes=tuple(sorted(self.gpu.notes)),
            torch_version=torch.__version__,
            details=details,
        )

    def _category(self, number: int, allocation: Allocation, ownership: Any) -> str:
        owned: str | None = ownership.category_of.get(number)
        if owned:
            return owned
        if self.device.name(allocation.operator_name) == "cublas_workspace":
            return "workspaces"
        return CATEGORY_OF_PHASE[allocation.phase]

    def _detail(self, number: int, allocation: Allocation, category: str, sites: Any, ownership: Any, by_sequence: dict[int, int]) -> AllocationDetail:
        site = allocation.site if allocation.site >= 0 else by_sequence.get(allocation.sequence_number, -1)
        source = module = ""
        if site >= 0:
            file, line, function, owner = sites.places[site]
            source = f"{_short(file)}:{line} in {function}"
            module = ownership.module_name(owner) if owner is not None else ""
        operator = self.device.name(allocation.operator_name)
        if allocation.node_name >= 0:
            operator = f"{operator} ({self.device.name(allocation.node_name)})"
        return AllocationDetail(
            num_bytes=allocation.num_bytes,
            category=category,
            name=ownership.name_of.get(number, ""),
            shape=self.device.shape(allocation),
            dtype=_dtype_name(allocation.dtype),
            operator=operator,
            module=module,
            source=source,
        )


def _short(path: str) -> str:
    relative = os.path.relpath(path)
    return relative if not relative.startswith("..") else path


_DTYPES = ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32", "complex64", "complex128", "bool")


def _dtype_name(number: int) -> str:
    """torch's own numbering of types; the rare ones beyond are shown by number."""
    if number < 0:
        return "bytes"
    return {15: "bfloat16", 23: "float8_e5m2", 24: "float8_e4m3fn"}.get(number) or (_DTYPES[number] if number < len(_DTYPES) else f"type {number}")
