"""torch.cuda answers for the simulated GPU.

Why: these functions ask the CUDA driver, which is not there. There is one device, and everything is
always finished.
Versions: torch 2.10 to 2.15; names that a version lacks are skipped.
"""

from collections.abc import Callable
from typing import Any

import torch

from vramcast.hardware.gpus import Gpu
from vramcast.simulate.gpu import SimulatedGpu
from vramcast.simulate.live_memory import LiveMemory
from vramcast.simulate.patching import Patcher

LIBRARY = "torch"
DO_NOTHING = ("set_device", "reset_accumulated_memory_stats", "ipc_collect")


# The answers to these depend on the GPU, and a program may behave differently with others.
OF_THIS_GPU = (
    "get_device_properties",
    "mem_get_info",
    "memory_stats_as_nested_dict",
    "set_per_process_memory_fraction",
)


def apply(patcher: Patcher) -> None:
    answers: dict[str, Callable[..., Any]] = {
        **_about_the_device(patcher.gpu.model),
        **_about_memory(patcher.gpu.memory),
        "_lazy_call": lambda call, **_: call(),
        # each has a function of its own, because torch._dynamo keeps a table of them
        **{name: _always(None) for name in DO_NOTHING},
    }
    patcher.put(torch.cuda, "_CudaDeviceProperties", DeviceProperties)
    for name in OF_THIS_GPU:
        answers[name] = _noted(answers[name], patcher.gpu)
    for name, answer in answers.items():
        patcher.put(torch.cuda, name, answer)
        for module in (torch.cuda.memory, torch.cuda.random):
            patcher.put(module, name, answer)
    # checkpointing saves a random state only if CUDA is initialised
    patcher.put(torch.cuda, "_initialized", True)
    patcher.put(torch.cuda, "_cached_device_count", patcher.gpu.num_devices)
    # torch's own Python asks these
    patcher.put(torch._C, "_cuda_getDeviceCount", lambda: patcher.gpu.num_devices, add=True)
    patcher.put(torch._C, "_cuda_getDevice", lambda: 0, add=True)
    patcher.put(torch.cuda, "empty_cache", patcher.gpu.device.empty_cache)
    patcher.put(torch.version, "cuda", torch.version.cuda or "13.0")
    patcher.put(torch.backends.cuda, "is_built", _always(True))


def _always(answer: Any) -> Callable[..., Any]:
    return lambda *_, **__: answer


def _noted(answer: Callable[..., Any], gpu: SimulatedGpu) -> Callable[..., Any]:
    def asked(*arguments: Any, **options: Any) -> Any:
        gpu.was_asked = True
        return answer(*arguments, **options)

    return asked


def _calls(function: Callable[[], Any]) -> Callable[..., Any]:
    return lambda *_, **__: function()


class DeviceProperties:
    """What torch.cuda.get_device_properties() returns. torch._dynamo treats this type as a
    constant, which needs a hash."""

    def __init__(self, **properties: Any) -> None:
        vars(self).update(properties)


def _about_the_device(gpu: Gpu) -> dict[str, Callable[..., Any]]:
    properties = DeviceProperties(
        name=gpu.full_name,
        major=gpu.capability[0],
        minor=gpu.capability[1],
        total_memory=gpu.total_bytes,
        multi_processor_count=gpu.num_multiprocessors,
        max_threads_per_multi_processor=gpu.max_threads_per_multiprocessor,
        warp_size=32,
        L2_cache_size=gpu.l2_cache_bytes,
        is_integrated=0,
        gcnArchName=gpu.full_name,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=232448,
        shared_memory_per_multiprocessor=233472,
    )
    answers = {
        "is_bf16_supported": gpu.capability >= (8, 0),
        "is_tf32_supported": gpu.capability >= (8, 0),
        "_exchange_device": 0,
        "_maybe_exchange_device": 0,
        "get_device_capability": gpu.capability,
        "get_device_properties": properties,
        "get_arch_list": ["sm_{}{}".format(*gpu.capability)],
        "utilization": 0,
    }
    return {name: _always(answer) for name, answer in answers.items()}


def _about_memory(memory: LiveMemory) -> dict[str, Callable[..., Any]]:
    return {
        "mem_get_info": _calls(lambda: (memory.free_bytes(), memory.total_bytes)),
        "memory_allocated": _calls(lambda: memory.current().allocated_bytes),
        "memory_reserved": _calls(lambda: memory.current().reserved_bytes),
        "max_memory_allocated": _calls(lambda: memory.current().peak_allocated_bytes),
        "max_memory_reserved": _calls(lambda: memory.current().peak_reserved_bytes),
        "memory_stats_as_nested_dict": _calls(memory.statistics),
        "memory_summary": _always(""),
        "reset_peak_memory_stats": memory.reset_peaks,
        "reset_max_memory_allocated": memory.reset_peaks,
        "reset_max_memory_cached": memory.reset_peaks,
        "set_per_process_memory_fraction": memory.set_fraction,
    }
