"""torch._dynamo is imported only when something of it is used, other than its configuration.

Why: optimizers import it to switch it off, and the import takes longer than most predictions.
Functions that were decorated before are decorated again by the real module.
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import sys
import types
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from vramcast.simulate import meta_kernels
from vramcast.simulate.patching import Patcher
from vramcast.simulate.quick_imports import quick_imports

LIBRARY = "torch"
NAME = "torch._dynamo"
CONFIG = f"{NAME}.config"


def apply(patcher: Patcher) -> None:
    use = torch.use_deterministic_algorithms

    def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
        """torch's version would import Inductor to tell it. inductor_config.py does that later."""
        tell = use if is_real() else torch._C._set_deterministic_algorithms
        tell(mode, warn_only=warn_only)

    patcher.put(torch, use.__name__, use_deterministic_algorithms)
    patcher.put(torch._library.utils, "get_source", _source)
    if NAME not in sys.modules:
        sys.modules[NAME] = _LazyDynamo(NAME)
        sys.modules.update((part.__name__, part) for part in LAZY_PARTS)
        meta_kernels.LoadFirst(_needs_the_real_one, become_real)


def _source(stacklevel: int) -> str:
    """torch's reads the file too."""
    frame = sys._getframe(stacklevel)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _needs_the_real_one(name: str) -> bool:
    return name.startswith(f"{NAME}.") and name != CONFIG


def is_real() -> bool:
    return not isinstance(sys.modules.get(NAME), _LazyDynamo)


class _Later:
    """A function that is decorated when torch._dynamo becomes real."""

    waiting: list[_Later] = []  # noqa: RUF012 shared by all instances

    def __init__(self, function: Any, decorate: Callable[[Any], Any]) -> None:
        self.function, self._decorate = function, decorate
        self.waiting.append(self)

    def decorate(self) -> None:
        self.function = self._decorate(self.function)


def later(function: Any, decorate: Callable[[Any], Any], *, at_first_call: bool = True) -> Any:
    """Calls `function` until torch._dynamo is real, then `decorate(function)`. With `at_first_call`
    the first call makes it real."""
    held = _Later(function, decorate)

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        if at_first_call and held in _Later.waiting:
            become_real()
        return held.function(*arguments, **options)

    return call


def become_real() -> None:
    module = sys.modules[NAME]
    if isinstance(module, _LazyDynamo):
        module._become_real()


class _LazyPart(types.ModuleType):
    """A submodule with the answers that are needed while nothing is compiled. Anything else imports
    the real one."""

    def __init__(self, name: str, **answers: Any) -> None:
        super().__init__(f"{NAME}.{name}")
        vars(self).update(answers)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._real(), name)

    def _real(self) -> types.ModuleType:
        become_real()
        return importlib.import_module(self.__name__)


# used by init_process_group and by DistributedDataParallel, which compares the mode with a name;
# torchvision imports is_compile_supported and hardly ever calls it
LAZY_PARTS: Any = (
    _LazyPart("trace_rules", clear_lru_cache=lambda: None),
    _LazyPart(
        "utils",
        get_optimize_ddp_mode=lambda: sys.modules[NAME].config.optimize_ddp,
        is_compile_supported=lambda name: LAZY_PARTS[1]._real().is_compile_supported(name),
    ),
    # used by the gradients of torch.func
    _LazyPart(
        "compiled_autograd",
        _disable=lambda: LAZY_PARTS[2]._real()._disable() if is_real() else nullcontext(),
    ),
)


class _LazyDynamo(types.ModuleType):
    trace_rules, utils, compiled_autograd = LAZY_PARTS

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = [f"{torch.__path__[0]}/_dynamo"]

    @staticmethod
    def disable(function: Any = None, recursive: bool = True, **options: Any) -> Any:
        if function is None:
            return lambda f: _LazyDynamo.disable(f, recursive, **options)
        if not isinstance(function, types.FunctionType):
            return function

        def decorate(function: Any) -> Any:
            return sys.modules[NAME].disable(function, recursive, **options)

        return later(function, decorate, at_first_call=False)

    @staticmethod
    def allow_in_graph(function: Any) -> Any:
        """Marks its argument when torch._dynamo is real. Libraries such as einx call this while
        they are imported."""
        if isinstance(function, list | tuple):
            return [_LazyDynamo.allow_in_graph(each) for each in function]
        _Later(function, lambda marked: sys.modules[NAME].allow_in_graph(marked))
        return function

    @staticmethod
    def graph_break(*_: Any, **__: Any) -> None: ...

    @staticmethod
    def is_compiling() -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "config":
            return importlib.import_module(CONFIG)
        become_real()
        return getattr(self, name)

    def _become_real(self) -> None:
        """Runs the real module in this object, so that existing references see the real one."""
        with quick_imports():
            meta_kernels.load()  # first, or the imports below see a half-initialised torch
            self._run()
        while _Later.waiting:
            _Later.waiting.pop().decorate()

    def _run(self) -> None:
        spec = importlib.machinery.PathFinder.find_spec(NAME, torch.__path__)
        assert spec is not None and spec.loader is not None
        self.__class__ = types.ModuleType  # type: ignore[assignment]
        self.__spec__, self.__loader__, self.__file__ = spec, spec.loader, spec.origin
        self.__path__, self.__package__ = spec.submodule_search_locations or [], NAME
        for part in LAZY_PARTS:
            sys.modules.pop(part.__name__, None)
        spec.loader.exec_module(self)
