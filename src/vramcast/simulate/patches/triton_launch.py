"""Launching a Triton kernel does nothing.

Why: the kernel cannot run without a GPU. Its caller allocates the results, so memory is right where
the kernel itself takes none. The answer names the kernel.
Versions: triton 3.
"""

from __future__ import annotations

import sys
from typing import Any

from vramcast.simulate.patching import Patcher

LIBRARY = "triton.runtime.jit"
NOTE = (
    "the Triton kernel {name} was launched directly: what it computes and allocates is not "
    "modelled; register it as a torch custom op with a fake kernel"
)


def apply(patcher: Patcher) -> None:
    def launch(self: Any, *_: Any, **__: Any) -> None:
        patcher.gpu.note(NOTE.format(name=getattr(getattr(self, "fn", None), "__name__", "?")))

    patcher.put(sys.modules[LIBRARY].JITFunction, "run", launch)
