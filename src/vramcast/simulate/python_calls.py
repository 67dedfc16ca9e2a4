"""Counts the Python functions that the program calls in a step, without those of the simulation.

On a real GPU they take time on the host between two operators. A count is the same in every run;
seconds would not be.
"""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType
from typing import Any

import torch

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_TORCH = os.path.dirname(torch.__file__) + os.sep
# Python that runs on the simulated device only: what a real GPU has compiled kernels for.
_OF_META_KERNELS = ("_meta_registrations", "_prims", "_refs", "_decomp", "_subclasses", "_library")
_HIDDEN = (_PACKAGE, *(_TORCH + name for name in (*_OF_META_KERNELS, "library.py", "fx" + os.sep)))
# Ours that call the program's own functions.
_PASSED_THROUGH = {
    *(("locations.py", "__call__"), ("backward_threads.py", "run_to_the_end")),
    *(("session.py", "_user_code"), ("accumulating.py", "passes"), ("accumulating.py", "gated")),
}
_COUNTED, _PASSED, _SKIPPED = range(3)


class PythonCalls:
    """Of the thread that it is switched on in; a profiler of the program itself replaces it."""

    def __init__(self) -> None:
        self.of_step = 0
        self._skipped_depth = 0  # calls inside a function of the simulation
        self._kinds: dict[CodeType, int] = {}

    def begin_step(self) -> None:
        self.of_step = self._skipped_depth = 0
        if sys.getprofile() is None:
            sys.setprofile(self._see)

    def stop(self) -> None:
        if sys.getprofile() == self._see:
            sys.setprofile(None)

    def _see(self, frame: FrameType, event: str, _: Any) -> None:
        if self._skipped_depth:
            if event == "call":
                self._skipped_depth += 1
            elif event == "return":
                self._skipped_depth -= 1
        elif event == "call":
            code = frame.f_code
            kind = self._kinds.get(code)
            if kind is None:
                kind = self._kinds[code] = _kind_of(code)
            if kind == _COUNTED:
                self.of_step += 1
            elif kind == _SKIPPED:
                self._skipped_depth = 1


def _kind_of(code: CodeType) -> int:
    if not code.co_filename.startswith(_HIDDEN):
        return _COUNTED
    name = os.path.basename(code.co_filename), code.co_name
    return _PASSED if name in _PASSED_THROUGH else _SKIPPED
