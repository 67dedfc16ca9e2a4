"""Questions about the driver, the allocator's history and NVTX ranges have an answer; a profiler of
the program sees the host.

Why: programs and libraries ask them in passing, and a build without CUDA raises an error.
Versions: torch 2.10 to 2.15; names that a version lacks are skipped.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import torch
from torch.autograd.profiler import emit_nvtx, profile
from torch.cuda._utils import _get_device_index

from vramcast.simulate.patching import Patcher

LIBRARY = "torch"
# these functions of torch.accelerator answer like those of torch.cuda
MEMORY = (
    "empty_cache",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
)


class _Succeeds:
    """A library of CUDA: every function of it does nothing and returns 0, for success."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: 0


class _CudaRuntime(_Succeeds):
    class cudaError:
        success = 0

    def cudaMemGetInfo(self, *_: Any) -> tuple[int, int]:
        return torch.cuda.mem_get_info()


def apply(patcher: Patcher) -> None:
    patcher.put(torch.cuda, "_cudart", _CudaRuntime())
    patcher.put(torch.cuda, "can_device_access_peer", lambda *_: False)
    patcher.put(torch.cuda.nvtx, "_nvtx", _Succeeds())
    history: dict[str, Any] = {"segments": [], "device_traces": [[]]}
    patcher.put(torch.cuda.memory, "_record_memory_history", lambda *_, **__: None)
    patcher.put(torch.cuda.memory, "_snapshot", lambda *_, **__: history)
    patcher.put(torch.cuda.memory, "_dump_snapshot", lambda *_, **__: None)
    patcher.put(emit_nvtx, "__enter__", lambda emitter: emitter)
    patcher.put(emit_nvtx, "__exit__", lambda *_: None)
    patcher.put(profile, "__init__", _profiles_the_host(profile.__init__))
    for module in (torch.cuda, torch.cuda.memory):
        patcher.put(module, "_get_nvml_device_index", partial(_get_device_index, optional=True))
        patcher.put(module, "memory_snapshot", lambda *_, **__: [])
        patcher.put(module, "caching_allocator_alloc", _take)
        patcher.put(module, "caching_allocator_delete", _give_back)
    for name in MEMORY:
        # looked up when it is called, because another patch may replace it
        patcher.put(torch.accelerator, name, lambda *_, _name=name: getattr(torch.cuda, _name)())
    patcher.put(torch.accelerator, "get_memory_info", lambda *_: torch.cuda.mem_get_info())


def _profiles_the_host(init: Callable[..., None]) -> Callable[..., None]:
    """Without CUPTI a profiler asks for a CUDA event before and after every operator, and each that
    it does not get is a warning of forty lines."""

    @wraps(init)
    def __init__(self: profile, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **{**options, "use_cpu": True})
        if self.enabled:
            self.profiler_kind = torch.autograd.ProfilerState.KINETO
            self.kineto_activities = {torch.autograd.ProfilerActivity.CPU}

    return __init__


# memory without a tensor, by its address
_taken: dict[int, torch.UntypedStorage] = {}


def _take(size: int, *_: Any) -> int:
    storage = torch.UntypedStorage(size, device="cuda")
    _taken[storage.data_ptr()] = storage
    return storage.data_ptr()


def _give_back(address: int) -> None:
    del _taken[address]
