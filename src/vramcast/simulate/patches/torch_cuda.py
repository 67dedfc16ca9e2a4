"""torch.cuda answers for the simulated GPU.

Why: these functions ask the CUDA driver, which is not there. There is one device and one stream,
and everything is always finished.
Versions: torch 2.10 to 2.13; names that a version lacks are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch

from vramcast.simulate.gpu import SimulatedGpu
from vramcast.simulate.patching import Patcher

LIBRARY = "torch"
DO_NOTHING = (
    "_lazy_init",
    "init",
    "synchronize",
    "set_device",
    "set_stream",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
    "reset_peak_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_accumulated_memory_stats",
    "ipc_collect",
    "set_per_process_memory_fraction",
    "_lazy_call",
)


class Stream:
    """The only stream."""

    cuda_stream = 0
    device_index = 0

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> None: ...

    def query(self) -> bool:
        return True

    def record_event(self, event: Any = None) -> Any:
        return event or Event()

    def _do_nothing(self, *_: Any, **__: Any) -> None: ...

    synchronize = wait_event = wait_stream = _do_nothing


class Event:
    """Time does not pass on the simulated device."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, _: Any) -> float:
        return 1.0

    def _do_nothing(self, *_: Any, **__: Any) -> None: ...

    record = wait = synchronize = _do_nothing


class StreamContext(nullcontext[None]):
    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()


def apply(patcher: Patcher) -> None:
    gpu = patcher.gpu
    answers = {
        **_about_the_device(gpu),
        **_about_memory(gpu),
        **_about_streams(),
        # a function of its own each: torch._dynamo keeps a table of them
        **{name: _always(None) for name in DO_NOTHING},
    }
    for name, answer in answers.items():
        patcher.put(torch.cuda, name, answer)
        for module in (torch.cuda.memory, torch.cuda.random):
            patcher.put(module, name, answer)
    # checkpointing saves a random state only if CUDA is initialised
    patcher.put(torch.cuda, "_initialized", True)
    patcher.put(torch.cuda, "empty_cache", lambda: gpu.empty_cache())
    patcher.put(torch.version, "cuda", torch.version.cuda or "13.0")
    patcher.put(torch._C, "_cuda_getCurrentRawStream", lambda *_: 0, add=True)


def _always(answer: Any) -> Callable[..., Any]:
    return lambda *_, **__: answer


def _about_the_device(gpu: SimulatedGpu) -> dict[str, Callable[..., Any]]:
    properties = SimpleNamespace(
        name=gpu.name,
        major=gpu.capability[0],
        minor=gpu.capability[1],
        total_memory=gpu.total_bytes,
        multi_processor_count=gpu.num_multiprocessors,
        max_threads_per_multi_processor=gpu.max_threads_per_multiprocessor,
        warp_size=32,
        L2_cache_size=50 << 20,
        is_integrated=0,
        gcnArchName=gpu.name,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=232448,
        shared_memory_per_multiprocessor=233472,
    )
    answers = {
        "is_available": True,
        "is_initialized": True,
        "is_bf16_supported": gpu.capability >= (8, 0),
        "is_tf32_supported": gpu.capability >= (8, 0),
        "device_count": 1,
        "_device_count_nvml": 1,
        "current_device": 0,
        "_exchange_device": 0,
        "_maybe_exchange_device": 0,
        "get_device_name": gpu.name,
        "get_device_capability": gpu.capability,
        "get_device_properties": properties,
        "get_arch_list": ["sm_{}{}".format(*gpu.capability)],
        "utilization": 0,
    }
    return {name: _always(answer) for name, answer in answers.items()}


def _about_memory(gpu: SimulatedGpu) -> dict[str, Callable[..., Any]]:
    """Reserved memory is known only after the replay of all steps: here it is what is allocated."""

    def memory_stats(*_: Any, **__: Any) -> dict[str, Any]:
        peak = gpu.peak_allocated_bytes()
        in_use = {"current": gpu.allocated_bytes(), "peak": peak, "allocated": peak, "freed": 0}
        names = ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes")
        return {
            **{name: {"all": dict(in_use)} for name in names},
            "num_alloc_retries": 0,
            "num_ooms": 0,
        }

    def mem_get_info(*_: Any, **__: Any) -> tuple[int, int]:
        return gpu.total_bytes - gpu.allocated_bytes(), gpu.total_bytes

    return {
        "mem_get_info": mem_get_info,
        "memory_allocated": lambda *_, **__: gpu.allocated_bytes(),
        "memory_reserved": lambda *_, **__: gpu.allocated_bytes(),
        "max_memory_allocated": lambda *_, **__: gpu.peak_allocated_bytes(),
        "max_memory_reserved": lambda *_, **__: gpu.peak_allocated_bytes(),
        "memory_stats_as_nested_dict": memory_stats,
        "memory_summary": _always(""),
    }


def _about_streams() -> dict[str, Callable[..., Any]]:
    def random_state(*_: Any, **__: Any) -> torch.Tensor:
        return torch.zeros(16, dtype=torch.uint8, device="cpu")

    return {
        "is_current_stream_capturing": _always(False),
        "current_stream": lambda *_, **__: Stream(),
        "default_stream": lambda *_, **__: Stream(),
        "stream": lambda *_: nullcontext(),
        "get_rng_state": random_state,
        "get_rng_state_all": lambda *_, **__: [random_state()],
        "Stream": Stream,
        "Event": Event,
        "StreamContext": StreamContext,
    }
