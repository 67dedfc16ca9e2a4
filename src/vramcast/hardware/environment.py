"""Where something was measured: machine, driver, versions, settings, commit. Asks NVML and git; starts no CUDA and imports no torch."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from vramcast.hardware import nvml

# what changes a measurement; nothing else of the environment is written down
VARIABLES = (
    "CUBLASLT_WORKSPACE_SIZE",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "TORCH_CUDNN_V8_API_DISABLED",
)


def describe(folder: Path) -> dict[str, Any]:
    """Facts for env.json; `folder` is where the workload's git repository is looked for."""
    return {
        "version": 1,
        "vramcast_version": _package("vramcast"),
        "time_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "os": platform.platform(),
        "python_version": platform.python_version(),
        "torch_version": _package("torch"),
        "gpus": [asdict(state) for state in nvml.gpu_states()],
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "git": git_state(folder),
        "host_cores": os.cpu_count(),
    }


def git_state(folder: Path) -> dict[str, Any]:
    """Commit and whether files differ from it; an error's text where there is no repository."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        return {
            "commit": commit,
            "dirty": bool(_git(folder, "status", "--porcelain", "--untracked-files=no")),
        }
    except (OSError, subprocess.SubprocessError) as problem:
        return {"commit": None, "error": type(problem).__name__}


def command_line() -> str:
    """The command as it can be pasted again."""
    import shlex

    program = Path(sys.argv[0]).name
    return shlex.join(
        ["vramcast" if program in ("vramcast", "__main__.py") else program, *sys.argv[1:]]
    )


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        capture_output=True,
        text=True,
        timeout=10,
        check=True,
    )
    return done.stdout.strip()


def _package(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
