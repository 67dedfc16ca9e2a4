"""Inductor's code runs on the simulated GPU; its Triton kernels do nothing but note their work.

Why: there is no GPU to compile them for and launch them on. Everything else stays Inductor's own:
which buffers its code takes and frees, how many configurations a kernel has, and what it allocates
to time them at the first launch. What it writes for a later run is kept in a folder of our own,
without the timings, which a first run on a GPU does not have.
Versions: torch 2.10 to 2.15.
"""

from __future__ import annotations

import ctypes
import importlib
import math
import sys
from collections.abc import Sequence
from typing import Any

import torch

from vramcast.simulate.kernel_registers import registers_of
from vramcast.simulate.kernels.work import DTYPE_NUMBERS, work_of
from vramcast.simulate.patching import Patcher
from vramcast.tracing.work import GENERATED, PLAIN, STRIDED

LIBRARY = "torch._inductor.runtime.triton_heuristics"
MILLISECONDS = 1.0  # that every configuration takes: the first is chosen


def apply(patcher: Patcher) -> None:
    heuristics = sys.modules[LIBRARY]
    library = patcher.gpu.device.library

    def launcher_of(kernel: Any, config: Any) -> Any:
        kind = GENERATED if kernel.filename and not kernel.custom_kernel else "triton::"
        name = f"{kind}{kernel.fn.__name__}".encode()
        is_changed = [name in kernel.mutated_arg_names for name in kernel.fn.arg_names]
        # tiles of two dimensions are for tensors that lie across each other
        access = STRIDED if "ynumel" in kernel.fn.arg_names else PLAIN

        def launch(*arguments: Any, stream: int = 0, **options: Any) -> None:
            if kind == GENERATED:
                library.vramcast_add_work(name, *_work(arguments, is_changed), access)
            else:
                everything = (*arguments, *options.values())
                library.vramcast_add_work(name, *work_of("triton", everything, {}, None))

        launch.config = config
        launch.cache_hash, launch.store_cubin = "", False
        launch.n_regs = launch.n_spills = launch.shared = 0
        return launch

    class Compiled:
        """A configuration of a kernel."""

        def __init__(self, autotuner: Any, config: Any) -> None:
            self.kernel, self.config, self._autotuner = self, config, autotuner

        @property
        def n_regs(self) -> int | None:
            """Where they are many, Inductor times a smaller block too; several it times anyway."""
            if len(self._autotuner.compile_results) > 1:
                return None
            with patcher.gpu.not_counting():
                return registers_of(self._autotuner, self.config)

        def make_launcher(self) -> Any:
            return launcher_of(self._autotuner, self.config)

    def precompile(self: Any, *_: Any, **__: Any) -> None:
        if not self.launchers:
            self.compile_results = [Compiled(self, config) for config in self.configs]
            self._make_launchers()
            self._dynamic_scale_rblock()

    def make_launchers(self: Any) -> None:
        self.launchers = [result.make_launcher() for result in self.compile_results]

    def bench(self: Any, launcher: Any, *arguments: Any, **options: Any) -> float:
        """As InductorBenchmarker: once without and then with its buffer, as often as it likes."""
        before = library.vramcast_begin_kernel(b"inductor::timing")  # no work of the step
        try:
            with patcher.gpu.compiling():
                copies = self.copy_args_to_cpu_if_needed(*arguments, **options)
                self.maybe_clone_args(copies, *arguments, **options)
                buffer_bytes = torch.cuda.get_device_properties().L2_cache_size
                buffer = torch.empty(buffer_bytes // 4, dtype=torch.int, device="cuda")
                self.maybe_clone_args(copies, *arguments, **options)
                del buffer
        finally:
            library.vramcast_end_kernel(before)
        return MILLISECONDS

    def tune(self: Any, launcher: Any, *arguments: Any, **options: Any) -> Any:
        """By coordinate descent, of max-autotune: as if no neighbour were faster."""
        self.bench(launcher, *arguments, **options)
        launcher.config.found_by_coordesc = True
        return launcher

    helpers = importlib.import_module("torch._inductor.runtime.triton_helpers")
    patcher.put(helpers, "set_driver_to_gpu", lambda: None)
    autotuner = heuristics.CachingAutotuner
    patcher.put(autotuner, "precompile", precompile)
    patcher.put(autotuner, "_make_launchers", make_launchers)
    patcher.put(autotuner, "_precompile_config", lambda self, config: Compiled(self, config))
    patcher.put(autotuner, "bench", bench)
    patcher.put(autotuner, "coordinate_descent_tuning", tune)
    patcher.put(autotuner, "_build_fast_launcher", lambda self, launcher: launcher)


def _work(arguments: tuple[Any, ...], is_changed: Sequence[bool]) -> tuple[int, float, float, Any]:
    """A fused kernel goes through its tensors, and reads and writes those that it changes; its last
    arguments are the sizes of its loops, and of a tensor that it gathers from it reads no more
    elements than it makes turns."""
    turns = math.prod(size for size in arguments if isinstance(size, int))
    tensors = [t for t in arguments if isinstance(t, torch.Tensor)]
    num_bytes = sum(
        (1 + twice) * min(t.numel(), turns) * t.element_size()
        for t, twice in zip(arguments, is_changed, strict=False)
        if isinstance(t, torch.Tensor)
    )
    dtype = next((DTYPE_NUMBERS.get(t.dtype, -1) for t in tensors if t.is_floating_point()), -1)
    return dtype, 0.0, float(num_bytes), (ctypes.c_int64 * 4)(0, 0, 0, 0)
