"""The environment of a measurement: driver, versions, settings, commit. Starts no CUDA."""

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vramcast.errors import EnvironmentProblem
from vramcast.hardware import nvml

ALLOCATOR_VARIABLES = (
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
)
# Variables that change a measurement; no others are recorded.
VARIABLES = (
    "CUBLASLT_WORKSPACE_SIZE",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    *ALLOCATOR_VARIABLES,
    "TORCH_CUBLASLT_UNIFIED_WORKSPACE",
    "TORCH_CUBLAS_WORKSPACE_CACHE",
    "TORCH_CUDNN_V8_API_DISABLED",
)


def describe(folder: Path) -> dict[str, Any]:
    """Facts for env.json; `folder` is the workload's."""
    return {
        "version": 1,
        "vramcast_version": package_version("vramcast"),
        "time_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "os": platform.platform(),
        "python_version": platform.python_version(),
        "torch_version": package_version("torch"),
        "gpus": [asdict(state) for state in nvml.gpu_states()],
        "variables": variables(VARIABLES),
        "git": git_state(folder),
        "host_cores": os.cpu_count(),
    }


def variables(names: Iterable[str]) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}


def package_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def require_package(name: str, user: str, otherwise: str = "") -> None:
    if find_spec(name) is None:
        raise EnvironmentProblem(
            f"{user} needs the package {name}, which is not installed.",
            f"Install it with: pip install {name}.{otherwise}",
        )


def git_state(folder: Path) -> dict[str, Any]:
    """The commit, and whether files differ from it; or the error, if there is no repository."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
        return {"commit": commit, "dirty": bool(changes)}
    except (OSError, subprocess.SubprocessError) as problem:
        return {"commit": None, "error": type(problem).__name__}


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()


def command_line() -> str:
    """The command, or the Python program that called vramcast, in a form that can be pasted."""
    program = Path(sys.argv[0]).name
    start = ["vramcast"] if program in ("vramcast", "__main__.py") else ["python", program]
    return shlex.join([*filter(None, start), *sys.argv[1:]])
