"""What the facts about a machine mean for training on it, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from vramcast.records.machine import Machine
from vramcast.units import GiB, format_bytes

BUSY_BYTES = GiB  # in use by others before a run: more than a desktop takes
FEATURES = {"TF32 and bfloat16": (8, 0), "FP8": (8, 9)}


class Status(StrEnum):
    GOOD = "good"
    OPTIONAL = "optional"  # it is not there, and most do without
    NOTICE = "notice"
    PROBLEM = "problem"


GOOD, OPTIONAL, NOTICE, PROBLEM = Status


@dataclass(frozen=True)
class Check:
    name: str
    value: str
    status: Status
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
        _compilers,
        _nvcc,
        _memory,
        _processes,
        _allocator,
        _windows,
        _packages,
        _host,
    )
    return [check for part in parts for check in part(machine)]


def _gpus(machine: Machine) -> Iterator[Check]:
    if not machine.gpus:
        yield Check(
            "GPU",
            "none that NVML shows",
            NOTICE,
            "nothing can be measured here; vramcast predict, max-batch and plan work without a GPU",
            "On a machine with one: is the driver loaded (nvidia-smi)? Does CUDA_VISIBLE_DEVICES "
            "hide it? In a container: --gpus all.",
        )
        return
    for index, gpu in enumerate(machine.gpus):
        value = f"{gpu.name}, {format_bytes(gpu.total_bytes)}"
        yield Check(f"GPU {index}", value, GOOD, f"what torch calls cuda:{index}")
    gpu, wanted = machine.gpus[0], machine.torch_cuda
    value = f"{gpu.driver_version}, for CUDA up to {gpu.cuda_version}"
    newest = _major(gpu.cuda_version)
    if wanted is None or newest >= _major(wanted):
        yield Check("driver", value, GOOD, "new enough for this torch")
    else:
        meaning = f"torch was built for CUDA {wanted}, which this driver does not know"
        advice = f"Install a newer driver, or a torch for CUDA {newest}."
        yield Check("driver", value, PROBLEM, meaning, advice)


def _major(version: str) -> int:
    number = version.split(".")[0]
    return int(number) if number.isdigit() else 0


def _torch(machine: Machine) -> Iterator[Check]:
    version = machine.torch_version
    if version is None:
        advice = "pip install torch, in the Python that runs vramcast."
        yield Check("torch", "cannot be imported", PROBLEM, machine.torch_error or "", advice)
        return
    if machine.torch_cuda is None:
        value, meaning = (
            f"{version}, a build without CUDA",
            "it can predict, and run steps on the CPU",
        )
        advice = "To train here install a build with CUDA: on Linux x86_64, pip install torch."
        if machine.gpus:
            yield Check("torch", value, PROBLEM, meaning, advice)
        else:
            yield Check("torch", value, NOTICE, meaning)
        return
    value = f"{version}, CUDA {machine.torch_cuda}, cuDNN {machine.cudnn or 'missing'}"
    yield Check("torch", value, GOOD, "built for CUDA")
    if machine.gpus and machine.cuda_available is False:
        meaning = "the driver shows a GPU, but torch does not find it"
        advice = "Compare the driver with torch's CUDA above; look at CUDA_VISIBLE_DEVICES."
        yield Check("CUDA in torch", "not available", PROBLEM, meaning, advice)


def _capability(machine: Machine) -> Iterator[Check]:
    if machine.capability is None:
        return
    have = machine.capability
    can = [name for name, least in FEATURES.items() if have >= least]
    cannot = [name for name, least in FEATURES.items() if have < least]
    has = f"it has {' and '.join(can)}" if can else ""
    lacks = f"it lacks {' and '.join(cannot)}" if cannot else ""
    meaning = "; ".join(filter(None, [has, lacks]))
    yield Check("compute capability", f"{have[0]}.{have[1]}", GOOD, meaning)
    built = machine.architectures
    if built and not any(_runs_on(have, name) for name in built):
        meaning = f"torch was not built for sm_{have[0]}{have[1]}"
        advice = "Install a torch whose CUDA is newer, or build it."
        yield Check("torch's kernels", ", ".join(built), PROBLEM, meaning, advice)


def _runs_on(capability: tuple[int, int], architecture: str) -> bool:
    """Kernels of the same major version run, and compute_ ones are compiled for newer GPUs."""
    number = 10 * capability[0] + capability[1]
    kind, _, rest = architecture.partition("_")
    digits = "".join(filter(str.isdigit, rest))
    if not digits or int(digits) > number:
        return False
    return kind == "compute" or int(digits) // 10 == capability[0]


def _triton(machine: Machine) -> Iterator[Check]:
    if machine.triton is not None:
        yield Check("Triton", machine.triton, GOOD, "torch.compile and fused kernels work")
        return
    why = machine.triton_error or "it cannot be imported"
    yield Check(
        "Triton",
        "missing",
        PROBLEM if machine.gpus and machine.torch_cuda else NOTICE,
        f"no torch.compile for GPUs, no fused kernels of the zoo ({why})",
        "It comes with CUDA builds of torch for Linux; else pip install triton. "
        "There is none for Windows.",
    )


def _compilers(machine: Machine) -> Iterator[Check]:
    if machine.cxx_compiler is not None:
        meaning = "the simulated GPU is compiled with it"
        yield Check("C++ compiler", machine.cxx_compiler, GOOD, meaning)
    else:
        meaning = "vramcast cannot build its simulated GPU, and torch.compile for CPUs fails"
        yield Check(
            "C++ compiler", "missing", PROBLEM, meaning, "Install g++ or clang++, or set CXX."
        )
    if machine.compiler is not None:
        meaning = "Triton and torch.compile compile small programs with it"
        yield Check("C compiler", machine.compiler, GOOD, meaning)
    else:
        meaning = "torch.compile and Triton fail"
        yield Check("C compiler", "missing", PROBLEM, meaning, "Install gcc or clang, or set CC.")


def _nvcc(machine: Machine) -> Iterator[Check]:
    if machine.nvcc is None:
        meaning = "only extensions in CUDA C++ need it; torch.compile and Triton do not"
        yield Check("nvcc", "not found", OPTIONAL, meaning)
    elif machine.nvcc_error is None:
        yield Check("nvcc", machine.nvcc, GOOD, "extensions in CUDA C++ can be compiled")
    else:
        value = f"{machine.nvcc}: {machine.nvcc_error}"
        meaning = "what looks for nvcc finds this one and fails"
        advice = (
            "Under WSL, disks of Windows (/mnt/c) are mounted without the right to execute: "
            "install CUDA inside Linux and set CUDA_HOME."
        )
        yield Check("nvcc", value, PROBLEM, meaning, advice)


def _memory(machine: Machine) -> Iterator[Check]:
    for index, gpu in enumerate(machine.gpus):
        name = f"free memory of GPU {index}"
        free = format_bytes(gpu.total_bytes - gpu.used_bytes)
        value = f"{free} of {format_bytes(gpu.total_bytes)}"
        if gpu.used_bytes <= BUSY_BYTES:
            yield Check(name, value, GOOD, "nobody else uses it")
        else:
            meaning = (
                "others take part of it: what fits on an empty GPU may not fit here, "
                "and times are of a shared GPU"
            )
            advice = "End what is not needed (see below), or cap a run with --memory."
            yield Check(name, value, NOTICE, meaning, advice)


def _processes(machine: Machine) -> Iterator[Check]:
    for process in machine.processes:
        used = "unknown" if process.used_bytes is None else format_bytes(process.used_bytes)
        value = f"{process.name or 'of another user or container'}: {used} on GPU {process.gpu}"
        yield Check(f"process {process.pid}", value, NOTICE, "it uses the GPU")
    if not machine.processes and any(gpu.used_bytes > BUSY_BYTES for gpu in machine.gpus):
        meaning = "memory is in use, but the driver names nobody: in containers it does not"
        advice = "Ask on the host: nvidia-smi."
        yield Check("processes on the GPU", "none listed", NOTICE, meaning, advice)


def _allocator(machine: Machine) -> Iterator[Check]:
    if not machine.allocator:
        yield Check("allocator settings", "torch's defaults", GOOD, "PYTORCH_ALLOC_CONF is not set")
    for name, value in machine.allocator.items():
        if name == "PYTORCH_NO_CUDA_MEMORY_CACHING":
            meaning = "every tensor is allocated by the driver: far slower"
            yield Check(name, value, PROBLEM, meaning, f"Unset {name}; it is for finding errors.")
        elif name == "PYTORCH_CUDA_ALLOC_CONF":
            advice = "torch 2.10 and later call it PYTORCH_ALLOC_CONF."
            yield Check(name, value, NOTICE, "the older name; it holds", advice)
        else:
            yield Check(name, value, GOOD, "in force for every run that says nothing else")


def _windows(machine: Machine) -> Iterator[Check]:
    if machine.is_wsl:
        meaning = (
            "the driver is that of Windows: memory may be paged to the host instead of running "
            "out, which is many times slower"
        )
        advice = (
            "Stay below the memory there is; keep data and environments on Linux's own disk, "
            "not under /mnt."
        )
        yield Check("WSL", machine.system, NOTICE, meaning, advice)
    if any(gpu.driver_model == "WDDM" for gpu in machine.gpus):
        meaning = (
            "Windows may page GPU memory to the host: a run beyond the memory there is does not "
            "fail but crawls"
        )
        advice = "Set 'Prefer No Sysmem Fallback' in the NVIDIA Control Panel."
        yield Check("driver model", "WDDM", NOTICE, meaning, advice)


def _packages(machine: Machine) -> Iterator[Check]:
    for name in ("bitsandbytes", "torchao"):
        what = "AdamW with states of 8 bits"
        version = machine.packages.get(name)
        if version is not None:
            yield Check(name, version, GOOD, f"{what} can be tried")
        else:
            advice = f"pip install {name}, if you want that."
            meaning = f"{what} from it cannot be tried"
            yield Check(name, "not installed", OPTIONAL, meaning, advice)


def _host(machine: Machine) -> Iterator[Check]:
    value = f"{machine.system}, Python {machine.python}, {machine.cores} cores"
    yield Check("host", value, GOOD, "launches the GPU's kernels and loads data")
