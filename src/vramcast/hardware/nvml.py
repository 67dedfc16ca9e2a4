"""Facts about the GPUs from the driver, through NVML, which starts no CUDA."""

import contextlib
import os
from collections.abc import Callable, Iterator
from enum import StrEnum
from itertools import takewhile
from pathlib import Path
from typing import Any

from vramcast.errors import EnvironmentProblem, UsageError
from vramcast.hardware.gpus import find_gpu
from vramcast.records.machine import GpuProcess, GpuState
from vramcast.text import printable


class MemorySource(StrEnum):
    PROCESS = "process"  # the driver's number for the process
    DEVICE = "device"  # NVML's number for the whole GPU, minus what was in use before
    CUDA = "mem_get_info"  # CUDA's number for the whole GPU, if NVML did not answer


def gpu_states() -> list[GpuState]:
    """The GPUs that CUDA programs see here. Empty if there is no driver or no NVML."""
    states = []
    with _session() as nvml:
        for handle in _visible(nvml):
            # a GPU that fell off the bus, or for which there is no permission
            with contextlib.suppress(nvml.NVMLError):
                states.append(_state(nvml, handle))
    return states


def require_gpu(purpose: str, advice: str) -> list[GpuState]:
    states = gpu_states()
    if not states:
        raise EnvironmentProblem(f"There is no NVIDIA GPU here to {purpose}.", advice)
    return states


def gpu_here() -> str | None:
    """The first GPU, if vramcast knows it by name."""
    here = gpu_states()
    try:
        return find_gpu(here[0].name).name if here else None
    except UsageError:
        return None


def gpu_processes() -> list[GpuProcess]:
    """The processes on the GPUs, as far as the driver tells: in containers it often lists none."""
    found = []
    with _session() as nvml:
        for index, handle in enumerate(_visible(nvml)):
            for process in _processes(nvml, handle):
                name, used = _process_name(process.pid), process.usedGpuMemory or None
                found.append(GpuProcess(index, process.pid, name, used))
    return found


class UsedMemory:
    """The GPU memory in use by this process, including the allocator's.

    It must be made before CUDA starts: if the driver lists no processes, it is the growth of the
    whole GPU's use since then.
    """

    def __init__(self) -> None:
        self.before = {state.uuid: state for state in gpu_states()}

    def of_process(self, uuid: str) -> tuple[int, MemorySource] | None:
        """The bytes and their source. None if NVML does not answer for this GPU."""
        with _session() as nvml:
            if nvml is None or uuid not in self.before:
                return None
            handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
            for process in _processes(nvml, handle):
                if process.pid == os.getpid() and process.usedGpuMemory:
                    return process.usedGpuMemory, MemorySource.PROCESS
        return self.of_device(uuid), MemorySource.DEVICE

    def of_device(self, uuid: str) -> int:
        now = {state.uuid: state.used_bytes for state in gpu_states()}
        return now[uuid] - self.before[uuid].used_bytes


@contextlib.contextmanager
def _session() -> Iterator[Any]:
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no package, no library, no driver, no GPU
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _visible(nvml: Any) -> list[Any]:
    """The GPUs in the order of CUDA_VISIBLE_DEVICES. Like CUDA, it stops at a wrong name."""
    if nvml is None:
        return []
    by_number: dict[str, Any] = {}
    for index in range(nvml.nvmlDeviceGetCount()):
        with contextlib.suppress(nvml.NVMLError):
            by_number[str(index)] = nvml.nvmlDeviceGetHandleByIndex(index)
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    if names is None or "MIG-" in names:  # NVML does not list parts of a GPU
        return list(by_number.values())

    by_uuid = {_or_none(nvml, nvml.nvmlDeviceGetUUID, h) or "": h for h in by_number.values()}

    def named(name: str) -> Any:
        if not name.startswith("GPU-"):
            return by_number.get(name)
        return next((by_uuid[uuid] for uuid in by_uuid if uuid.startswith(name)), None)

    shown = [named(name.strip()) for name in names.split(",")]
    return list(takewhile(lambda handle: handle is not None, shown))


def _state(nvml: Any, handle: Any) -> GpuState:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    cuda = nvml.nvmlSystemGetCudaDriverVersion()
    ecc = _or_none(nvml, nvml.nvmlDeviceGetEccMode, handle)
    capability = _or_none(nvml, nvml.nvmlDeviceGetCudaComputeCapability, handle)
    return GpuState(
        name=nvml.nvmlDeviceGetName(handle),
        uuid=nvml.nvmlDeviceGetUUID(handle),
        total_bytes=memory.total,
        used_bytes=memory.used,
        driver_version=nvml.nvmlSystemGetDriverVersion(),
        cuda_version=f"{cuda // 1000}.{cuda % 1000 // 10}",
        driver_model=_driver_model(nvml, handle),
        ecc=None if ecc is None else bool(ecc[0]),
        capability=capability and tuple(capability),
    )


def _processes(nvml: Any, handle: Any) -> list[Any]:
    return _or_none(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []


def _or_none(nvml: Any, question: Callable[[Any], Any], handle: Any) -> Any:
    try:
        return question(handle)
    except nvml.NVMLError:
        return None


def _driver_model(nvml: Any, handle: Any) -> str:
    if os.name != "nt":
        return "Linux"
    current, _ = nvml.nvmlDeviceGetDriverModel(handle)
    return {0: "WDDM", 1: "TCC"}.get(current, f"model {current}")


def _process_name(pid: int) -> str:
    try:
        return printable(Path(f"/proc/{pid}/comm").read_text().strip())
    except OSError:  # it belongs to another container or user
        return ""
