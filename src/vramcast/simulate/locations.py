"""Where an allocation came from: the line of the user's program and the module that was running."""

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch

from vramcast.records.store import cache_folder
from vramcast.workload.tracebacks import shown_path

# code that is not the user's: torch, vramcast, code written by torch.compile, Python's import
# system
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

    def __init__(self, tell: Callable[[list[Any]], object]) -> None:
        self.modules: list[torch.nn.Module] = []
        tell(self.modules)


class Locations:
    """The locations that the compiled device has found by walking the Python stack
    (native/locations.h).

    Of the program it keeps only code alive: modules are weak references.
    """

    def __init__(self, tell: Callable[[list[Any]], object]) -> None:
        """`tell` is called in each thread with its list of running modules."""
        self.found: list[Location] = []
        self._running = _Running(tell)

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

    def add(self, code: CodeType, line: int) -> int:
        """Gives a line of the running module its number, when it is first seen."""
        module = self._running.modules[-1:]
        reference = weakref.ref(module[0]) if module else _no_module
        self.found.append(Location(code.co_filename, line, code.co_name, reference))
        return len(self.found) - 1


def line_of(frame: FrameType | None) -> str:
    """The innermost line of the user's code on the stack, or else the running line."""
    shown = frame
    while shown is not None and not is_of_user(shown.f_code):
        shown = shown.f_back
    shown = shown or frame
    assert shown is not None
    return Location(shown.f_code.co_filename, shown.f_lineno, shown.f_code.co_name).source


def is_of_user(code: CodeType) -> bool:
    return not code.co_filename.startswith(HIDDEN)


_short = cache(shown_path)
