"""`getattr(timm, NAME)`: the function that builds a training step of that model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def __getattr__(name: str) -> Callable[..., Any]:
    if name.startswith("__"):
        raise AttributeError(name)
    from vramcast_zoo.known.workloads import workload

    return workload(f"timm:{name}")
