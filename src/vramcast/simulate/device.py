"""The simulated GPU of this process: loads the compiled device under torch and reads back what it recorded.

Must be imported before torch: the device registers itself where torch looks once, at start-up, for its CUDA support.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from vramcast.allocator.replay import EMPTY_CACHE
from vramcast.simulate import meta_kernels
from vramcast.simulate.build import build, torch_folder


class Allocation(ctypes.Structure):
    """Mirrors struct Allocation in native/recorder.h."""

    _fields_ = [
        ("num_bytes", ctypes.c_int64),
        ("sequence_number", ctypes.c_int64),
        ("operator_name", ctypes.c_int32),
        ("node_name", ctypes.c_int32),
        ("phase", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("shape_offset", ctypes.c_int32),
        ("num_dims", ctypes.c_int32),
        ("site", ctypes.c_int64),
    ]


class Work(ctypes.Structure):
    _fields_ = [
        ("flops", ctypes.c_double),
        ("num_bytes", ctypes.c_double),
        ("sizes", ctypes.c_int64 * 4),
        ("operator_name", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("phase", ctypes.c_int32),
        ("access", ctypes.c_int32),
    ]


SITE_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int64)
META_LOADER = ctypes.CFUNCTYPE(ctypes.c_int32)
_RESULT_TYPES = {
    "vramcast_events": ctypes.POINTER(ctypes.c_int64),
    "vramcast_allocations": ctypes.POINTER(Allocation),
    "vramcast_shapes": ctypes.POINTER(ctypes.c_int64),
    "vramcast_works": ctypes.POINTER(Work),
    "vramcast_num_works": ctypes.c_int64,
    "vramcast_name": ctypes.c_char_p,
    "vramcast_num_events": ctypes.c_int64,
    "vramcast_num_shapes": ctypes.c_int64,
    "vramcast_num_allocations": ctypes.c_int64,
    "vramcast_allocated": ctypes.c_int64,
    "vramcast_peak_allocated": ctypes.c_int64,
    "vramcast_block_id": ctypes.c_int64,
    "vramcast_begin_kernel": ctypes.c_int32,
    "vramcast_set_excluded": ctypes.c_bool,
}
_ARGUMENT_TYPES = {
    "vramcast_enable": [ctypes.c_bool],
    "vramcast_set_excluded": [ctypes.c_bool],
    "vramcast_set_gpu": [ctypes.c_int32, ctypes.c_int32, ctypes.c_int64, ctypes.c_int64],
    "vramcast_name": [ctypes.c_int64],
    "vramcast_mark": [ctypes.c_int64],
    "vramcast_add_work": [
        ctypes.c_char_p,
        ctypes.c_int32,
        ctypes.c_double,
        ctypes.c_double,
        ctypes.c_int64 * 4,
        ctypes.c_int32,
    ],
    "vramcast_begin_kernel": [ctypes.c_char_p],
    "vramcast_end_kernel": [ctypes.c_int32],
    "vramcast_block_id": [ctypes.c_int64],
    "vramcast_set_meta_loader": [META_LOADER],
    "vramcast_set_site_callback": [SITE_CALLBACK, ctypes.c_int64],
}


def load() -> ctypes.CDLL:
    """Put the simulated device under torch, before torch starts."""
    if "torch" in sys.modules:
        raise RuntimeError("the simulated device must be loaded before torch is imported")
    folder = torch_folder() / "lib"
    for name in (
        "libtorch_global_deps.so",
        "libc10.so",
        "libtorch_cpu.so",
        "libc10_cuda.so",
        "libtorch_cuda.so",
    ):
        if os.path.exists(folder / name):
            ctypes.CDLL(str(folder / name), ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(str(build()))
    for function, result in _RESULT_TYPES.items():
        getattr(library, function).restype = result
    for function, arguments in _ARGUMENT_TYPES.items():
        getattr(library, function).argtypes = arguments
    return library


class Device:
    """The one simulated device of a worker process."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self._callback: object = None
        meta_kernels.import_torch_without_them()
        self._loader = META_LOADER(
            lambda: int(meta_kernels.load())
        )  # kept alive: C++ holds the bare pointer
        library.vramcast_set_meta_loader(self._loader)
        library.vramcast_install()

    def set_gpu(
        self,
        num_multiprocessors: int,
        max_threads_per_multiprocessor: int,
        gemm_workspace_bytes: int,
        gemm_lt_workspace_bytes: int,
    ) -> None:
        self.library.vramcast_set_gpu(
            num_multiprocessors,
            max_threads_per_multiprocessor,
            gemm_workspace_bytes,
            gemm_lt_workspace_bytes,
        )

    @contextmanager
    def on(self) -> Iterator[None]:
        """While on, every torch operator of this thread (and of the backward passes it starts) is simulated."""
        self.library.vramcast_enable(True)
        try:
            yield
        finally:
            self.library.vramcast_enable(False)

    def reset(self) -> None:
        self.library.vramcast_reset()

    def mark(self) -> None:
        """Note a boundary between steps in the events."""
        self.library.vramcast_mark(0)

    def empty_cache(self) -> None:
        self.library.vramcast_mark(EMPTY_CACHE)

    def allocated_bytes(self) -> int:
        return int(self.library.vramcast_allocated())

    def peak_allocated_bytes(self) -> int:
        return int(self.library.vramcast_peak_allocated())

    def on_large_allocation(self, callback: Callable[[], int], minimum_bytes: int) -> None:
        """Call back for a site number whenever the forward pass allocates at least so much."""
        self._callback = SITE_CALLBACK(callback)  # kept alive: C++ holds the bare pointer
        self.library.vramcast_set_site_callback(self._callback, minimum_bytes)

    def events(self) -> list[int]:
        return self.library.vramcast_events()[: self.library.vramcast_num_events()]  # type: ignore[no-any-return]

    def allocations(self) -> Sequence[Allocation]:
        """A copy: it stays as it is when the device goes on."""
        count = self.library.vramcast_num_allocations()
        return (Allocation * count).from_buffer_copy(
            ctypes.string_at(self.library.vramcast_allocations(), count * ctypes.sizeof(Allocation))
        )

    def works(self) -> Sequence[Work]:
        """What was computed and moved, operator by operator. A copy."""
        count = self.library.vramcast_num_works()
        return (Work * count).from_buffer_copy(
            ctypes.string_at(self.library.vramcast_works(), count * ctypes.sizeof(Work))
        )

    def shapes(self) -> Sequence[int]:
        """All dimensions of all allocations; an Allocation knows where its own are."""
        return self.library.vramcast_shapes()[: self.library.vramcast_num_shapes()]  # type: ignore[no-any-return]

    def name(self, index: int) -> str:
        return self.library.vramcast_name(index).decode() if index >= 0 else ""

    def block_id(self, address: int) -> int:
        """The number of the live allocation at an address (a storage's data_ptr), or 0."""
        return int(self.library.vramcast_block_id(address))
