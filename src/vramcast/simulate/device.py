"""Loads the compiled device under torch, and reads back what it recorded.

It must be loaded before torch: torch looks for its CUDA support once, at start-up.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, c_bool, c_char_p, c_double, c_int32, c_int64, c_void_p
from typing import TYPE_CHECKING, Any

from vramcast.allocator import compiled
from vramcast.allocator.replay import EMPTY_CACHE
from vramcast.simulate import libraries, meta_kernels, stream_classes
from vramcast.simulate.build import build
from vramcast.tracing.work import OperatorWork

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

STEP = 0  # as an event: a step begins


class Allocation(ctypes.Structure):
    """Mirrors struct Allocation in native/recorder.h."""

    _fields_ = [
        ("num_bytes", c_int64),
        ("operator_name", c_int32),
        ("node_name", c_int32),
        ("phase", c_int32),
        ("dtype", c_int32),
        ("shape_offset", c_int32),
        ("num_dims", c_int32),
        ("location", c_int64),
        ("stream", c_int64),
    ]


class Work(ctypes.Structure):
    """Mirrors struct Work in native/work.h."""

    _fields_ = [
        ("flops", c_double),
        ("num_bytes", c_double),
        ("sizes", c_int64 * 4),
        ("operator_name", c_int32),
        ("dtype", c_int32),
        ("phase", c_int32),
        ("access", c_int32),
        ("stream", c_int64),
    ]


LOCATION_CALLBACK = ctypes.PYFUNCTYPE(c_int64, ctypes.py_object, c_int32)
CODE_CALLBACK = ctypes.PYFUNCTYPE(c_int32, ctypes.py_object)
LIMIT_CALLBACK = ctypes.CFUNCTYPE(c_int32, c_int64, c_int64)
META_LOADER = ctypes.CFUNCTYPE(c_int32)
FINISHED_CALLBACK = ctypes.CFUNCTYPE(c_int64, c_int64)
# The functions of native/exports.h: what each returns, then what it takes.
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "install": (None,),
    "set_gpu": (None, c_int32, c_int32, c_int64, c_int64, c_bool),
    "set_meta_loader": (None, META_LOADER),
    "set_finished_callback": (None, FINISHED_CALLBACK),
    "set_healthy": (None, c_double, c_double),
    "begin_overlaps": (None, c_double),
    "overlaps_were_asked": (c_bool,),
    "set_limit_callback": (None, LIMIT_CALLBACK),
    "set_out_of_memory_message": (None, c_char_p),
    "enable": (None, c_bool),
    "set_recording": (None, c_bool),
    "end_thread": (None,),
    "set_excluded": (c_bool, c_bool),
    "wants_one_device": (c_bool, c_char_p),
    "reset": (None,),
    "keep_all": (None,),
    "mark": (None, c_int64),
    "allocated": (c_int64,),
    "peak_allocated": (c_int64,),
    "events": (c_int64, POINTER(c_int64), c_int64, c_int64),
    "shapes": (c_int64, POINTER(c_int64), c_int64, c_int64),
    "allocations": (c_int64, POINTER(Allocation), c_int64, c_int64),
    "work": (c_int64, POINTER(Work), c_int64, c_int64),
    "work_begins": (c_int64, POINTER(c_int64), c_int64, c_int64),
    "name": (c_char_p, c_int64),
    "make_gpu_generators": (None, c_bool),
    "draw_elements": (None, c_int64, c_int64),
    "take_random": (None, c_int64),
    "begin_pool": (None, c_int64, c_int64, c_bool),
    "end_pool": (None, c_int64),
    "take_gemm_workspace": (None, c_bool),
    "drop_gemm_workspaces": (None,),
    "num_work": (c_int64,),
    "num_python_calls": (c_int64,),
    "note_group": (None, c_char_p, c_int64),
    "wait_for_groups": (None,),
    "wait_for_collective": (None, c_int64),
    "repeat_work": (None, c_int64, c_int64),
    "repeat_events": (None, c_int64, c_int64, c_bool),
    "append_work": (None, c_int64, c_int64),
    "replayed_since": (None, c_int64),
    "captured_since": (None, c_int64),
    "stream": (c_int64,),
    "set_stream": (None, c_int64),
    "stream_priority": (c_int32, c_int64),
    "elapsed_milliseconds": (c_double, c_int64, c_int64),
    "num_held": (c_int64,),
    "finish_stream": (None,),
    "num_host_reads": (c_int64,),
    "finish_all": (None,),
    "device_allocator": (c_int64,),
    "host_allocator": (c_int64,),
    "resize_storage": (None, c_int64, c_int64),
    "block_ids": (None, c_void_p, c_int64, c_void_p),
    "begin_kernel": (c_int32, c_char_p),
    "end_kernel": (None, c_int32),
    "add_work": (None, c_char_p, c_int32, c_double, c_double, c_int64 * 4, c_int32),
}


def _load() -> ctypes.CDLL:
    """Before torch starts."""
    if "torch" in sys.modules:
        raise RuntimeError("the simulated device must be loaded before torch is imported")
    libraries.wait()
    for path in libraries.paths():
        ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(str(build()))
    for name, (result, *arguments) in FUNCTIONS.items():
        function = getattr(library, f"vramcast_{name}")
        function.restype, function.argtypes = result, arguments
    return library


class Device:
    """The one simulated device of a process."""

    def __init__(self) -> None:
        self.library = library = _load()
        # calls functions with Python's global lock held
        self._with_lock = ctypes.PyDLL(library._name)
        meta_kernels.import_torch_without_them()
        # must live as long as C++ has the pointer to it
        self._loader = META_LOADER(lambda: int(meta_kernels.load()))
        library.vramcast_set_meta_loader(self._loader)
        library.vramcast_install()
        compiled.use(library)
        stream_classes.install(library)

    def watch_progress(self, num_finished: Callable[[int], int]) -> None:
        """`num_finished` tells how many launches the GPU would have finished by now; before that
        the host waits for the given number."""
        # must live as long as C++ has the pointer to it
        self._finished = FINISHED_CALLBACK(num_finished)
        self.library.vramcast_set_finished_callback(self._finished)

    @contextmanager
    def on(self) -> Iterator[None]:
        """Simulate every torch operator of this thread, of the backward passes it starts, and of
        any other thread that uses the GPU."""
        self.library.vramcast_enable(True)
        self.library.vramcast_set_recording(True)
        try:
            yield
        finally:
            self.library.vramcast_set_recording(False)
            self.library.vramcast_enable(False)

    def tell_running(self, modules: list[Any]) -> None:
        """The modules that run in this thread, now and later."""
        self._with_lock.vramcast_set_running_modules(ctypes.py_object(modules))

    @contextmanager
    def locating(
        self, add: Callable[[Any, int], int], is_of_user: Callable[[Any], bool], minimum_bytes: int
    ) -> Iterator[None]:
        """Find the lines of large allocations and of autograd nodes; `add` numbers a new one."""
        set_callbacks = self._with_lock.vramcast_set_location_callbacks
        # must live as long as C++ has the pointers to them
        callbacks = LOCATION_CALLBACK(add), CODE_CALLBACK(is_of_user)
        set_callbacks(*callbacks, c_int64(minimum_bytes))
        try:
            yield
        finally:
            set_callbacks(None, None, c_int64(0))

    def reset(self) -> None:
        self.library.vramcast_reset()

    def mark_step(self) -> None:
        self.library.vramcast_mark(STEP)

    def empty_cache(self) -> None:
        self.library.vramcast_mark(EMPTY_CACHE)

    def allocated_bytes(self) -> int:
        return int(self.library.vramcast_allocated())

    def peak_allocated_bytes(self) -> int:
        return int(self.library.vramcast_peak_allocated())

    def events(self, start: int = 0) -> list[int]:
        return self._copy("events", c_int64, start)[:]

    def allocations(self, start: int = 0) -> Sequence[Allocation]:
        return self._copy("allocations", Allocation, start)

    def num(self, name: str) -> int:
        """Of events, allocations or work."""
        return int(getattr(self.library, f"vramcast_{name}")(None, 0, 0))

    def num_allocations(self) -> int:
        return self.num("allocations")

    def events_array(self) -> NDArray[np.int64]:
        return self._array("events", c_int64)

    def allocations_array(self) -> NDArray[Any]:
        """With the fields of Allocation."""
        return self._array("allocations", Allocation)

    def work_array(self, start: int = 0, end: int | None = None) -> NDArray[Any]:
        """What each operator computed and moved, in order, with the fields of Work."""
        return self._array("work", Work, start, end)

    def work_begins(self) -> list[int]:
        """Where in that each step begins."""
        return self._copy("work_begins", c_int64)[:]

    def work(self, start: int) -> Sequence[Work]:
        return self._copy("work", Work, start)

    def operator_work(self, done: Work) -> OperatorWork:
        return OperatorWork(
            self.name(done.operator_name).partition(".")[0],
            done.dtype,
            done.flops,
            done.num_bytes,
            tuple(done.sizes),
            done.phase,
            done.access,
            done.stream,
        )

    def shapes(self) -> Sequence[int]:
        """The dimensions of all allocations, one after the other."""
        return self._copy("shapes", c_int64)

    def name(self, index: int) -> str:
        return self.library.vramcast_name(index).decode() if index >= 0 else ""

    def block_ids(self, addresses: Sequence[int]) -> list[int]:
        """The numbers of the live allocations at addresses (a storage's data_ptr), or 0."""
        import numpy as np

        given, ids = np.array(addresses, np.int64), np.empty(len(addresses), np.int64)
        self.library.vramcast_block_ids(given.ctypes.data, len(given), ids.ctypes.data)
        found: list[int] = ids.tolist()
        return found

    def _array(self, name: str, kind: Any, start: int = 0, end: int | None = None) -> NDArray[Any]:
        import numpy as np

        items = self._copy(name, kind, start, end)
        return np.frombuffer(items, kind) if len(items) else np.empty(0, kind)

    def _copy(self, name: str, kind: Any, start: int = 0, end: int | None = None) -> Any:
        """A list as it is now; the device's own may move when it grows."""
        copy = getattr(self.library, f"vramcast_{name}")
        count = max((copy(None, 0, 0) if end is None else end) - start, 0)
        items = (kind * count)()
        copy(items, start, count)
        return items
