"""Inductor's caches are keyed by the version of Triton.

Why: it goes by the contents of Triton's files, and reading those of its compiler takes half a
second. Nothing is compiled by it here.
Versions: triton 3.
"""

import sys

from vramcast.simulate.patching import Patcher

LIBRARY = "triton.runtime.cache"


def apply(patcher: Patcher) -> None:
    patcher.put(sys.modules[LIBRARY], "triton_key", lambda: sys.modules["triton"].__version__)
