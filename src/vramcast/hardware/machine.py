"""Looks at this machine: GPU, driver, torch, Triton, compilers, packages. Starts no CUDA."""

import contextlib
import os
import platform
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

from vramcast.hardware import nvml
from vramcast.hardware.environment import ALLOCATOR_VARIABLES, package_version, variables
from vramcast.processes.ask import TaskFailed, ask
from vramcast.records.machine import Machine

PACKAGES = ("bitsandbytes", "torchao", "triton", "schedulefree", "transformers")


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
    task = "vramcast.hardware.torch_facts:facts"
    try:
        return dict(ask(task, None, timeout_seconds=120.0))
    except TaskFailed as failure:
        return {"torch_error": (failure.printed or failure.what).splitlines()[-1]}


def find_nvcc() -> tuple[str | None, str | None]:
    """Its path, and why it cannot be run: WSL shows one on a Windows disk that it may not
    execute."""
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    candidates = [Path(home, "bin", "nvcc") for home in homes if home]
    candidates += [Path(shutil.which("nvcc") or "nvcc"), Path("/usr/local/cuda/bin/nvcc")]
    for program in candidates:
        if program.exists():
            return str(program), _cannot_run(program)
    return None, None


def _cannot_run(program: Path) -> str | None:
    try:
        subprocess.run([program, "--version"], capture_output=True, timeout=20, check=True)
    except PermissionError:
        return "it may not be executed (PermissionError)"
    except (OSError, subprocess.SubprocessError) as problem:
        return f"{type(problem).__name__}: {problem}"
    return None


def cxx_compiler() -> list[str] | None:
    return _command("CXX", "g++", "c++", "clang++")


def c_compiler() -> list[str] | None:
    """The C compiler, which Triton and torch.compile use."""
    return _command("CC", "cc", "gcc", "clang")


def _command(variable: str, *usual: str) -> list[str] | None:
    """The command in the variable, which may have arguments ("ccache g++", "gcc -m64"), or an
    installed one."""
    for text in (os.environ.get(variable, ""), *usual):
        with contextlib.suppress(ValueError):  # unclosed quotes
            words = shlex.split(text)
            if words and shutil.which(words[0]):
                return words
    return None


def _shown(command: list[str] | None) -> str | None:
    if command is None:
        return None
    return " ".join([shutil.which(command[0]) or command[0], *command[1:]])


def is_wsl(release: str) -> bool:
    return "microsoft" in release.lower()
