"""Compiles the simulated device, once for each torch version, and keeps it in the user's cache."""

import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vramcast.errors import EnvironmentProblem
from vramcast.processes.ask import TaskFailed, ask
from vramcast.records.store import (
    cache_folder,
    check_trusted,
    lock,
    locked_folder,
    make_folder,
    remove_unfinished,
    unfinished_name,
)
from vramcast.simulate.cudnn.files import installed
from vramcast.simulate.libraries import torch_folder, torch_version

SOURCES = Path(__file__).parent / "native"
# without fused multiply-add, so that sums of times are the same as Python's
OPTIONS = ("-O2", "-ffp-contract=off", "-shared", "-fPIC", "-std=c++20", "-w")
CUBLAS_SUBSTITUTE = SOURCES / "cublas_substitute.c"
# it usually takes half a minute to a minute
COMPILE_SECONDS = 1800.0


def library_path() -> Path:
    digest = hashlib.sha256()
    for source in sorted(SOURCES.iterdir()):
        if source.suffix in (".cpp", ".h"):
            digest.update(source.read_bytes())
    version = torch_version()
    # Two builds of one version (CPU, CUDA 12, CUDA 13) may differ in the ABI of their libraries.
    digest.update(f"{version} {torch_folder()} {platform.machine()}".encode())
    return cache_folder() / f"device-{version}-{digest.hexdigest()[:16]}.so"


def needs_building() -> bool:
    return not library_path().exists()


def compiler() -> list[str]:
    from vramcast.hardware.machine import cxx_compiler  # slow to import, and needed once

    command = cxx_compiler()
    if command is None:
        raise EnvironmentProblem(
            "No C++ compiler was found; the simulated GPU is compiled once for your torch version.",
            "Install one (Debian and Ubuntu: apt install g++) or name it in the environment "
            "variable CXX.",
        )
    return command


def build() -> Path:
    """The compiled library; compiles it first where needed (up to a minute)."""
    cudnn = installed()
    if cudnn and not cudnn.cublas:
        cublas_substitute(cudnn.cublas_name)
    return _built(library_path(), "compile_library")


def cublas_substitute(name: str) -> Path:
    """Builds a library that stands in for cuBLAS, under the name by which cuDNN looks for it."""
    digest = hashlib.sha256(CUBLAS_SUBSTITUTE.read_bytes()).hexdigest()[:16]
    path = cache_folder() / f"{name}-{digest}.so"
    return _built(path, "compile_cublas_substitute", name)


def _built(path: Path, task: str, *options: str) -> Path:
    try:
        make_folder(path.parent)
        remove_unfinished(path.parent)
        if not path.is_file():
            # others that need it too wait, rather than compile it as well
            with locked_folder(path.parent, COMPILE_SECONDS):
                _build_missing(path, task, *options)
        check_trusted(path)
    except TaskFailed as failure:
        advice = "Look at this machine's memory and disk."
        raise EnvironmentProblem(
            f"The simulated GPU was not compiled. {failure.message}", advice
        ) from None
    except OSError as problem:
        raise EnvironmentProblem(
            f"The compiled device cannot be kept in {path.parent}: {problem}.",
            "Set VRAMCAST_CACHE to a folder you can write to.",
        ) from problem
    return path


def _build_missing(path: Path, task: str, *options: str) -> None:
    if path.is_file():
        return
    with _new_folder(path.parent) as folder:
        fresh = folder / path.name
        # in a process of its own, so that no compiler outlives this one
        request = [str(fresh), *options]
        ask(f"{__name__}:{task}", request, timeout_seconds=COMPILE_SECONDS)
        fresh.chmod(0o755)
        os.replace(fresh, path)  # at once: whoever finds it finds it whole


@contextmanager
def _new_folder(parent: Path) -> Iterator[Path]:
    """A new folder, locked while it is in use: if this process is killed, the next one sees that it
    is not locked and removes it."""
    folder = parent / unfinished_name()
    folder.mkdir()
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        lock(descriptor)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def compile_library(request: list[str], _tell: Callable[[Any], None]) -> None:
    (result,) = request
    torch = torch_folder()
    folders = [f"-I{torch}/include", f"-I{torch}/include/torch/csrc/api/include", f"-L{torch}/lib"]
    files = [f"{SOURCES}/device.cpp", "-lc10", "-ltorch_cpu", "-o", result]
    _compile([*OPTIONS, *folders, *files], result)


def compile_cublas_substitute(request: list[str], _tell: Callable[[Any], None]) -> None:
    result, name = request
    options = ["-x", "c", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", result]
    _compile([*options, str(CUBLAS_SUBSTITUTE)], result)


def _compile(options: list[str], result: str) -> None:
    # the compiler's own files go with the folder, also when it is killed
    environment = {**os.environ, "TMPDIR": os.path.dirname(result)}
    command = [*compiler(), *options]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        lines = done.stderr.splitlines()
        errors = [line for line in lines if "error" in line][:5] or lines[-5:]
        version = torch_version()
        raise EnvironmentProblem(
            "\n".join((f"The simulated GPU does not compile against torch {version}:", *errors)),
            "Versions 2.10 to 2.15 are supported: please report the lines above.",
        )
