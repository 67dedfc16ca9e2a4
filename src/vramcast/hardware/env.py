"""`vramcast.env`: what this machine has for training, what that means, and what to do about it."""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from vramcast.hardware.machine import look
from vramcast.records.base import Record
from vramcast.records.machine import Machine
from vramcast.units import GiB, format_bytes

BUSY_BYTES = GiB  # used by others before a run; this is more than a desktop takes
FEATURES = {"TF32 and bfloat16": (8, 0), "FP8": (8, 9)}
PACKAGES = ("bitsandbytes", "torchao")


class Status(StrEnum):
    GOOD = "good"
    OPTIONAL = "optional"
    NOTICE = "notice"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Check:
    name: str
    value: str
    status: Status
    meaning: str
    advice: str = ""


class MachineReport(Record, kind="machine report"):
    facts: Machine
    checks: list[Check]

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "facts": self.facts.to_dict()}

    @property
    def ready(self) -> bool:
        return not any(check.status is Status.PROBLEM for check in self.checks)


def env() -> MachineReport:
    """Is this machine ready to train fast? Asks the driver, and torch in another process."""
    machine = look()
    return MachineReport(facts=machine, checks=checks(machine))


def checks(machine: Machine) -> list[Check]:
    parts = (_gpus, _torch, _capability, _programs, _memory, _settings, _packages)
    return [check for part in parts for check in part(machine)]


@cache
def _texts() -> dict[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_name("checks.toml").read_text())


def _check(key: str, **values: object) -> Check:
    filled = {name: text.format(**values) for name, text in _texts()[key].items()}
    return msgspec.convert(filled, Check)


def _gpus(machine: Machine) -> Iterator[Check]:
    if not machine.gpus:
        yield _check("no_gpu")
        return
    for index, gpu in enumerate(machine.gpus):
        yield _check("gpu", index=index, gpu=gpu.name, memory=format_bytes(gpu.total_bytes))
    version, newest = machine.gpus[0].driver_version, machine.gpus[0].cuda_version
    wanted = machine.torch_cuda
    # a driver runs every CUDA of its own major version
    is_old = wanted is not None and int(float(newest)) < int(float(wanted))
    key = "old_driver" if is_old else "driver"
    yield _check(key, version=version, newest=newest, wanted=wanted)


def _torch(machine: Machine) -> Iterator[Check]:
    version = machine.torch_version
    if version is None:
        yield _check("no_torch", error=machine.torch_error or "")
    elif machine.torch_cuda is None:
        beside = "_beside_a_gpu" if machine.gpus else ""
        yield _check(f"torch_without_cuda{beside}", version=version)
    else:
        yield _check(
            "torch", version=version, cuda=machine.torch_cuda, cudnn=machine.cudnn or "missing"
        )
        if machine.gpus and machine.cuda_available is False:
            yield _check("cuda_not_available")


def _capability(machine: Machine) -> Iterator[Check]:
    if machine.capability is None:
        return
    major, minor = machine.capability
    groups: dict[str, list[str]] = {"it has": [], "it lacks": []}
    for name, least in FEATURES.items():
        groups["it has" if machine.capability >= least else "it lacks"].append(name)
    features = "; ".join(f"{how} {' and '.join(names)}" for how, names in groups.items() if names)
    yield _check("capability", capability=f"{major}.{minor}", features=features)
    built = machine.architectures
    if built and not any(_runs_on(machine.capability, name) for name in built):
        yield _check("no_kernels", built=", ".join(built), architecture=f"sm_{major}{minor}")


def _runs_on(capability: tuple[int, int], architecture: str) -> bool:
    """Whether kernels built for this architecture run on a GPU: those of the same major version do,
    and compute_ ones are compiled for newer GPUs."""
    name = re.match(r"(sm|compute)_(\d+)(\d)", architecture)
    if name is None:
        return False
    built = int(name[2]), int(name[3])
    return built <= capability and (name[1] == "compute" or built[0] == capability[0])


def _programs(machine: Machine) -> Iterator[Check]:
    beside = "_beside_a_gpu" if machine.gpus and machine.torch_cuda else ""
    error = machine.triton_error or "it cannot be imported"
    key = "triton" if machine.triton else f"no_triton{beside}"
    yield _check(key, version=machine.triton, error=error)
    for key, command in (("cxx_compiler", machine.cxx_compiler), ("c_compiler", machine.compiler)):
        yield _check(key if command else f"no_{key}", command=command)
    key = "broken_nvcc" if machine.nvcc_error else "nvcc" if machine.nvcc else "no_nvcc"
    yield _check(key, path=machine.nvcc, error=machine.nvcc_error)


def _memory(machine: Machine) -> Iterator[Check]:
    busy = [gpu for gpu in machine.gpus if gpu.used_bytes > BUSY_BYTES]
    for index, gpu in enumerate(machine.gpus):
        yield _check(
            "shared_memory" if gpu in busy else "free_memory",
            index=index,
            free=format_bytes(gpu.total_bytes - gpu.used_bytes),
            total=format_bytes(gpu.total_bytes),
        )
    for process in machine.processes:
        yield _check(
            "process",
            pid=process.pid,
            program=process.name or "of another user or container",
            used="unknown" if process.used_bytes is None else format_bytes(process.used_bytes),
            gpu=process.gpu,
        )
    if busy and not machine.processes:
        yield _check("unknown_processes")


def _settings(machine: Machine) -> Iterator[Check]:
    if not machine.allocator:
        yield _check("default_allocator")
    for name, settings in machine.allocator.items():
        yield _check(name, settings=settings)
    if machine.is_wsl:
        yield _check("wsl", system=machine.system)
    if any(gpu.driver_model == "WDDM" for gpu in machine.gpus):
        yield _check("wddm")


def _packages(machine: Machine) -> Iterator[Check]:
    for name in PACKAGES:
        version = machine.packages.get(name)
        yield _check("package" if version else "no_package", package=name, version=version)
    yield _check("host", system=machine.system, python=machine.python, cores=machine.cores)
