"""torch's own shared libraries: loading them takes a fifth of a second, on a core of its own."""

import ctypes
import importlib.util
import os
import threading
from pathlib import Path

from vramcast.errors import EnvironmentProblem

NAMES = ("torch_global_deps", "c10", "torch_cpu", "c10_cuda", "torch_cuda")

_loading: threading.Thread | None = None


def torch_folder() -> Path:
    """Where torch is installed, found without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise EnvironmentProblem(
            "PyTorch is not installed in this Python.", "Install it with: pip install torch"
        )
    return Path(spec.submodule_search_locations[0])


def paths() -> list[str]:
    files = (torch_folder() / "lib" / f"lib{name}.so" for name in NAMES)
    return [str(path) for path in files if path.exists()]


def load_in_background() -> None:
    """While this thread imports modules. An error is seen when they are loaded again."""
    global _loading
    # called as a C function, unlike ctypes.CDLL it lets other threads run meanwhile
    load = ctypes.CDLL(None).dlopen
    load.argtypes, load.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
    files = [os.fsencode(path) for path in paths()]

    def load_all() -> None:
        for file in files:
            load(file, ctypes.RTLD_GLOBAL | os.RTLD_NOW)

    _loading = threading.Thread(target=load_all, daemon=True)
    _loading.start()


def wait() -> None:
    """A process with one thread can be forked."""
    if _loading is not None:
        _loading.join()
