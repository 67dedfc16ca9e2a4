"""CUDA graphs and private memory pools do nothing.

Why: what a graph captures is simulated as it runs; replaying it takes no further memory. A graph's
private memory pool is not modelled, and the answer says so.
Versions: torch 2.10 to 2.15.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from vramcast.simulate.patching import DoesNothing, Patcher

LIBRARY = "torch"
NOTE = (
    "CUDA graphs are not modelled: the step was simulated as eager code; "
    "a graph keeps memory of its own and takes more"
)
POOL_NOTE = "torch.cuda.MemPool is not modelled: its memory was taken from the usual pools"


@contextmanager
def use_mem_pool(*_: Any, **__: Any) -> Iterator[None]:
    """Made by contextlib like torch's own: torch 2.14 looks for the function that it wraps."""
    yield


def apply(patcher: Patcher) -> None:
    class Graph(DoesNothing):
        """A class, as in torch: transformers has `torch.cuda.CUDAGraph | None` in a signature."""

        def __init__(self, *_: Any, **__: Any) -> None:
            patcher.gpu.note(NOTE)

        capture_begin = capture_end = replay = reset = DoesNothing.do_nothing

        def pool(self) -> tuple[int, int]:
            return 0, 0

    def make_graphed_callables(callables: Any, *_: Any, **__: Any) -> Any:
        patcher.gpu.note(NOTE)
        return callables

    patcher.put(torch.cuda.graphs, "_cuda_isCurrentStreamCapturing", lambda: False)

    class MemPool(DoesNothing):
        id = (0, 1)

        def __init__(self, *_: Any, **__: Any) -> None:
            patcher.gpu.note(POOL_NOTE)

    for module in (torch.cuda, torch.cuda.memory):
        patcher.put(module, "MemPool", MemPool)
        patcher.put(module, "use_mem_pool", use_mem_pool)
    patcher.put(torch.cuda, "CUDAGraph", Graph)
    patcher.put(torch.cuda, "graph", Graph)
    patcher.put(torch.cuda, "graph_pool_handle", lambda: (0, 0))
    patcher.put(torch.cuda, "make_graphed_callables", make_graphed_callables)
