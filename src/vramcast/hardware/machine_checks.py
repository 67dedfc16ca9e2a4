"""What the facts about a machine mean for training on it, and what to do. Pure: facts in, checks out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from vramcast.hardware.machine import Machine
from vramcast.hardware.nvml import GpuState
from vramcast.units import GiB, format_bytes

GOOD, NOTICE, PROBLEM = "good", "notice", "problem"
BUSY_BYTES = GiB  # in use by others before a run: more than a desktop takes


@dataclass(frozen=True)
class Check:
    name: str
    value: str
    status: str  # good, notice or problem
    meaning: str
    advice: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def checks(machine: Machine) -> list[Check]:
    parts = (
        _gpus,
        _torch,
        _capability,
        _triton,
        _compiler,
        _nvcc,
        _memory,
        _processes,
        _allocator,
        _wsl,
        _driver_model,
        _packages,
        _host,
    )
    return [check for part in parts for check in part(machine)]


def _gpus(machine: Machine) -> Iterator[Check]:
    if not machine.gpus:
        meaning = (
            "nothing can be measured here; vramcast predict, max-batch and plan work without a GPU"
        )
        yield Check(
            "GPU",
            "none that NVML shows",
            NOTICE,
            meaning,
            "On a machine with one: is the driver loaded (nvidia-smi)? In a container: --gpus all.",
        )
        return
    for index, gpu in enumerate(machine.gpus):
        yield Check(
            f"GPU {index}",
            f"{gpu.name}, {format_bytes(gpu.total_bytes)}",
            GOOD,
            "what torch calls cuda:" + str(index),
        )
    first = machine.gpus[0]
    yield Check(
        "driver",
        f"{first.driver_version}, for CUDA up to {first.cuda_version}",
        *_driver_meaning(machine, first),
    )


def _driver_meaning(machine: Machine, gpu: GpuState) -> tuple[str, str, str]:
    if machine.torch_cuda is None or _number(gpu.cuda_version)[0] >= _number(machine.torch_cuda)[0]:
        return GOOD, "new enough for this torch", ""
    text = f"torch was built for CUDA {machine.torch_cuda}, which this driver does not know"
    return (
        PROBLEM,
        text,
        f"Install a newer driver, or a torch for CUDA {_number(gpu.cuda_version)[0]}.",
    )


def _number(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit()) or (0,)


def _torch(machine: Machine) -> Iterator[Check]:
    if machine.torch_version is None:
        yield Check(
            "torch",
            "cannot be imported",
            PROBLEM,
            machine.torch_error or "",
            "pip install torch, in the Python that runs vramcast.",
        )
        return
    if machine.torch_cuda is None:
        status = PROBLEM if machine.gpus else NOTICE
        advice = (
            "Install a build with CUDA to train here: pip install torch on Linux x86_64 brings one."
            if machine.gpus
            else ""
        )
        yield Check(
            "torch",
            f"{machine.torch_version}, a build without CUDA",
            status,
            "it can predict, and run steps on the CPU",
            advice,
        )
        return
    yield Check(
        "torch",
        f"{machine.torch_version}, CUDA {machine.torch_cuda}, cuDNN {machine.cudnn or 'missing'}",
        GOOD,
        "built for CUDA",
    )
    if machine.gpus and machine.cuda_available is False:
        advice = "Compare the driver with torch's CUDA above; look at CUDA_VISIBLE_DEVICES."
        yield Check(
            "CUDA in torch",
            "not available",
            PROBLEM,
            "the driver shows a GPU, but torch does not find it",
            advice,
        )


def _capability(machine: Machine) -> Iterator[Check]:
    if machine.capability is None:
        return
    have = machine.capability
    can = [
        name for name, least in (("TF32 and bfloat16", (8, 0)), ("FP8", (8, 9))) if have >= least
    ]
    cannot = [
        name for name, least in (("TF32 and bfloat16", (8, 0)), ("FP8", (8, 9))) if have < least
    ]
    text = "; ".join(
        filter(
            None,
            [
                f"it has {' and '.join(can)}" if can else "",
                f"it lacks {' and '.join(cannot)}" if cannot else "",
            ],
        )
    )
    yield Check("compute capability", f"{have[0]}.{have[1]}", GOOD, text)
    native = f"sm_{have[0]}{have[1]}"
    if machine.architectures and not _runs_on(native, machine.architectures):
        built = ", ".join(machine.architectures)
        yield Check(
            "torch's kernels",
            built,
            PROBLEM,
            f"torch was not built for {native}",
            "Install a torch whose CUDA is newer, or build it.",
        )


def _runs_on(native: str, architectures: list[str]) -> bool:
    """Kernels of the same major version run, and compute_ ones are compiled for anything newer."""
    number = int(native.removeprefix("sm_"))
    for name in architectures:
        digits = "".join(c for c in name.partition("_")[2] if c.isdigit())
        if (
            digits
            and (name.startswith("compute_") or int(digits) // 10 == number // 10)
            and int(digits) <= number
        ):
            return True
    return False


def _triton(machine: Machine) -> Iterator[Check]:
    if machine.triton is not None:
        yield Check("Triton", machine.triton, GOOD, "torch.compile and fused kernels can be had")
        return
    status = PROBLEM if machine.gpus and machine.torch_cuda else NOTICE
    meaning = f"no torch.compile for GPUs, no fused kernels of the zoo ({machine.triton_error or 'it cannot be imported'})"
    yield Check(
        "Triton",
        "missing",
        status,
        meaning,
        "It comes with CUDA builds of torch for Linux; else pip install triton. There is none for Windows.",
    )


def _compiler(machine: Machine) -> Iterator[Check]:
    if machine.compiler is not None:
        yield Check(
            "C compiler",
            machine.compiler,
            GOOD,
            "Triton and torch.compile compile small programs with it",
        )
        return
    yield Check(
        "C compiler",
        "missing",
        PROBLEM,
        "vramcast cannot build its simulated GPU, and torch.compile and Triton fail",
        "Install gcc or clang, or set CC.",
    )


def _nvcc(machine: Machine) -> Iterator[Check]:
    if machine.nvcc is None:
        yield Check(
            "nvcc",
            "not found",
            GOOD,
            "only extensions in CUDA C++ are compiled with it; torch.compile and Triton do without",
        )
    elif machine.nvcc_error is None:
        yield Check("nvcc", machine.nvcc, GOOD, "extensions in CUDA C++ can be compiled")
    else:
        advice = "Under WSL, disks of Windows (/mnt/c) are mounted without the right to execute: install CUDA inside Linux and set CUDA_HOME."
        yield Check(
            "nvcc",
            f"{machine.nvcc}: {machine.nvcc_error}",
            PROBLEM,
            "what looks for nvcc finds this one and fails",
            advice,
        )


def _memory(machine: Machine) -> Iterator[Check]:
    for index, gpu in enumerate(machine.gpus):
        free = gpu.total_bytes - gpu.used_bytes
        busy = gpu.used_bytes > BUSY_BYTES
        meaning = (
            "others take part of it: what fits on an empty GPU may not fit here, and times are of a shared GPU"
            if busy
            else "nobody else uses it"
        )
        advice = "End what is not needed (see below), or cap a run with --memory." if busy else ""
        yield Check(
            f"free memory of GPU {index}",
            f"{format_bytes(free)} of {format_bytes(gpu.total_bytes)}",
            NOTICE if busy else GOOD,
            meaning,
            advice,
        )


def _processes(machine: Machine) -> Iterator[Check]:
    for process in machine.processes:
        used = "unknown" if process.used_bytes is None else format_bytes(process.used_bytes)
        yield Check(
            f"process {process.pid}",
            f"{process.name or 'of another user or container'}: {used} on GPU {process.gpu}",
            NOTICE,
            "it uses the GPU",
        )
    if not machine.processes and any(gpu.used_bytes > BUSY_BYTES for gpu in machine.gpus):
        yield Check(
            "processes on the GPU",
            "none listed",
            NOTICE,
            "memory is in use, but the driver names nobody: in containers it does not",
            "Ask on the host: nvidia-smi.",
        )


def _allocator(machine: Machine) -> Iterator[Check]:
    if not machine.allocator:
        yield Check("allocator settings", "torch's defaults", GOOD, "PYTORCH_ALLOC_CONF is not set")
    for name, value in machine.allocator.items():
        if name == "PYTORCH_NO_CUDA_MEMORY_CACHING":
            yield Check(
                name,
                value,
                PROBLEM,
                "every tensor is allocated by the driver: far slower",
                f"Unset {name}; it is for finding errors.",
            )
        elif name == "PYTORCH_CUDA_ALLOC_CONF":
            yield Check(
                name,
                value,
                NOTICE,
                "the older name; it holds",
                "torch 2.10 and later call it PYTORCH_ALLOC_CONF.",
            )
        else:
            yield Check(name, value, GOOD, "in force for every run that says nothing else")


def _wsl(machine: Machine) -> Iterator[Check]:
    if machine.is_wsl:
        meaning = "the driver is that of Windows: memory may be paged to the host instead of running out, which is many times slower"
        yield Check(
            "WSL",
            machine.system,
            NOTICE,
            meaning,
            "Stay below the memory there is; keep data and environments on Linux's own disk, not under /mnt.",
        )


def _driver_model(machine: Machine) -> Iterator[Check]:
    if any(gpu.driver_model == "WDDM" for gpu in machine.gpus):
        meaning = "Windows may page GPU memory to the host: a run beyond the memory there is does not fail but crawls"
        yield Check(
            "driver model",
            "WDDM",
            NOTICE,
            meaning,
            "Set 'Prefer No Sysmem Fallback' in the NVIDIA Control Panel.",
        )


def _packages(machine: Machine) -> Iterator[Check]:
    for name in ("bitsandbytes", "torchao"):
        if name in machine.packages:
            yield Check(
                name, machine.packages[name], GOOD, "AdamW with states of 8 bits can be tried"
            )
        else:
            yield Check(
                name,
                "not installed",
                GOOD,
                "AdamW with states of 8 bits from it cannot be tried",
                f"pip install {name}, if you want that.",
            )


def _host(machine: Machine) -> Iterator[Check]:
    yield Check(
        "host",
        f"{machine.system}, Python {machine.python}, {machine.cores} cores",
        GOOD,
        "launches the GPU's kernels and loads data",
    )
