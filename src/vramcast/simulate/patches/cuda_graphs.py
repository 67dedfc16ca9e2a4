"""CUDA graphs and private memory pools: their allocations come from pools of their own.

Why: torch.cuda.graph and make_graphed_callables stay torch's own; capturing and replaying ask the
driver. What a graph captures is simulated as it is captured; replaying it takes no further memory,
and does the same work again.
"""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from vramcast.simulate.patching import Patcher

LIBRARY = "torch"


def apply(patcher: Patcher) -> None:
    library = patcher.gpu.device.library
    numbers = itertools.count(1)
    capturing: list[Any] = []

    def new_pool() -> tuple[int, int]:
        return 0, next(numbers)

    class MemPool:
        def __init__(self, *_: Any, **__: Any) -> None:
            self.id = new_pool()

        def use_count(self) -> int:
            return 1

        def snapshot(self) -> list[Any]:
            return []

    @contextmanager
    def use_mem_pool(pool: Any, *_: Any, **__: Any) -> Iterator[None]:
        """Made by contextlib like torch's own: torch 2.14 looks for the function that it wraps."""
        library.vramcast_begin_pool(pool.id[1], 0, True)
        try:
            yield
        finally:
            library.vramcast_end_pool(pool.id[1])

    for module in (torch.cuda, torch.cuda.memory):
        patcher.put(module, "MemPool", MemPool)
        patcher.put(module, "use_mem_pool", use_mem_pool)
    graph = _graph_class(patcher, new_pool, capturing)
    for module in (torch.cuda, torch.cuda.graphs):
        patcher.put(module, "CUDAGraph", graph)
        patcher.put(module, "graph_pool_handle", new_pool)
    patcher.put(torch.cuda.graphs, "_cuda_isCurrentStreamCapturing", lambda: bool(capturing))
    patcher.put(torch.cuda.graph, "default_capture_stream", None)
    patcher.put(torch._C, "_host_emptyCache", lambda *_: None, add=True)


def _graph_class(
    patcher: Patcher, new_pool: Callable[[], tuple[int, int]], capturing: list[Any]
) -> type:
    library = patcher.gpu.device.library

    class Graph:
        """A class, as in torch: transformers has `torch.cuda.CUDAGraph | None` in a signature."""

        def __init__(self, *_: Any, **__: Any) -> None:
            self._pool: tuple[int, int] | None = None
            self._begin = self._end = 0
            self._graphs, self._is_waiting = patcher.gpu.graphs, True
            self._graphs.num_waiting += 1

        def __del__(self) -> None:
            self._graphs.num_waiting -= self._is_waiting

        def capture_begin(self, pool: Any = None, *_: Any, **__: Any) -> None:
            if not (state := patcher.gpu.library_memory.setdefault("graph random state", [])):
                state += [torch.empty(1, dtype=torch.int64, device="cuda") for _ in range(2)]
            self._pool = tuple(pool) if pool is not None else self._pool or new_pool()
            library.vramcast_begin_pool(self._pool[1], library.vramcast_stream(), False)
            library.vramcast_begin_capture(library.vramcast_stream())
            capturing.append(self)
            self._begin = library.vramcast_num_work()

        def capture_end(self) -> None:
            library.vramcast_end_capture()
            self._end = library.vramcast_num_work()
            library.vramcast_captured_since(self._begin)
            self._graphs.num_captures += 1
            self._graphs.num_waiting -= self._is_waiting
            self._is_waiting = False
            capturing.remove(self)
            library.vramcast_end_pool(self.pool()[1])

        def replay(self) -> None:
            library.vramcast_repeat_work(self._begin, self._end)

        def pool(self) -> tuple[int, int]:
            self._pool = self._pool or new_pool()
            return self._pool

        def reset(self) -> None: ...

        instantiate = enable_debug_mode = reset

        def register_generator_state(self, *_: Any) -> None: ...

        debug_dump = register_generator_state

    return Graph
