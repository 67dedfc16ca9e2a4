"""Triton finds a driver for the simulated GPU.

Why: libraries ask it for the architecture and the shared memory when they are imported, to choose
their kernels; without a GPU it raises an error.
Versions: triton 3.
"""

import sys
from types import SimpleNamespace
from typing import Any

import torch

from vramcast.simulate.gpu import SimulatedGpu
from vramcast.simulate.patches.triton_autotune import BUFFER_BYTES, SECONDS
from vramcast.simulate.patching import Patcher

LIBRARY = "triton.runtime.driver"
# as CUDA says for an H100
PROPERTIES = {
    "max_shared_mem": 232448,
    "max_num_regs": 65536,
    "warpSize": 32,
    "sm_clock_rate": 1980000,
    "mem_clock_rate": 2619000,
    "mem_bus_width": 5120,
}


def apply(patcher: Patcher) -> None:
    patcher.put(sys.modules[LIBRARY].driver, "_active", Driver(patcher.gpu))


class Driver:
    """What triton.runtime.driver.active has."""

    launcher_cls = None

    def __init__(self, gpu: SimulatedGpu) -> None:
        self._gpu = gpu
        properties = {**PROPERTIES, "multiprocessor_count": gpu.model.num_multiprocessors}
        self.utils = SimpleNamespace(get_device_properties=lambda *_: properties)

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        major, minor = self._gpu.model.capability
        return GPUTarget("cuda", 10 * major + minor, PROPERTIES["warpSize"])

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None: ...

    def get_device_capability(self, *_: Any) -> tuple[int, int]:
        return self._gpu.model.capability

    def get_current_stream(self, *_: Any) -> int:
        return int(self._gpu.device.library.vramcast_stream())

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(BUFFER_BYTES, dtype=torch.uint8, device="cuda")

    def clear_cache(self, cache: torch.Tensor) -> None:
        cache.zero_()

    def get_benchmarker(self) -> Any:
        return lambda kernel, *_, **__: SECONDS
