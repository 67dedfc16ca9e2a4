"""Name -> model and workload.

`names.e10_391m` is `e10.build` with the sizes of e10-391m as its defaults, made when first asked
for.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vramcast_zoo.catalogue import BY_NAME, ENTRIES

if TYPE_CHECKING:
    from torch import nn


def make(name: str, **options: Any) -> nn.Module:
    """The model itself, on torch's default device."""
    entry = BY_NAME[name]
    model: nn.Module = importlib.import_module(f"vramcast_zoo.{entry.family}").make_model(
        **{**entry.sizes, **options}
    )
    return model


def __getattr__(function: str) -> Callable[..., Any]:
    entry = next((entry for entry in ENTRIES if entry.function == function), None)
    if entry is None:
        raise AttributeError(f"module {__name__!r} has no attribute {function!r}")
    from vramcast_zoo.training import with_defaults

    family = importlib.import_module(f"vramcast_zoo.{entry.family}")
    return with_defaults(family.build, entry.function, {**entry.sizes, **entry.knobs})


def __dir__() -> list[str]:
    return sorted(["make", *(entry.function for entry in ENTRIES)])
