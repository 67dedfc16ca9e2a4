"""Every model of transformers as an attribute: `getattr(hf, "gpt2")` builds a step of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def __getattr__(name: str) -> Callable[..., Any]:
    if name.startswith("__"):
        raise AttributeError(name)
    from vramcast_zoo.known.workloads import hf

    return hf(name)
