"""Counts the Python functions that the program calls in a step, without those of the simulation.

On a real GPU they take time on the host between two operators. A count is the same in every run;
measured seconds would not be.
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType

import torch

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_TORCH = os.path.dirname(torch.__file__) + os.sep
# Python code that runs only on the simulated device, where a real GPU has compiled kernels.
_OF_META_KERNELS = ("_meta_registrations", "_prims", "_refs", "_decomp", "_subclasses")
_HIDDEN = _PACKAGE, *(_TORCH + name for name in (*_OF_META_KERNELS, "_library/fake", "library.py"))
# Functions of ours that call the program's functions.
_PASSED_THROUGH = (
    *("locations.py:__call__", "backward_threads.py:run_to_the_end", "session.py:_user_code"),
    *("watching.py:__call__", "watching.py:run", "loaders.py:__next__"),
    *("accumulating.py:passes", "accumulating.py:gated", "torch_dynamo.py:call"),
    *("distributed_data_parallel.py:run", "library.py:func_no_dynamo", "torch_compile.py:compile"),
    *("torch_compile.py:_compiled", "forced_changes.py:forward", "forced_changes.py:backward"),
)
_COUNTED, _PASSED, _SKIPPED = range(3)


KIND_CALLBACK = ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.py_object)


class PythonCalls:
    """Counts in the thread that switches it on. A profiler of the program itself replaces it."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """`library` is the compiled device: native/python_calls.h does the counting."""
        # calls functions with Python's global lock held
        self._library = ctypes.PyDLL(library._name)
        self._library.vramcast_count_python_calls.argtypes = [ctypes.py_object, KIND_CALLBACK]
        self._library.vramcast_num_python_calls.restype = ctypes.c_int64
        # must live as long as C++ has the pointer to it
        self._kind_of = KIND_CALLBACK(_kind_of)
        self._library.vramcast_restart_python_calls()

    @property
    def of_step(self) -> int:
        return int(self._library.vramcast_num_python_calls())

    def begin_step(self) -> None:
        self._library.vramcast_restart_python_calls()
        self._start()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Does not count in this block, which is no part of a usual step, such as compiling it."""
        running: object = sys.getprofile()
        self.stop()
        try:
            yield
        finally:
            if running is self:
                self._start()

    def pause(self, is_paused: bool) -> bool:
        """Stops counting until it is called again, for use within a function that is not counted
        anyway. False where the program has a profiler of its own."""
        running: object = sys.getprofile()
        if is_paused and running is not self:
            return False
        self._library.vramcast_pause_python_calls(is_paused)
        return True

    def _start(self) -> None:
        if sys.getprofile() is None:
            self._library.vramcast_count_python_calls(self, self._kind_of)

    def stop(self) -> None:
        running: object = sys.getprofile()
        if running is self:
            self._library.vramcast_stop_python_calls()


def _kind_of(code: CodeType) -> int:
    if not code.co_filename.startswith(_HIDDEN):
        return _COUNTED
    name = f"{os.path.basename(code.co_filename)}:{code.co_name}"
    return _PASSED if name in _PASSED_THROUGH else _SKIPPED
