"""One simulated run in this process: build the workload on the simulated GPU, do a few steps, describe what happened."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any

from vramcast.errors import WorkloadError
from vramcast.simulate.device import Allocation, Device
from vramcast.simulate.target import SimulatedGpu
from vramcast.tracing.simulated import AllocationDetail, Trace, in_canonical_order
from vramcast.tracing.work import Work
from vramcast.workload import bind_knobs, check_step, user_traceback

STEPS = 4  # the first has no optimizer state, the second allocates it, the next ones show whether memory still grows
SITE_MINIMUM_BYTES = 64 << 10
FORWARD, BACKWARD, UPDATE = range(3)
CATEGORY_OF_PHASE = {FORWARD: "activations", BACKWARD: "temporaries", UPDATE: "temporaries"}

SOLVER_OPERATORS = frozenset(
    (
        "linalg_qr",
        "geqrf",
        "linalg_householder_product",
        "linalg_cholesky_ex",
        "linalg_eigh",
        "linalg_svd",
        "linalg_lu_factor_ex",
        "linalg_inv_ex",
    )
)


class Session:
    """The simulated device with everything that has to be in place around it."""

    def __init__(
        self,
        device: Device,
        gpu: SimulatedGpu,
        workspaces: tuple[int, int],
        convolutions: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        from vramcast.simulate import kernels

        self.device, self.gpu = device, gpu
        gpu.allocated_bytes, gpu.peak_allocated_bytes, gpu.empty_cache = (
            device.allocated_bytes,
            device.peak_allocated_bytes,
            device.empty_cache,
        )
        device.set_gpu(gpu.num_multiprocessors, gpu.max_threads_per_multiprocessor, *workspaces)
        kernels.install(device.library, gpu.capability, gpu.num_multiprocessors, convolutions)
        kernels.Target.notes = gpu.notes
        _interpret_scripted_functions()
        gc.freeze()  # what the imports made stays: later collections look only at the workload's objects

    def run(
        self,
        function: Callable[..., Any],
        knobs: dict[str, Any],
        steps: int = STEPS,
        *,
        locate: bool = True,
        locate_all: bool = False,
    ) -> Trace:
        """Build with these knobs, step, and give the trace; `locate` notes where in the source large tensors are made, or all of them."""
        import torch

        from vramcast.simulate.kernels.registry import Target
        from vramcast.simulate.ownership import Ownership
        from vramcast.simulate.patches import installed
        from vramcast.simulate.sites import Sites

        self.gpu.notes.clear()
        Target.uncalibrated.clear()
        sites, ownership = Sites(), Ownership(self.device.block_id, watching=locate)
        values = bind_knobs(function, knobs)
        torch.manual_seed(0)
        with installed(self.gpu), sites.watching() if locate else nullcontext(), self.device.on():
            torch.empty(
                1, device="cuda"
            )  # the first allocation of a process makes the context and a small segment
            if locate:
                self.device.on_large_allocation(sites.here, 0 if locate_all else SITE_MINIMUM_BYTES)
            try:
                self._steps(function, values, steps, ownership)
            finally:
                self.device.on_large_allocation(lambda: -1, 1 << 62)
                ownership.close()
                trace = self._describe(sites, ownership)
                Target.kept.clear()
                gc.collect()
                self.device.reset()
        return trace

    def _steps(
        self, function: Callable[..., Any], knobs: dict[str, Any], steps: int, ownership: Any
    ) -> None:
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
                    f"The workload's {what} failed.\n{user_traceback(error)}".rstrip(),
                    "Innermost last. If this step does run on a real GPU, it is a fault of the simulated one: docs/limits.md has what is known.",
                ) from None

    def _describe(self, sites: Any, ownership: Any) -> Trace:
        import torch

        from vramcast.simulate.kernels.registry import Target

        allocations, shapes = self.device.allocations(), self.device.shapes()
        names = ownership.module_names()
        operators = {self.device.name(index) for index in {a.operator_name for a in allocations}}
        site_of_sequence = {a.sequence_number: a.site for a in allocations if a.site >= 0}
        workspace = {
            index
            for index in {a.operator_name for a in allocations}
            if self.device.name(index) == "cublas_workspace"
        }

        def category(number: int, allocation: Allocation) -> str:
            fallback = (
                "workspaces"
                if allocation.operator_name in workspace
                else CATEGORY_OF_PHASE[allocation.phase]
            )
            return str(ownership.category_of.get(number, fallback))

        categories = [category(number, a) for number, a in enumerate(allocations, 1)]

        def detail_of(number: int) -> AllocationDetail:
            a = allocations[number - 1]
            # a tensor made in the backward pass is shown where its forward pass was
            site = (
                site_of_sequence.get(a.sequence_number, -1)
                if a.site < 0 and a.phase == BACKWARD
                else a.site
            )
            source, module = _place(sites.places[site], names) if site >= 0 else ("", "")
            return AllocationDetail(
                num_bytes=a.num_bytes,
                category=categories[number - 1],
                name=ownership.name_of.get(number, ""),
                shape=tuple(shapes[a.shape_offset : a.shape_offset + a.num_dims]),
                dtype=_dtype_name(a.dtype),
                operator=self.device.name(a.operator_name),
                node=self.device.name(a.node_name),
                module=module,
                source=source,
            )

        return Trace(
            events=in_canonical_order(self.device.events()),
            sizes=[a.num_bytes for a in allocations],
            categories=categories,
            num_parameters=ownership.num_parameters(),
            notes=tuple(sorted(self.gpu.notes)),
            torch_version=torch.__version__,
            detail_of=detail_of,
            uses_libraries=any(map(_is_of_library, operators)),
            uses_solver=any(
                name.removeprefix("aten::").removeprefix("_") in SOLVER_OPERATORS
                for name in operators
            ),
            works=self._works_of_last_step(),
            uncalibrated_kernels=tuple(sorted(Target.uncalibrated)),
        )

    def _works_of_last_step(self) -> list[Work]:
        works = self.device.works()
        begin = (
            max((index for index, work in enumerate(works) if work.operator_name < 0), default=-1)
            + 1
        )
        names = {
            index: self.device.name(index).partition(".")[0]
            for index in {work.operator_name for work in works[begin:]}
        }
        return [
            Work(
                names[w.operator_name],
                w.dtype,
                w.flops,
                w.num_bytes,
                tuple(w.sizes),
                w.phase,
                w.access,
            )
            for w in works[begin:]
        ]


def _interpret_scripted_functions() -> None:
    """torch.jit frees a tensor after its last use, unlike Python: it must run; its fuser would compile for a GPU that is not there."""
    import torch

    torch._C._jit_override_can_fuse_on_gpu(False)
    torch._C._jit_set_texpr_fuser_enabled(False)


def _is_of_library(operator: str) -> bool:
    """Flash attention and cuDNN bring kernels of their own, loaded when first used."""
    return (
        "flash_attention" in operator
        or "cudnn" in operator
        or operator == "aten::convolution_backward"
    )


def _place(place: tuple[str, int, str, Any], module_names: dict[int, str]) -> tuple[str, str]:
    file, line, function, module = place
    name = "" if module is None else module_names.get(id(module), "") or type(module).__name__
    return f"{_short(file)}:{line} in {function}", name


@cache
def _short(path: str) -> str:
    """Of an installed package from its own name on: where it is installed is long, and known."""
    relative = os.path.relpath(path)
    return (
        path.rpartition("site-packages/")[2]
        if "site-packages/" in path
        else relative
        if not relative.startswith("..")
        else path
    )


_DTYPES = (
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex32",
    "complex64",
    "complex128",
    "bool",
)


def _dtype_name(number: int) -> str:
    """torch's own numbering of types; the rare ones beyond are shown by number."""
    if number < 0:
        return "bytes"
    return {15: "bfloat16", 23: "float8_e5m2", 24: "float8_e4m3fn"}.get(number) or (
        _DTYPES[number] if number < len(_DTYPES) else f"type {number}"
    )
