"""bitsandbytes finds a compiled library, whose functions do nothing.

Why: the real one needs CUDA's libraries and a GPU. What it is given to fill is allocated by Python
code of bitsandbytes, which runs. Pages that a paged optimizer shares with the host are the host's.
Versions: bitsandbytes 0.45 to 0.50.
"""

import ctypes
import mmap
from typing import Any

from vramcast.simulate.patching import Patcher

LIBRARY = "ctypes"


class _Library:
    """Has every function, and remembers what was set on it."""

    def __init__(self) -> None:
        self._pages: list[mmap.mmap] = []
        # a function, so that attributes can be set on it
        self.cget_managed_ptr = lambda num_bytes: self._managed(num_bytes)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def function(*_: Any) -> int:
            return 0

        setattr(self, name, function)
        return function

    def _managed(self, num_bytes: ctypes.c_size_t) -> int:
        pages = mmap.mmap(-1, max(1, num_bytes.value))
        self._pages.append(pages)
        return ctypes.addressof(ctypes.c_char.from_buffer(pages))


def apply(patcher: Patcher) -> None:
    load = ctypes.LibraryLoader.LoadLibrary

    def load_or_pretend(self: Any, name: str) -> Any:
        return _Library() if "libbitsandbytes" in str(name) else load(self, name)

    patcher.put(ctypes.LibraryLoader, "LoadLibrary", load_or_pretend)
