"""Calls a function once a module was imported, whenever the program does that."""

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _AfterImport(importlib.abc.MetaPathFinder):
    def __init__(self, names: Iterable[str], call: Callable[[str], None]) -> None:
        self._names, self._call = set(names), call

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name not in self._names:
            return None
        self._names.remove(name)  # the real finders are asked now
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def run_and_call(module: ModuleType) -> None:
            run(module)
            self._call(name)

        spec.loader.exec_module = run_and_call  # type: ignore[method-assign]
        return spec


@contextmanager
def after_import(names: Iterable[str], call: Callable[[str], None]) -> Iterator[None]:
    """In this block, `call` is called with a module's name after it was imported; at once for
    modules that already are."""
    names = list(dict.fromkeys(names))
    finder = _AfterImport([name for name in names if name not in sys.modules], call)
    for name in names:
        if name in sys.modules:
            call(name)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
