"""What this machine offers a training run: GPU, driver, torch, Triton, compilers, packages. Asks NVML, the file system and one subprocess
that imports torch; starts no CUDA and works with no GPU. What the facts mean is in `machine_checks`."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from vramcast.hardware import nvml
from vramcast.processes.lifetime import child_environment

PACKAGES = ("bitsandbytes", "torchao", "triton", "schedulefree", "transformers")
COMPILERS = ("cc", "gcc", "clang", "c++", "g++")
ALLOCATOR_VARIABLES = (
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
)
ASK_SECONDS = 120.0
# run by a process of its own: this one must stay light, and CUDA may be started only where a workload runs
ASK_TORCH = """
import json, os
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
def ask(question):
    try:
        return question()
    except BaseException as problem:
        return {"error": f"{type(problem).__name__}: {problem}"}
import torch
def triton():
    import triton
    return triton.__version__
print("\\n" + json.dumps({
    "torch": torch.__version__,
    "cuda": torch.version.cuda,
    "cudnn": ask(torch.backends.cudnn.version),
    "available": ask(torch.cuda.is_available),
    "architectures": ask(lambda: torch._C._cuda_getArchFlags().split() if hasattr(torch._C, "_cuda_getArchFlags") else []),
    "triton": ask(triton),
}))
"""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Facts; whatever is not known is None."""

    gpus: list[nvml.GpuState] = field(default_factory=list)
    processes: list[nvml.GpuProcess] = field(default_factory=list)
    capability: tuple[int, int] | None = None  # of the first GPU
    torch_version: str | None = None
    torch_cuda: str | None = None  # None: a build without CUDA
    cudnn: int | None = None
    architectures: list[str] = field(default_factory=list)  # that torch was built for
    cuda_available: bool | None = None  # as torch says
    torch_error: str | None = None
    triton: str | None = None
    triton_error: str | None = None
    compiler: str | None = None
    nvcc: str | None = None
    nvcc_error: str | None = None
    packages: dict[str, str] = field(default_factory=dict)
    allocator: dict[str, str] = field(default_factory=dict)
    is_wsl: bool = False
    system: str = ""
    python: str = ""
    cores: int | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "capability": None if self.capability is None else list(self.capability),
        }


def look() -> Machine:
    nvcc, nvcc_error = find_nvcc()
    here = nvml.gpu_states()
    return Machine(
        gpus=here,
        processes=nvml.gpu_processes(),
        capability=nvml.capability_here() if here else None,
        compiler=next(
            (path for name in COMPILERS if (path := shutil.which(os.environ.get("CC") or name))),
            None,
        ),
        nvcc=nvcc,
        nvcc_error=nvcc_error,
        packages=installed(PACKAGES),
        allocator={name: os.environ[name] for name in ALLOCATOR_VARIABLES if name in os.environ},
        is_wsl=is_wsl(platform.uname().release),
        system=platform.platform(),
        python=platform.python_version(),
        cores=os.cpu_count(),
        **_of_torch(ask_torch()),
    )


def ask_torch() -> dict[str, Any]:
    """What torch says of itself, or {"error"}."""
    command = [sys.executable, "-P", "-c", ASK_TORCH]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ASK_SECONDS,
            env=child_environment(),
        )
    except subprocess.TimeoutExpired:
        return {"error": f"importing torch did not end within {ASK_SECONDS:g} s"}
    except OSError as problem:
        return {"error": f"Python cannot be started to import torch: {problem}"}
    try:
        answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return answer
    except (ValueError, IndexError):
        words = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return {"error": words}


def _of_torch(answer: dict[str, Any]) -> dict[str, Any]:
    if "torch" not in answer:
        return {"torch_error": answer.get("error", "unknown")}
    plain = {name: value for name, value in answer.items() if not isinstance(value, dict)}
    triton = answer["triton"]
    return {
        "torch_version": plain["torch"],
        "torch_cuda": plain.get("cuda"),
        "cudnn": plain.get("cudnn"),
        "cuda_available": plain.get("available"),
        "architectures": plain.get("architectures") or [],
        "triton": plain.get("triton"),
        "triton_error": triton["error"] if isinstance(triton, dict) else None,
    }


def find_nvcc() -> tuple[str | None, str | None]:
    """(path, why it cannot be run). One that is there but cannot be executed is what WSL shows of a mounted Windows disk."""
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    named = [Path(home, "bin", "nvcc") for home in homes]
    for candidate in (
        *named,
        Path(shutil.which("nvcc") or "nvcc"),
        Path("/usr/local/cuda/bin/nvcc"),
    ):
        if candidate.exists():
            return str(candidate), _cannot_run(candidate)
    return None, None


def _cannot_run(program: Path) -> str | None:
    try:
        subprocess.run([str(program), "--version"], capture_output=True, timeout=20, check=True)
    except PermissionError:
        return "it may not be executed (PermissionError)"
    except (OSError, subprocess.SubprocessError) as problem:
        return f"{type(problem).__name__}: {problem}"
    return None


def installed(names: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def is_wsl(release: str) -> bool:
    return "microsoft" in release.lower()
