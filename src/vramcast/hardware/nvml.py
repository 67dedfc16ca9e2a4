"""What the driver says about the GPUs, through NVML: no CUDA is started, so the commands' own process may ask."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from vramcast.errors import UsageError
from vramcast.hardware.gpus import find_gpu
from vramcast.text import printable


class MemorySource(StrEnum):
    """How the memory of a process was known."""

    PROCESS = "process"  # the driver lists it for the process
    DEVICE = "device"  # NVML's number for the whole GPU
    CUDA = "mem_get_info"  # CUDA's number for the whole GPU: NVML did not answer


@dataclass(frozen=True)
class GpuState:
    name: str
    uuid: str
    total_bytes: int
    used_bytes: int
    driver_version: str
    cuda_version: str  # the newest the driver supports
    driver_model: str  # WDDM or TCC on Windows, "Linux" elsewhere
    ecc: bool | None


@dataclass(frozen=True)
class GpuProcess:
    gpu: int
    pid: int
    name: str  # "" where this process may not know
    used_bytes: int | None


def gpu_states() -> list[GpuState]:
    """Every GPU the driver shows; empty where there is no driver or no NVML."""
    with _session() as nvml:
        if nvml is None:
            return []
        states = []
        for index in range(nvml.nvmlDeviceGetCount()):
            with contextlib.suppress(
                nvml.NVMLError
            ):  # one that fell off the bus, or may not be looked at
                states.append(_state(nvml, nvml.nvmlDeviceGetHandleByIndex(index)))
        return states


def gpu_processes() -> list[GpuProcess]:
    """Who uses the GPUs, as far as the driver tells: in containers it often lists nobody."""
    found = []
    with _session() as nvml:
        for index in range(nvml.nvmlDeviceGetCount() if nvml is not None else 0):
            with contextlib.suppress(nvml.NVMLError):
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
                    used = int(process.usedGpuMemory) if process.usedGpuMemory else None
                    found.append(
                        GpuProcess(
                            gpu=index,
                            pid=int(process.pid),
                            name=_process_name(process.pid),
                            used_bytes=used,
                        )
                    )
    return found


def capability_here() -> tuple[int, int] | None:
    """Of the first GPU."""
    with _session() as nvml:
        if nvml is None:
            return None
        with contextlib.suppress(nvml.NVMLError):
            major, minor = nvml.nvmlDeviceGetCudaComputeCapability(
                nvml.nvmlDeviceGetHandleByIndex(0)
            )
            return int(major), int(minor)
    return None


def _process_name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm") as file:
            return printable(file.read().strip())
    except OSError:  # of another container or user
        return ""


def used_bytes(uuid: str, process_id: int) -> tuple[int, MemorySource] | None:
    """Bytes of one process on one GPU, or of the whole GPU where the driver lists no processes."""
    with _session() as nvml:
        if nvml is None:
            return None
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        with contextlib.suppress(nvml.NVMLError):
            for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
                if process.pid == process_id and process.usedGpuMemory:
                    return int(process.usedGpuMemory), MemorySource.PROCESS
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).used), MemorySource.DEVICE


@contextlib.contextmanager
def _session() -> Iterator[Any]:
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no package, no library, no driver, no GPU: each is a machine without GPUs
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _state(nvml: Any, handle: Any) -> GpuState:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    cuda = nvml.nvmlSystemGetCudaDriverVersion()
    return GpuState(
        name=_text(nvml.nvmlDeviceGetName(handle)),
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        total_bytes=int(memory.total),
        used_bytes=int(memory.used),
        driver_version=_text(nvml.nvmlSystemGetDriverVersion()),
        cuda_version=f"{cuda // 1000}.{cuda % 1000 // 10}",
        driver_model=_driver_model(nvml, handle),
        ecc=_ecc(nvml, handle),
    )


def _driver_model(nvml: Any, handle: Any) -> str:
    if os.name != "nt":
        return "Linux"
    current, _ = nvml.nvmlDeviceGetDriverModel(handle)
    return {0: "WDDM", 1: "TCC"}.get(current, f"model {current}")


def _ecc(nvml: Any, handle: Any) -> bool | None:
    try:
        return bool(nvml.nvmlDeviceGetEccMode(handle)[0])
    except nvml.NVMLError:
        return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def gpu_here() -> str | None:
    """The first GPU of this machine, if vramcast knows it by name."""
    here = gpu_states()
    try:
        return find_gpu(here[0].name).name if here else None
    except UsageError:
        return None
