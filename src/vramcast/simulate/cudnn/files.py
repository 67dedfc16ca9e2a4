"""Where cuDNN's library is installed, and the cuBLAS that it looks for."""

import sys
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple

CUDA_VERSIONS = (13, 12)


class Installed(NamedTuple):
    library: Path
    cublas_name: str
    cublas: Path | None  # not installed beside a CPU build of torch


@cache
def installed() -> Installed | None:
    """cuDNN's library from NVIDIA's Python package, which torch's CUDA builds install. None without
    it."""
    for cuda, place in product(CUDA_VERSIONS, map(Path, sys.path)):
        # importlib.metadata knows this too, but takes as long to import as everything else here
        if not any(place.glob(f"nvidia_cudnn_cu{cuda}-*.dist-info")):
            continue
        nvidia = place / "nvidia"
        library = nvidia / "cudnn" / "lib" / "libcudnn.so.9"
        if not library.is_file():
            continue
        name = f"libcublasLt.so.{cuda}"
        places = (nvidia / f"cu{cuda}" / "lib" / name, nvidia / "cublas" / "lib" / name)
        return Installed(library, name, next((p for p in places if p.is_file()), None))
    return None
