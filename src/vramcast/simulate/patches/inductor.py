"""Inductor's code runs on the simulated GPU; its Triton kernels do nothing but note their work.

Why: there is no GPU to launch them on. Everything else stays Inductor's own: which buffers its code
takes and frees, how many configurations a kernel has, and what it allocates to time them at the
first launch.
"""

import importlib
import math
import re
import sys
from collections.abc import Sequence
from typing import Any

import torch

from vramcast.simulate.flex_attention import flex_attention_work, is_flex_attention
from vramcast.simulate.gpu import SimulatedGpu
from vramcast.simulate.kernel_accesses import accesses_of
from vramcast.simulate.kernel_resources import resources_of
from vramcast.simulate.kernels.work import DTYPE_NUMBERS, FOUR, work_of
from vramcast.simulate.patching import Patcher
from vramcast.tracing.work import GENERATED, PLAIN, STRIDED

LIBRARY = "torch._inductor.runtime.triton_heuristics"
# Functions that take longer than moving an element's bytes. Their cost, as recorded on an H200, is
# in units of one exponential.
SLOW = {"exp": 1, "sigmoid": 1, "erf": 4, "tanh": 4, "online_softmax_combine": 7}
SLOW |= dict.fromkeys(("sin", "cos", "pow"), 9) | dict.fromkeys(("rand", "randn"), 16)
SLOW["associative_scan"] = 43  # a running sum, within a block
CALLED, ADDED = re.compile(r"\.(\w+)\("), re.compile(r"tl\.atomic_add\((\w+) ")
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
    kind = GENERATED if kernel.filename and not kernel.custom_kernel else "triton::"
    name = f"{kind}{kernel.fn.__name__}".encode()
    called = CALLED.findall(kernel.fn.src)
    num_slow = sum(SLOW.get(name, 0) for name in called)
    num_slow_once = sum(SLOW.get(name, 0) for name in set(called))
    names = kernel.fn.arg_names
    is_changed = [name in kernel.mutated_arg_names for name in names]
    sizes_at = [place for place, name in enumerate(names) if name.endswith("numel")]
    added = [names.index(name) for name in ADDED.findall(kernel.fn.src)]
    accesses = accesses_of(kernel.fn.src)
    # Inductor uses tiles of two dimensions for tensors with different orders of strides
    access = STRIDED if "ynumel" in names else PLAIN
    is_flex = is_flex_attention(kernel.fn.src)

    def launch(*arguments: Any, stream: int = 0, **options: Any) -> None:
        tensors = dict(zip(names, arguments, strict=False))
        flex = is_flex and flex_attention_work(kernel.fn.src, num_slow_once, tensors, gpu)
        if flex:
            library.vramcast_add_work(*flex, PLAIN)
        elif kind == GENERATED:
            turns = math.prod(arguments[place] for place in sizes_at) if sizes_at else None
            work = _work(arguments, is_changed, turns, num_slow)
            more_bytes = accesses.more_bytes(
                work[2],
                lambda name: (tensors[name].numel(), tensors[name].element_size()),
                turns,
                gpu.model.l2_cache_bytes,
            )
            if added:
                number = math.prod(arguments[place] for place in sizes_at if names[place][0] != "r")
                number *= len(added)
                run = accesses.added_runs.get(names[added[0]], 1)
                # kernels that Inductor combines have lengths of other names
                rows = number // max(1, tensors.get(run, 1) if isinstance(run, str) else run)
                sizes = 0, number, arguments[added[0]].numel(), rows
                work = *work[:2], work[2] + more_bytes, FOUR(*sizes)
            else:
                work[-1][3] = more_bytes
            library.vramcast_add_work(name, *work, access)
        else:
            given = (*arguments, *options.values())
            library.vramcast_add_work(name, *work_of("triton", given, {}, None))

    launch.config = config
    launch.cache_hash, launch.store_cubin = "", False
    launch.n_regs = launch.n_spills = launch.shared = 0
    return launch


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


def _work(
    arguments: tuple[Any, ...], is_changed: Sequence[bool], turns: int | None, num_slow: int
) -> tuple[int, float, float, Any]:
    """The work of a fused kernel: it reads its tensors once, and writes those that it changes. From
    a tensor that it gathers from, it reads no more elements than its loops have turns."""
    moved: dict[int, int] = {}  # by address: the same tensor may be given twice
    for t, twice in zip(arguments, is_changed, strict=False):
        if isinstance(t, torch.Tensor):
            num_bytes = (1 + twice) * min(t.numel(), turns or t.numel()) * t.element_size()
            moved[t.data_ptr()] = max(num_bytes, moved.get(t.data_ptr(), 0))
    return (
        DTYPE_NUMBERS[torch.float32],
        float(num_slow * (turns or 0)),
        float(sum(moved.values())),
        FOUR(),
    )
