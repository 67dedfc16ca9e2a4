"""The simulated GPU of this process: loads the compiled device under torch and reads back what it recorded.

Must be imported before torch: the device registers itself where torch looks once, at start-up, for its CUDA support.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from vramcast.allocator.replay import EMPTY_CACHE
from vramcast.simulate import meta_kernels
from vramcast.simulate.build import build, torch_folder


class Allocation(ctypes.Structure):
    """Mirrors struct Allocation in native/recorder.h."""

    _fields_ = [
        ("num_bytes", ctypes.c_int64),
        ("operator_name", ctypes.c_int32),
        ("node_name", ctypes.c_int32),
        ("phase", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("shape_offset", ctypes.c_int32),
        ("num_dims", ctypes.c_int32),
        ("location", ctypes.c_int64),
    ]


class Work(ctypes.Structure):
    """Mirrors struct Work in native/work.h."""

    _fields_ = [
        ("flops", ctypes.c_double),
        ("num_bytes", ctypes.c_double),
        ("sizes", ctypes.c_int64 * 4),
        ("operator_name", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("phase", ctypes.c_int32),
        ("access", ctypes.c_int32),
    ]


_Struct = TypeVar("_Struct", bound=ctypes.Structure)
LOCATION_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int64)
META_LOADER = ctypes.CFUNCTYPE(ctypes.c_int32)
_RESULT_TYPES = {
    "vramcast_events": ctypes.POINTER(ctypes.c_int64),
    "vramcast_allocations": ctypes.POINTER(Allocation),
    "vramcast_shapes": ctypes.POINTER(ctypes.c_int64),
    "vramcast_work": ctypes.POINTER(Work),
    "vramcast_num_work": ctypes.c_int64,
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
    "vramcast_set_location_callback": [LOCATION_CALLBACK, ctypes.c_int64],
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
        meta_kernels.import_torch_without_them()
        # must live as long as C++ has the pointer to it
        self._loader = META_LOADER(lambda: int(meta_kernels.load()))
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

    @contextmanager
    def locating(self, here: Callable[[], int], minimum_bytes: int) -> Iterator[None]:
        """Ask `here` for the current line's number at allocations of this size and at new autograd nodes."""
        callback = LOCATION_CALLBACK(here)  # must live as long as C++ has the pointer to it
        self.library.vramcast_set_location_callback(callback, minimum_bytes)
        try:
            yield
        finally:
            self.library.vramcast_set_location_callback(LOCATION_CALLBACK(0), 0)

    def events(self) -> list[int]:
        return self.library.vramcast_events()[: self.library.vramcast_num_events()]  # type: ignore[no-any-return]

    def allocations(self) -> Sequence[Allocation]:
        return self._copy("allocations", Allocation)

    def work(self) -> Sequence[Work]:
        """What each operator computed and moved, in order."""
        return self._copy("work", Work)

    def _copy(self, name: str, kind: type[_Struct]) -> Sequence[_Struct]:
        """A copy of a list of structs, which does not change when the device goes on."""
        count = getattr(self.library, f"vramcast_num_{name}")()
        first = getattr(self.library, f"vramcast_{name}")()
        return (kind * count).from_buffer_copy(ctypes.string_at(first, count * ctypes.sizeof(kind)))

    def shapes(self) -> Sequence[int]:
        """All dimensions of all allocations; an Allocation knows where its own are."""
        return self.library.vramcast_shapes()[: self.library.vramcast_num_shapes()]  # type: ignore[no-any-return]

    def name(self, index: int) -> str:
        return self.library.vramcast_name(index).decode() if index >= 0 else ""

    def block_id(self, address: int) -> int:
        """The number of the live allocation at an address (a storage's data_ptr), or 0."""
        return int(self.library.vramcast_block_id(address))
