"""Where an allocation came from: the line of the user's program and the module that was running."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any, NamedTuple

import torch

from vramcast.records.store import cache_folder

MAX_FRAMES = 80
# code that is not the user's: torch, vramcast, what torch.compile writes, Python's import system
HIDDEN = (
    str(cache_folder()) + os.sep,
    os.path.dirname(torch.__file__) + os.sep,
    os.path.dirname(os.path.dirname(__file__)) + os.sep,
    "<frozen ",
)


def _no_module() -> None:
    return None


class Location(NamedTuple):
    file: str
    line: int
    function: str
    module: Callable[[], torch.nn.Module | None] = _no_module  # a weak reference

    @property
    def source(self) -> str:
        return f"{_short(self.file)}:{self.line} in {self.function}"


class _Running(threading.local):
    """The modules that are running in this thread, outermost first."""

    def __init__(self) -> None:
        self.modules: list[torch.nn.Module] = []


class Locations:
    """Gives distinct locations numbers, by walking the Python stack.

    It keeps nothing of the program alive but code: modules are weak references.
    """

    def __init__(self) -> None:
        self.found: list[Location] = []
        self._running = _Running()
        self._numbers: dict[tuple[str, str, int, int], int] = {}

    @contextmanager
    def watching_modules(self) -> Iterator[None]:
        now, call = self._running, torch.nn.Module.__call__

        def __call__(self: torch.nn.Module, *arguments: Any, **options: Any) -> Any:
            now.modules.append(self)
            try:
                return call(self, *arguments, **options)
            finally:
                now.modules.pop()

        torch.nn.Module.__call__ = __call__  # type: ignore[method-assign]
        try:
            yield
        finally:
            torch.nn.Module.__call__ = call  # type: ignore[method-assign]

    def here(self) -> int:
        """The number of the current location, or -1 outside of the user's code."""
        # autograd's own threads have no frame but this one
        frame: FrameType | None = sys._getframe().f_back
        for _ in range(MAX_FRAMES):
            if frame is None:
                break
            if _is_user_code(frame.f_code.co_filename):
                modules = self._running.modules
                return self._number(frame, modules[-1] if modules else None)
            frame = frame.f_back
        return -1

    def _number(self, frame: FrameType, module: torch.nn.Module | None) -> int:
        code, line = frame.f_code, frame.f_lineno
        # as its id, of which those who watch what a program opens are not told
        key = code.co_filename, code.co_name, line, object.__hash__(module)
        number = self._numbers.get(key)
        # a new module may have the place of one that is gone
        if number is None or self.found[number].module() is not module:
            number = self._numbers[key] = len(self.found)
            reference = weakref.ref(module) if module is not None else _no_module
            self.found.append(Location(code.co_filename, line, code.co_name, reference))
        return number


def line_of(frame: FrameType | None) -> str:
    """Of the user's code, where there is any on the stack, else of what is running."""
    running = frame
    for _ in range(MAX_FRAMES):
        if frame is None or _is_user_code(frame.f_code.co_filename):
            break
        frame = frame.f_back
    shown = frame or running
    assert shown is not None
    return Location(shown.f_code.co_filename, shown.f_lineno, shown.f_code.co_name).source


@cache
def _is_user_code(file: str) -> bool:
    return not file.startswith(HIDDEN)


@cache
def _short(path: str) -> str:
    """An installed package's file without the folder of the installation."""
    if "site-packages/" in path:
        return path.rpartition("site-packages/")[2]
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
