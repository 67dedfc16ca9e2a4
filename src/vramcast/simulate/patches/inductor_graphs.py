"""Inductor keeps no graph for which it timed kernels.

Why: timing allocates memory and leaves notes, and what Python's garbage collector frees is freed
later. A graph that comes from the cache would do nothing of it.
"""

import sys
from typing import Any

from vramcast.simulate.patching import Patcher

LIBRARY = "torch._inductor.codecache"


def apply(patcher: Patcher) -> None:
    cache, gpu = sys.modules[LIBRARY].FxGraphCache, patcher.gpu
    lookup, save = cache._lookup_graph, cache._save_graph
    begins: dict[str, int] = {}  # how many kernels had been timed when a graph was looked for

    def find(key: str, *arguments: Any, **options: Any) -> Any:
        begins[key] = gpu.num_timed
        return lookup(key, *arguments, **options)

    def save_if_not_timed(key: str, graph: Any, inputs: Any, local: bool, remote: Any) -> None:
        is_kept = gpu.num_timed == begins.get(key, gpu.num_timed)
        gpu.num_not_kept += not is_kept
        save(key, graph, inputs, local and is_kept, remote)

    patcher.put(cache, "_lookup_graph", staticmethod(find))
    patcher.put(cache, "_save_graph", staticmethod(save_if_not_timed))
