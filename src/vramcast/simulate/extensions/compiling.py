"""Writes the host code of an extension's CUDA sources into a folder of vramcast's cache."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from vramcast.records.store import cache_folder, check_trusted, lock, make_folder
from vramcast.simulate.extensions.host_part import host_part
from vramcast.simulate.libraries import torch_folder, torch_version

HEADER = Path(__file__).parent / "cuda_on_host.h"
# Each of them is replaced by HEADER: those of CUDA, and those of torch that include them.
REPLACED = (
    *("cuda.h", "cuda_runtime.h", "cuda_runtime_api.h", "cuda_fp16.h", "cuda_fp16.hpp"),
    *("cuda_bf16.h", "cuda_fp8.h", "device_launch_parameters.h", "device_functions.h"),
    *("vector_types.h", "vector_functions.h", "math_constants.h", "cooperative_groups.h"),
    *("cooperative_groups/reduce.h", "curand_kernel.h", "mma.h", "nvtx3/nvToolsExt.h"),
    *("cuda_profiler_api.h", "ATen/cuda/CUDAContext.h", "ATen/cuda/CUDAContextLight.h"),
    *("ATen/cuda/Exceptions.h", "ATen/cuda/CUDAUtils.h", "ATen/cuda/Atomic.cuh"),
    *("ATen/cuda/DeviceUtils.cuh", "ATen/cuda/CUDAApplyUtils.cuh", "ATen/cuda/NumericLimits.cuh"),
    *("ATen/cuda/detail/KernelUtils.h", "ATen/cuda/detail/IndexUtils.cuh"),
    *("ATen/native/cuda/KernelUtils.cuh", "ATen/AccumulateType.cuh", "ATen/ceil_div.cuh"),
    *("c10/cuda/CUDAGuard.h", "c10/cuda/CUDAStream.h", "c10/cuda/CUDAException.h"),
    *("c10/cuda/CUDAFunctions.h", "c10/cuda/CUDAMathCompat.h", "c10/cuda/CUDAMacros.h"),
    *("THC/THCAtomics.cuh",),
)
FOLDER = "extensions"
CUDA_SUFFIXES = (".cu", ".cuh")


class HostSources(NamedTuple):
    folder: Path  # for what is compiled of them
    sources: list[str]
    include_paths: list[str]
    flags: list[str]


def is_cuda(source: str | Path) -> bool:
    return Path(source).suffix in CUDA_SUFFIXES


@contextmanager
def host_sources(
    name: str, sources: Sequence[str], include_paths: Sequence[str], cuda_flags: Sequence[str]
) -> Iterator[HostSources]:
    """Only one process at a time has the folder: torch would wait for ever for one that was
    killed."""
    flags = [flag for flag in cuda_flags if flag.startswith(("-D", "-U", "-I"))]
    given = [Path(source).resolve() for source in sources]
    folders = [Path(folder).resolve() for folder in include_paths]
    texts = {
        f"{number}_{path.stem}.cpp": host_part(path, folders)
        for number, path in enumerate(given)
        if is_cuda(path)
    }
    folder = _folder(name, [*texts.values(), *flags, *map(str, (*given, *folders))])
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        lock(descriptor)
        (folder / "lock").unlink(missing_ok=True)  # torch's own
        _write(folder, texts)
        plain = [str(path) for path in given if not is_cuda(path)]
        of_sources = dict.fromkeys(str(path.parent) for path in given)
        yield HostSources(
            folder,
            [*plain, *(str(folder / text) for text in texts)],
            [str(folder / "include"), *map(str, folders), *of_sources],
            [*flags, "-O0", "-w"],
        )
    finally:
        os.close(descriptor)


def _folder(name: str, parts: Sequence[str]) -> Path:
    digest = hashlib.sha256(HEADER.read_bytes())
    for part in (torch_version(), str(torch_folder()), *parts):
        digest.update(part.encode() + b"\0")
    folder = cache_folder() / FOLDER / f"{Path(name).name}-{digest.hexdigest()[:16]}"
    make_folder(folder.parent)
    make_folder(folder)
    for library in folder.glob("*.so"):
        check_trusted(library)
    return folder


def _write(folder: Path, texts: dict[str, str]) -> None:
    """What is there already stays, so that nothing is compiled twice."""
    headers = {f"include/{name}": f'#include "{HEADER.name}"\n' for name in REPLACED}
    headers[f"include/{HEADER.name}"] = HEADER.read_text()
    for name, text in {**headers, **texts}.items():
        path = folder / name
        if not path.is_file() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
