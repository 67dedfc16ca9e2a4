"""Looks at this machine: GPU, driver, torch, Triton, compilers, packages. Starts no CUDA.

Asks NVML, the file system and a process of its own that imports torch. What the answers mean is in
`machine_checks`.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from vramcast.hardware import nvml
from vramcast.hardware.compilers import c_compiler, cxx_compiler
from vramcast.hardware.environment import ALLOCATOR_VARIABLES, package_version, variables
from vramcast.processes.lifetime import child_environment
from vramcast.records.machine import Machine

PACKAGES = ("bitsandbytes", "torchao", "triton", "schedulefree", "transformers")
ASK_SECONDS = 120.0
# Run by another process: this one must stay light, and CUDA may start only where a workload runs.
ASK_TORCH = """
import json, os
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
import torch
def ask(question):
    try:
        return question()
    except Exception:
        return None
try:
    import triton
    triton, problem = triton.__version__, None
except BaseException as error:
    triton, problem = None, f"{type(error).__name__}: {error}"
print("\\n" + json.dumps({
    "torch_version": torch.__version__,
    "torch_cuda": torch.version.cuda,
    "cudnn": ask(torch.backends.cudnn.version),
    "cuda_available": ask(torch.cuda.is_available),
    "architectures": ask(lambda: torch._C._cuda_getArchFlags().split()) or [],
    "triton": triton,
    "triton_error": problem,
}))
"""


def look() -> Machine:
    nvcc, nvcc_error = find_nvcc()
    here = nvml.gpu_states()
    versions = {name: package_version(name) for name in PACKAGES}
    return Machine(
        gpus=here,
        processes=nvml.gpu_processes(),
        capability=here[0].capability if here else None,
        compiler=_shown(c_compiler()),
        cxx_compiler=_shown(cxx_compiler()),
        nvcc=nvcc,
        nvcc_error=nvcc_error,
        packages={name: version for name, version in versions.items() if version is not None},
        allocator=variables(ALLOCATOR_VARIABLES),
        is_wsl=is_wsl(platform.uname().release),
        system=platform.platform(),
        python=platform.python_version(),
        cores=os.cpu_count(),
        **ask_torch(),
    )


def ask_torch() -> dict[str, Any]:
    """What torch says of itself, as fields of `Machine`."""
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
        return {"torch_error": f"importing torch did not end within {ASK_SECONDS:g} s"}
    except OSError as problem:
        return {"torch_error": f"Python cannot be started to import torch: {problem}"}
    try:
        answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return answer
    except (ValueError, IndexError):
        words = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return {"torch_error": words[-1]}


def find_nvcc() -> tuple[str | None, str | None]:
    """Its path, and why it cannot be run: WSL shows one on a Windows disk without that right."""
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    named = [Path(home, "bin", "nvcc") for home in homes if home]
    usual = [Path(shutil.which("nvcc") or "nvcc"), Path("/usr/local/cuda/bin/nvcc")]
    for candidate in (*named, *usual):
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


def _shown(command: list[str] | None) -> str | None:
    """With the full path of the program."""
    return command and " ".join([shutil.which(command[0]) or command[0], *command[1:]])


def is_wsl(release: str) -> bool:
    return "microsoft" in release.lower()
