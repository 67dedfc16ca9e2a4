"""torch._dynamo is imported only when something of it is used.

Why: optimizers import it to switch it off, and the import takes longer than most predictions.
Undo: none is needed, because the placeholder becomes the real module when it is used.
Versions: torch 2.10 to 2.15.
"""

from __future__ import annotations

import importlib.machinery
import sys
import types
from typing import Any

import torch

from vramcast.simulate import meta_kernels
from vramcast.simulate.patching import Patcher

LIBRARY = "torch"
NAME = "torch._dynamo"


def apply(_: Patcher) -> None:
    if NAME not in sys.modules:
        sys.modules[NAME] = _LazyDynamo(NAME)


class _LazyDynamo(types.ModuleType):
    @staticmethod
    def disable(function: Any = None, recursive: bool = True, **_: Any) -> Any:
        return function if function is not None else (lambda f: f)

    @staticmethod
    def graph_break(*_: Any, **__: Any) -> None: ...

    @staticmethod
    def is_compiling() -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._become_real()
        return getattr(self, name)

    @property
    def __path__(self) -> list[str]:  # type: ignore[override]
        """Python asks for it when a submodule is imported, which needs the real module."""
        self._become_real()
        return self.__path__

    def _become_real(self) -> None:
        """Run the real module in this object, so that existing references see the real one."""
        meta_kernels.load()  # first, or the imports below meet a half-initialised torch
        spec = importlib.machinery.PathFinder.find_spec(NAME, torch.__path__)
        assert spec is not None and spec.loader is not None
        self.__class__ = types.ModuleType  # type: ignore[assignment]
        self.__spec__, self.__loader__, self.__file__ = spec, spec.loader, spec.origin
        self.__path__, self.__package__ = spec.submodule_search_locations or [], NAME
        spec.loader.exec_module(self)
