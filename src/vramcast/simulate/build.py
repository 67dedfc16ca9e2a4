"""Compiles the simulated device, once for each torch version, and keeps it in the user's cache."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import subprocess
import tempfile
from pathlib import Path

from vramcast.errors import EnvironmentProblem
from vramcast.hardware.machine import cxx_compiler
from vramcast.records.store import cache_folder

SOURCES = Path(__file__).parent / "native"
OPTIONS = ("-O2", "-shared", "-fPIC", "-std=c++20", "-w")


def torch_folder() -> Path:
    """Where torch is installed, found without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise EnvironmentProblem(
            "PyTorch is not installed in this Python.", "Install it with: pip install torch"
        )
    return Path(spec.submodule_search_locations[0])


def library_path() -> Path:
    digest = hashlib.sha256()
    for source in sorted(SOURCES.iterdir()):
        if source.suffix in (".cpp", ".h"):
            digest.update(source.read_bytes())
    version = importlib.metadata.version("torch")
    # Two builds of one version (CPU, CUDA 12, CUDA 13) may differ in the ABI of their libraries.
    digest.update(f"{version} {torch_folder()} {platform.machine()}".encode())
    return cache_folder() / f"device-{version}-{digest.hexdigest()[:16]}.so"


def needs_building() -> bool:
    return not library_path().exists()


def compiler() -> list[str]:
    command = cxx_compiler()
    if command is None:
        raise EnvironmentProblem(
            "No C++ compiler was found; the simulated GPU is compiled once for your torch version.",
            "Install one (Debian and Ubuntu: apt install g++) or name it in the environment "
            "variable CXX.",
        )
    return command


def build() -> Path:
    """The compiled library; compiles it first where needed (about 30 s)."""
    path = library_path()
    if path.exists():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            fresh = Path(folder) / path.name
            _compile(fresh)
            os.replace(fresh, path)  # at once, because other processes may be building it too
    except OSError as problem:
        raise EnvironmentProblem(
            f"The compiled device cannot be kept in {path.parent}: {problem}.",
            "Set VRAMCAST_CACHE to a folder you can write to.",
        ) from problem
    return path


def _compile(result: Path) -> None:
    torch = torch_folder()
    folders = [f"-I{torch}/include", f"-I{torch}/include/torch/csrc/api/include", f"-L{torch}/lib"]
    files = [f"{SOURCES}/device.cpp", "-lc10", "-ltorch_cpu", "-o", str(result)]
    done = subprocess.run([*compiler(), *OPTIONS, *folders, *files], capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.splitlines()
        errors = [line for line in lines if "error" in line][:5] or lines[-5:]
        version = importlib.metadata.version("torch")
        raise EnvironmentProblem(
            "\n".join((f"The simulated GPU does not compile against torch {version}:", *errors)),
            "Supported are torch 2.10 to 2.15; please report the lines above.",
        )
