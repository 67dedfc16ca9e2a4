"""bitsandbytes finds a compiled library, whose functions only note the bytes they are given.

Why: the real one needs CUDA's libraries and a GPU. The Python code of bitsandbytes allocates the
results, and it does run. Pages that a paged optimizer shares with the host count as the host's
memory.
Versions: bitsandbytes 0.45 to 0.50.
"""

import ctypes
import mmap
from typing import Any

from vramcast.simulate.kernels.work import FOUR
from vramcast.simulate.patching import Patcher
from vramcast.tracing.work import PLAIN

LIBRARY = "ctypes"


class _Library:
    """A library that has every function, and keeps attributes that are set on it."""

    def __init__(self, gpu: Any) -> None:
        self._gpu = gpu
        self._pages: dict[int, mmap.mmap] = {}  # by address
        # a function, so that attributes can be set on it
        self.cget_managed_ptr = lambda num_bytes: self._managed(num_bytes)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def function(*arguments: Any) -> int:
            values = (getattr(argument, "value", argument) for argument in arguments)
            if num_bytes := sum(self._bytes_at(v) for v in values if isinstance(v, int)):
                label = f"bitsandbytes::{name.partition('_grad')[0]}".encode()
                self._gpu.device.library.vramcast_add_work(label, -1, 0.0, num_bytes, FOUR(), PLAIN)
            return 0

        setattr(self, name, function)
        return function

    def _bytes_at(self, address: int) -> int:
        library = self._gpu.device.library
        return len(self._pages.get(address, ())) or library.vramcast_block_bytes(address)

    def _managed(self, num_bytes: ctypes.c_size_t) -> int:
        pages = mmap.mmap(-1, max(1, num_bytes.value))
        address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        self._pages[address] = pages
        return address


def apply(patcher: Patcher) -> None:
    load = ctypes.LibraryLoader.LoadLibrary

    def load_or_pretend(self: Any, name: str) -> Any:
        return _Library(patcher.gpu) if "libbitsandbytes" in str(name) else load(self, name)

    patcher.put(ctypes.LibraryLoader, "LoadLibrary", load_or_pretend)
