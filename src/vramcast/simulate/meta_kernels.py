"""Loads torch's Meta kernels written in Python only when they are needed.

Loading them takes a quarter of torch's import time, and those in C++ are faster, so these stay in
use. The Python ones are loaded when an operator has no other, or when a program imports a module
that needs them.
"""

import functools
import importlib
import importlib.abc
import importlib.machinery
import inspect
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

NAME = "torch._meta_registrations"
# These import each other in a circle that works only when NAME is imported first.
CIRCLE = (NAME, "torch._decomp", "torch._refs", "torch._prims", "torch.utils._content_store")


class LoadFirst(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Calls `load` when one of these modules is imported; `load` imports that module too."""

    def __init__(self, names: Callable[[str], bool], load: Callable[[], object]) -> None:
        self._names, self._load = names, load
        sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not self._names(name):
            return None
        self._load()
        if name not in sys.modules:
            return None
        # Python would now run the module a second time by its own spec: this one does nothing.
        self.real_spec = sys.modules[name].__spec__
        empty = importlib.machinery.ModuleSpec(name, self)
        sys.modules[name].__spec__ = empty
        return empty

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return sys.modules[spec.name]

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self.real_spec


def import_torch_without_them() -> None:
    """Imports torch with an empty module in place of its Python Meta kernels."""
    placeholder = types.ModuleType(NAME)
    sys.modules[NAME] = placeholder
    import torch

    del sys.modules[NAME]
    if getattr(torch, "_meta_registrations", None) is placeholder:
        del torch._meta_registrations
    _allow_generators()
    if not any(name in sys.modules for name in CIRCLE):
        LoadFirst(CIRCLE.__contains__, load)
        torch.__getattr__ = _load_attribute(torch.__getattr__)  # type: ignore[method-assign]


def _load_attribute(get: Callable[[str], Any]) -> Callable[[str], Any]:
    """torch uses torch._refs without importing it, because usually it is already there."""

    @functools.wraps(get)
    def get_or_load(name: str) -> Any:
        full = f"torch.{name}"
        return importlib.import_module(full) if full in CIRCLE else get(name)

    return get_or_load


def _allow_generators() -> None:
    """Allows torch.Generator(), which a shuffling DataLoader makes. From 2.13 on torch refuses it
    until one of those modules has set this."""
    import torch

    if hasattr(torch._C, "_set_generator_metaclass"):
        try:
            base = importlib.import_module("torch._custom_class_base").CustomClassBaseMeta
        except ImportError:  # its name up to torch 2.14
            base = importlib.import_module("torch._opaque_base").OpaqueBaseMeta
        torch._C._set_generator_metaclass(base)


_kept: list[Any] = []  # a library's kernels disappear when it is freed


def load() -> bool:
    """Registers the Python kernels where there is no C++ Meta kernel. False if that was done
    before."""
    if NAME in sys.modules or _kept:
        return False
    import torch

    # its warnings name the caller, which must not be our wrapper
    torch.__getattr__ = inspect.unwrap(torch.__getattr__)  # type: ignore[method-assign]

    register = torch.library.Library.impl

    def register_if_missing(
        self: Any, op_name: Any, function: Any, dispatch_key: str = "", **options: Any
    ) -> Any:
        name = op_name if isinstance(op_name, str) else op_name.name()
        if (dispatch_key or self.dispatch_key) == "Meta" and self.ns == "aten":
            name = name if "::" in name else f"aten::{name}"
            if torch._C._dispatch_has_kernel_for_dispatch_key(name, "Meta"):
                return None
        return register(self, op_name, function, dispatch_key, **options)

    torch.library.Library.impl = register_if_missing  # type: ignore[method-assign,assignment]
    try:
        _kept.append(torch.library.Library("aten", "IMPL", "Meta"))
        _add_products(_kept[-1])
        importlib.import_module(NAME)
    finally:
        torch.library.Library.impl = register  # type: ignore[method-assign]
    return True


def _add_products(library: Any) -> None:
    """Adds kernels of products whose result has another type. torch has none for some of them, and
    up to 2.12 uses the kernel of another overload for others."""
    for name in ("_scaled_mm.out", "bmm.dtype_out", "addmm.dtype_out", "baddbmm.dtype_out"):
        library.impl(name, lambda *_, out, **__: out)
    for name in ("addmm.dtype", "baddbmm.dtype"):
        library.impl(name, _added_product)
    library.impl("_weight_int4pack_mm", lambda x, w, *_: x.new_empty(len(x), 8 * len(w)))


def _added_product(_: Any, left: Any, right: Any, out_dtype: Any, **__: Any) -> Any:
    return left.new_empty((*left.shape[:-1], right.shape[-1]), dtype=out_dtype)
