"""pynvml answers for the simulated GPU.

Why: programs print with it how much memory is taken, and torch.cuda.utilization asks it; without a
driver there is no library behind it. What has no answer raises NVMLError_NotSupported.
Versions: nvidia-ml-py 11 to 13.
"""

import os
import sys
from types import SimpleNamespace
from typing import Any

import torch

from vramcast.simulate.patching import Patcher

LIBRARY = "pynvml"
NO_ANSWER = ("nvmlDeviceGet", "nvmlDeviceSet", "nvmlSystemGet", "nvmlUnit", "nvmlEvent")
MEGAHERTZ = 1_500


def apply(patcher: Patcher) -> None:
    library, gpu = sys.modules[LIBRARY], patcher.gpu
    known = gpu.facts()[0]
    rates = SimpleNamespace(gpu=known["utilization.gpu"], memory=known["utilization.memory"])
    answers: dict[str, Any] = {
        "nvmlInit": None,
        "nvmlInitWithFlags": None,
        "nvmlShutdown": None,
        "nvmlSystemGetDriverVersion": known["driver_version"],
        "nvmlDeviceGetTemperature": known["temperature.gpu"],
        "nvmlDeviceGetPowerUsage": 1000 * known["power.draw"],
        "nvmlDeviceGetEnforcedPowerLimit": 1000 * known["power.limit"],
        "nvmlDeviceGetClockInfo": MEGAHERTZ,
        "nvmlDeviceGetUtilizationRates": rates,
        "nvmlDeviceGetGraphicsRunningProcesses": [],
        "nvmlDeviceGetCudaComputeCapability": gpu.model.capability,
        "nvmlDeviceGetCount": gpu.num_devices,
    }

    def handle(number: int) -> int:
        """The GPU's number is its handle."""
        if not 0 <= number < gpu.num_devices:
            raise library.NVMLError(library.NVML_ERROR_INVALID_ARGUMENT)
        return int(number)

    functions: dict[str, Any] = {
        "nvmlDeviceGetHandleByIndex": handle,
        "nvmlDeviceGetHandleByUUID": lambda _: 0,
        "nvmlDeviceGetHandleByPciBusId": lambda _: 0,
        "nvmlDeviceGetIndex": int,
        "nvmlDeviceGetUUID": lambda number: gpu.facts()[number]["uuid"],
        "nvmlDeviceGetName": torch.cuda.get_device_name,
        "nvmlDeviceGetMemoryInfo": _memory,
        "nvmlDeviceGetComputeRunningProcesses": _processes,
    }
    for name in [name for name in vars(library) if name.startswith(NO_ANSWER)]:
        patcher.put(library, name, _not_supported(library))
    for name, answer in answers.items():
        patcher.put(library, name, lambda *_, _answer=answer, **__: _answer)
    for name, function in functions.items():
        patcher.put(library, name, function)


def _memory(number: int, *_: Any, **__: Any) -> Any:
    free, total = torch.cuda.mem_get_info(number)
    return SimpleNamespace(total=total, free=free, used=total - free, reserved=0)


def _processes(number: int) -> list[Any]:
    return [SimpleNamespace(pid=os.getpid(), usedGpuMemory=_memory(number).used)]


def _not_supported(library: Any) -> Any:
    def ask(*_: Any, **__: Any) -> Any:
        raise library.NVMLError(library.NVML_ERROR_NOT_SUPPORTED)

    return ask
