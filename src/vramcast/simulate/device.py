"""Loads the compiled device under torch, and reads back what it recorded.

It must be loaded before torch: torch looks for its CUDA support once, at start-up.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import (
    c_bool,
    c_char_p,
    c_double,
    c_int8,
    c_int16,
    c_int32,
    c_int64,
    c_uint8,
    c_void_p,
)
from typing import TYPE_CHECKING, Any

from vramcast.allocator import compiled
from vramcast.allocator.replay import EMPTY_CACHE
from vramcast.simulate import libraries, meta_kernels, stream_classes
from vramcast.simulate.build import SOURCES, build
from vramcast.tracing.work import OperatorWork

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

STEP = 0  # the event that a step begins


class Allocation(ctypes.Structure):
    """Mirrors struct Allocation in native/recorder.h."""

    _fields_ = [
        ("num_bytes", c_int64),
        ("stream", c_int64),
        ("operator_name", c_int32),
        ("node_name", c_int32),
        ("location", c_int32),
        ("shape_offset", c_int32),
        ("dtype", c_int16),
        ("phase", c_int8),
        ("num_dims", c_uint8),
    ]


class Work(ctypes.Structure):
    """Mirrors struct Work in native/work_list.h."""

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


class Done(ctypes.Structure):
    """Mirrors struct Done in native/work_list.h."""

    _fields_ = [("kind", c_int32), ("phase", c_int32)]


LOCATION_CALLBACK = ctypes.PYFUNCTYPE(c_int64, ctypes.py_object, c_int32)
CODE_CALLBACK = ctypes.PYFUNCTYPE(c_int32, ctypes.py_object)
LIMIT_CALLBACK = ctypes.CFUNCTYPE(c_int32, c_int64, c_int64)
META_LOADER = ctypes.CFUNCTYPE(c_int32)
FINISHED_CALLBACK = ctypes.CFUNCTYPE(c_int64, c_int64)
TYPES = {"void": None, "bool": c_bool, "double": c_double, "int32_t": c_int32, "int64_t": c_int64}
FUNCTION = re.compile(r"^([\w ]+\*? )(vramcast_\w+)\(([^{]*)\) {", re.MULTILINE)
CALLBACK = re.compile(r"\(\*\w+\)\([^)]*\)")


def _type(declared: str) -> Any:
    if "*" not in declared:
        return TYPES[declared.split()[0]]
    return c_int64 * 4 if declared.endswith("sizes") else c_void_p


def _declare(library: ctypes.CDLL) -> None:
    for result, name, given in FUNCTION.findall((SOURCES / "exports.h").read_text()):
        function, given = getattr(library, name), CALLBACK.sub("*", given)
        function.restype = c_char_p if "char" in result else _type(result)
        function.argtypes = [_type(one) for one in given.split(",") if one]


def _load() -> ctypes.CDLL:
    """Loads the compiled device. This must happen before torch is imported."""
    if "torch" in sys.modules:
        raise RuntimeError("the simulated device must be loaded before torch is imported")
    libraries.wait()
    for path in libraries.paths():
        ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(str(build()))
    _declare(library)
    return library


class Device:
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
        """`num_finished(n)` waits, in predicted time, until the GPU has finished `n` launches. It
        returns how many it has finished then."""
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

    @contextmanager
    def before_first_allocation(self, call: Callable[[], None]) -> Iterator[None]:
        """Calls it once, before the next allocation in this block."""

        def once(num_bytes: int, stream: int) -> int:
            self.library.vramcast_set_limit_callback(LIMIT_CALLBACK(0))
            call()
            return 0

        callback = LIMIT_CALLBACK(once)  # must live as long as C++ has the pointer to it
        self.library.vramcast_set_limit_callback(callback)
        try:
            yield
        finally:
            self.library.vramcast_set_limit_callback(LIMIT_CALLBACK(0))

    def tell_running(self, modules: list[Any]) -> None:
        """Gives C++ the list of the modules that run in this thread, now and later."""
        self._with_lock.vramcast_set_running_modules(ctypes.py_object(modules))

    @contextmanager
    def locating(
        self, add: Callable[[Any, int], int], is_of_user: Callable[[Any], bool], minimum_bytes: int
    ) -> Iterator[None]:
        """Finds the source lines of large allocations and of autograd nodes. `add` gives a new line
        its number."""
        set_callbacks = self._with_lock.vramcast_set_location_callbacks
        # must live as long as C++ has the pointers to them
        callbacks = LOCATION_CALLBACK(add), CODE_CALLBACK(is_of_user)
        set_callbacks(*callbacks, c_int64(minimum_bytes))
        try:
            yield
        finally:
            set_callbacks(None, None, c_int64(0))

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
        """The number of events, allocations or entries of work."""
        return int(getattr(self.library, f"vramcast_{name}")(None, 0, 0))

    def events_array(self) -> NDArray[np.int64]:
        return self._array("events", c_int64)

    def allocations_array(self) -> NDArray[Any]:
        """The allocations, as an array with the fields of Allocation."""
        return self._array("allocations", Allocation)

    def done_array(self, start: int, end: int) -> NDArray[Any]:
        """Which kind of work each operator did, in order, with the fields of Done."""
        return self._array("done", Done, start, end)

    def kind_of_work(self, number: int) -> Work:
        self.library.vramcast_kind_of_work(ctypes.byref(work := Work()), number)
        return work

    def work_begins(self) -> list[int]:
        """For each step, the index of its first entry in the list of work done."""
        return self._copy("work_begins", c_int64)[:]

    def work(self, start: int) -> Sequence[Work]:
        return self._copy("work", Work, start)

    def distinct(self, rows: NDArray[Any]) -> tuple[list[int], NDArray[np.int64]]:
        """The index of the first of each group of equal rows, and for each row the number of its
        group."""
        import numpy as np

        places, firsts = np.empty((2, len(rows)), np.int64)
        pointers = (each.ctypes.data for each in (rows, places, firsts))
        num = self.library.vramcast_distinct(len(rows), rows.strides[0], *pointers)
        return firsts[:num].tolist(), places

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

        # numpy asks for large pages
        items = np.empty(self._count(name, start, end), kind)
        getattr(self.library, f"vramcast_{name}")(items.ctypes.data, start, len(items))
        return items

    def _count(self, name: str, start: int, end: int | None = None) -> int:
        return max((self.num(name) if end is None else end) - start, 0)

    def _copy(self, name: str, kind: Any, start: int = 0) -> Any:
        """A copy of one of the device's lists: the list itself may move when it grows."""
        items = (kind * self._count(name, start))()
        getattr(self.library, f"vramcast_{name}")(items, start, len(items))
        return items
