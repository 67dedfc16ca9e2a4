"""Inductor's code runs on the simulated GPU; its Triton kernels do nothing but note their work.

Why: there is no GPU to launch them on. Everything else stays Inductor's own: which buffers its code
takes and frees, how many configurations a kernel has, and what it allocates to time them at the
first launch.
"""

import importlib
import sys
from typing import Any

import torch

from vramcast.hardware.gpus import Gpu
from vramcast.simulate.flex_attention import flex_attention_work, is_flex_attention
from vramcast.simulate.fused.by_hand import ByHand
from vramcast.simulate.fused.works import FusedKernel, Work, unless_it_fails
from vramcast.simulate.gpu import SimulatedGpu
from vramcast.simulate.kernel_resources import resources_of
from vramcast.simulate.kernels.work import work_of
from vramcast.simulate.patching import Patcher
from vramcast.tracing.work import GENERATED, JIT, PLAIN, STRIDED

LIBRARY = "torch._inductor.runtime.triton_heuristics"
MILLISECONDS = 1.0  # assumed for every configuration, so that the first is chosen


def apply(patcher: Patcher) -> None:
    heuristics = sys.modules[LIBRARY]
    library = patcher.gpu.device.library

    class Compiled:
        def __init__(self, autotuner: Any, config: Any) -> None:
            self.kernel, self.config, self._autotuner = self, config, autotuner

        @property
        def n_regs(self) -> int | None:
            """The registers of the only configuration. Where these are many, Inductor times a
            smaller block too. None for several configurations, which it times anyway."""
            if len(self._autotuner.compile_results) > 1:
                return None
            with patcher.gpu.not_counting():
                found = resources_of(self._autotuner, self.config)
            return found and found.registers

        def make_launcher(self) -> Any:
            with patcher.gpu.not_counting():
                _check_shared_memory(self._autotuner, self.config)
            return _launcher(self._autotuner, self.config, patcher.gpu)

    def precompile(self: Any, *_: Any, **__: Any) -> None:
        if not self.launchers:
            descends = self.inductor_meta.get("coordinate_descent_tuning")
            self.is_best_kept = len(self.configs) > 1 or descends  # as check_autotune_cache has it
            self.compile_results = [Compiled(self, config) for config in self.configs]
            self._make_launchers()
            self._dynamic_scale_rblock()

    def bench(self: Any, launcher: Any, *arguments: Any, **options: Any) -> float:
        """Allocates what Inductor's benchmark_gpu allocates. Of a kernel that it gave one
        configuration, and that is timed only because that has many registers, Inductor's cache
        does not keep which one is best: every process times it again."""
        before = library.vramcast_begin_kernel(b"inductor::timing")  # no work of the step
        try:
            with patcher.gpu.compiling(is_kept=self.is_best_kept):
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
        """Coordinate descent, as if no neighbouring configuration were faster."""
        self.bench(launcher, *arguments, **options)
        launcher.config.found_by_coordesc = True
        return launcher

    helpers = importlib.import_module("torch._inductor.runtime.triton_helpers")
    patcher.put(helpers, "set_driver_to_gpu", lambda: None)
    autotuner = heuristics.CachingAutotuner
    patcher.put(autotuner, "precompile", precompile)
    patcher.put(autotuner, "_precompile_config", lambda self, config: Compiled(self, config))
    patcher.put(autotuner, "bench", bench)
    patcher.put(autotuner, "coordinate_descent_tuning", tune)
    patcher.put(autotuner, "_build_fast_launcher", lambda self, launcher: launcher)


def _launcher(kernel: Any, config: Any, gpu: SimulatedGpu) -> Any:
    library = gpu.device.library
    is_own = kernel.filename and not kernel.custom_kernel
    kind = GENERATED if is_own else "triton::"
    name = f"{kind}{kernel.fn.__name__}".encode()
    # Inductor uses tiles of two dimensions for tensors with different orders of strides
    access = STRIDED if "ynumel" in kernel.fn.arg_names else PLAIN
    is_flex = is_flex_attention(kernel.fn.src)
    fused = FusedKernel(kernel, gpu.model) if is_own and not is_flex else None
    by_hand = unless_it_fails(None, lambda: ByHand(kernel.fn)) if kernel.custom_kernel else None

    def launch(*arguments: Any, stream: int = 0, **options: Any) -> None:
        flex = is_flex and flex_attention_work(kernel.fn, arguments, gpu)
        if flex:
            library.vramcast_add_work(*flex, PLAIN)
        elif fused:
            library.vramcast_add_work(name, *fused.work(arguments), access)
        elif work := by_hand and unless_it_fails(
            None, lambda: _work_by_hand(by_hand, kernel, config, arguments, gpu.model)
        ):
            library.vramcast_add_work(f"{JIT}{kernel.fn.__name__}".encode(), *work, PLAIN)
        else:
            given = (*arguments, *options.values())
            library.vramcast_add_work(name, *work_of("triton", given, {}, None))

    launch.config = config
    launch.cache_hash, launch.store_cubin = "", False
    launch.n_regs = launch.n_spills = launch.shared = 0
    return launch


def _work_by_hand(
    known: ByHand, kernel: Any, config: Any, arguments: tuple[Any, ...], gpu: Gpu
) -> Work | None:
    """Of a kernel that somebody wrote, in a compiled function."""
    given = {**kernel.triton_meta["constants"], **config.kwargs, "num_warps": config.num_warps}
    fixed = known.constants | config.kwargs.keys()
    given |= zip((name for name in known.names if name not in fixed), arguments)
    return known.work(kernel._interpret_args_grid(arguments, config)[1], (), given, gpu)


def _check_shared_memory(kernel: Any, config: Any) -> None:
    """Raises OutOfResources, as Triton does, where tiles need too much shared memory. Inductor then
    keeps the tensors of this attempt alive until Python collects reference cycles."""
    needed = _shared_bytes(kernel, config)
    limit = torch.cuda.get_device_properties().shared_memory_per_block_optin
    if needed > limit:
        from triton.runtime.errors import OutOfResources

        raise OutOfResources(needed, limit, "shared memory")


def _shared_bytes(kernel: Any, config: Any) -> int:
    """Shared memory of a kernel with tiles; 0 for others, which need little."""
    if is_flex_attention(kernel.fn.src):
        # The program's own functions of scores need some too: only the compiler knows how much.
        found = resources_of(kernel, config)
        return found.shared_bytes if found else 0
    sizes = kernel.inductor_meta.get("config_args", {})
    if not {"BLOCK_M", "BLOCK_N", "BLOCK_K"} <= sizes.keys():
        return 0
    width = 4 if "*fp32" in kernel.triton_meta["signature"].values() else 2
    rows: int = config.num_stages * (sizes["BLOCK_M"] + sizes["BLOCK_N"])
    return rows * int(sizes["BLOCK_K"]) * width
