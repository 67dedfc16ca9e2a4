"""What is replaced in torch and other libraries while a GPU is simulated: one file for each part.

To patch another library, add a file with the reason and the versions in its docstring, the module
in LIBRARY, and `apply(patcher)`, which replaces attributes with `patcher.put`; they are put back
later. It is called once the library is imported.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from vramcast.simulate.gpu import SimulatedGpu
from vramcast.simulate.patching import Patcher

PATCHES = [
    importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)
]


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function with the name of each of some modules, once it was imported."""

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
def installed(gpu: SimulatedGpu) -> Iterator[None]:
    """Inside this block the libraries answer for the simulated GPU, also those that are imported
    meanwhile."""
    patcher = Patcher(gpu)

    def patch(library: str) -> None:
        for patch in PATCHES:
            if library == patch.LIBRARY:
                patch.apply(patcher)

    libraries = dict.fromkeys(patch.LIBRARY for patch in PATCHES)
    finder = _AfterImport(libraries.keys() - sys.modules.keys(), patch)
    try:
        for library in libraries:
            if library in sys.modules:
                patch(library)
        sys.meta_path.insert(0, finder)
        yield
    finally:
        sys.meta_path.remove(finder)
        patcher.undo()
