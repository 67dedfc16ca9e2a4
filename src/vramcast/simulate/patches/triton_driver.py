"""Triton finds a driver for the simulated GPU.

Why: libraries ask it for the architecture and the shared memory when they are imported, to choose
their kernels; without a GPU it raises an error.
Versions: triton 3.
"""

import importlib
import sys
from types import SimpleNamespace

from vramcast.simulate.patching import Patcher

LIBRARY = "triton.runtime.driver"
MILLISECONDS = [1.0, 1.0, 1.0]  # of whatever is timed: the median and two quantiles
# what CUDA reports for an H100
PROPERTIES = {
    "max_shared_mem": 232448,
    "max_num_regs": 65536,
    "warpSize": 32,
    "sm_clock_rate": 1980000,
    "mem_clock_rate": 2619000,
    "mem_bus_width": 5120,
}


def apply(patcher: Patcher) -> None:
    nvidia = importlib.import_module("triton.backends.nvidia.driver")
    driver = object.__new__(nvidia.CudaDriver)
    nvidia.GPUDriver.__init__(driver)  # without the compiled part
    properties = {**PROPERTIES, "multiprocessor_count": patcher.gpu.model.num_multiprocessors}
    driver.utils = SimpleNamespace(get_device_properties=lambda *_: properties)
    driver.get_benchmarker = lambda: lambda *_, **__: MILLISECONDS
    patcher.put(sys.modules[LIBRARY].driver, "_active", driver)
