"""Where cuDNN's library is installed, and the cuBLAS that it looks for."""

from __future__ import annotations

import importlib.metadata
from functools import cache
from pathlib import Path
from typing import NamedTuple

CUDA_VERSIONS = (13, 12)


class Installed(NamedTuple):
    library: Path
    cublas_name: str
    cublas: Path | None  # not installed beside a CPU build of torch


@cache
def installed() -> Installed | None:
    """As one of NVIDIA's packages, which torch's CUDA builds bring along."""
    for cuda in CUDA_VERSIONS:
        try:
            package = importlib.metadata.distribution(f"nvidia-cudnn-cu{cuda}")
        except importlib.metadata.PackageNotFoundError:
            continue
        nvidia = Path(str(package.locate_file("nvidia")))
        library = nvidia / "cudnn" / "lib" / "libcudnn.so.9"
        if not library.is_file():
            continue
        name = f"libcublasLt.so.{cuda}"
        places = (nvidia / f"cu{cuda}" / "lib" / name, nvidia / "cublas" / "lib" / name)
        return Installed(library, name, next((p for p in places if p.is_file()), None))
    return None
