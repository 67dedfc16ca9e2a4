"""Loads torch's shared libraries in a thread of its own: this takes a fifth of a second."""

import contextlib
import ctypes
import importlib.util
import os
import re
import threading
from pathlib import Path

from vramcast.errors import EnvironmentProblem

NAMES = ("torch_global_deps", "c10", "torch_cpu", "c10_cuda", "torch_cuda")
# C modules that torch and the simulation import. They are imported first, because the linker loads
# one file at a time: each would wait for torch's libraries. fmt: off
C_MODULES = (
    "_asyncio",
    "_bisect",
    "_blake2",
    "_bz2",
    "_contextvars",
    "_csv",
    "_ctypes",
    "_datetime",
    "_decimal",
    "_hashlib",
    "_heapq",
    "_json",
    "_lzma",
    "_multiprocessing",
    "_opcode",
    "_pickle",
    "_posixshmem",
    "_posixsubprocess",
    "_queue",
    "_random",
    "_sha512",
    "_socket",
    "_ssl",
    "_statistics",
    "_struct",
    "_typing",
    "_uuid",
    "array",
    "binascii",
    "cmath",
    "fcntl",
    "grp",
    "math",
    "mmap",
    "msgspec",
    "numpy.linalg",
    "resource",
    "select",
    "unicodedata",
    "zlib",
)
# fmt: on

_loading: threading.Thread | None = None


def torch_folder() -> Path:
    """Where torch is installed, found without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise EnvironmentProblem(
            "PyTorch is not installed in this Python.", "Install it with: pip install torch"
        )
    return Path(spec.submodule_search_locations[0])


def torch_version() -> str:
    """The version with its build, such as 2.13.0+cpu, found without importing torch."""
    text = (torch_folder() / "version.py").read_text()
    found = re.search(r"""^__version__ = ['"](.+)['"]""", text, re.MULTILINE)
    return found[1] if found else "of no known version"


def paths() -> list[str]:
    files = (torch_folder() / "lib" / f"lib{name}.so" for name in NAMES)
    return [str(path) for path in files if path.exists()]


def load_in_background() -> None:
    """Starts to load the libraries while this thread imports modules. An error shows up later, when
    they are loaded again."""
    global _loading
    for name in C_MODULES:
        with contextlib.suppress(ImportError):  # not every Python has all of them
            importlib.import_module(name)
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
    """Waits for the loading thread. Only a process with one thread can be forked safely."""
    if _loading is not None:
        _loading.join()
