"""A graph that was timed while it was compiled is compiled again in the next prediction.

Why: what the timing allocates is part of a first run, and would be missing in one from the cache.
Versions: torch 2.10 to 2.15.
"""

from __future__ import annotations

import sys
from typing import Any

from vramcast.simulate.patching import Patcher

LIBRARY = "torch._functorch._aot_autograd.autograd_cache"


def apply(patcher: Patcher) -> None:
    cache = sys.modules[LIBRARY].AOTAutogradCache
    save = cache.save

    def save_unless_timed(*arguments: Any, **options: Any) -> Any:
        return None if patcher.gpu.was_timed else save(*arguments, **options)

    patcher.put(cache, "save", staticmethod(save_unless_timed))
