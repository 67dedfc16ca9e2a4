"""Inductor's CUDA graphs (mode="reduce-overhead") take their memory in a private pool.

Why: torch's own trees of graphs rebuild tensors from addresses of the driver. Here a function runs
as there: first in the pool to warm up, then captured, with copies of its inputs that it gives back
when it has used them. Later it is replayed in the memory it has, and the host launches nothing.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from vramcast.simulate.patching import Patcher

LIBRARY = "torch._inductor.cudagraph_trees"
WARM_UP, CAPTURE = range(2)  # what the first two runs do


def apply(patcher: Patcher) -> None:
    library = patcher.gpu.device.library

    def cudagraphify(model: Any, inputs: Any, static_inputs: Any, *_: Any, **__: Any) -> Any:
        # one graph for every combination of whole numbers
        numbers = [i for i, value in enumerate(inputs) if isinstance(value, int)]
        functions: dict[tuple[int, ...], _Graphed] = {}

        def run(inputs: list[Any]) -> Any:
            kept, name = patcher.gpu.library_memory, "cudagraph trees"
            trees = kept.get(name) or kept.setdefault(name, _Trees(library))
            key = tuple(inputs[i] for i in numbers)
            function = functions.setdefault(key, _Graphed(model, set(static_inputs)))
            return function.run(trees, inputs)

        return run

    patcher.put(sys.modules[LIBRARY], "cudagraphify_impl", cudagraphify)


class _Trees:
    """The pool and the stream of all graphs, and where their results are."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.id = torch.cuda.graph_pool_handle()
        self.stream = torch.cuda.Stream()
        self.results: set[int] = set()
        # as torch does, so that the pool stays
        self._first = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._first, pool=self.id, stream=self.stream):
            pass

    @contextmanager
    def allocating(self) -> Iterator[None]:
        """What is allocated in this block comes from the pool, on its stream."""
        torch.cuda.synchronize()
        with self.in_pool():
            yield

    @contextmanager
    def in_pool(self) -> Iterator[None]:
        pool: Any = self
        with torch.cuda.stream(self.stream), torch.cuda.use_mem_pool(pool):
            yield

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """Captures this block as a graph, then replays it: a capture computes nothing."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.id, stream=self.stream):
            yield
        graph.replay()

    def has(self, tensor: torch.Tensor) -> bool:
        return _storage(tensor) in self.results


class _Graphed:
    def __init__(self, model: Callable[[list[Any]], Any], static_inputs: set[int]) -> None:
        self._model, self._static_inputs = model, static_inputs
        self._num_runs, self._copied = 0, list[int]()

    def run(self, trees: _Trees, inputs: list[Any]) -> Any:
        if self._num_runs == CAPTURE:
            torch.cuda.synchronize()
            self._copied = [i for i, value in enumerate(inputs) if self._is_copied(trees, i, value)]
        before = trees.library.vramcast_num_work()
        given = {*map(_storage, filter(_is_on_gpu, inputs))}
        self._copy(trees, inputs)
        with ExitStack() as stack:
            trees.library.vramcast_drop_gemm_workspaces()
            stack.callback(trees.library.vramcast_drop_gemm_workspaces)
            run = trees.capturing if self._num_runs == CAPTURE else trees.allocating
            stack.enter_context(run())
            results = self._model(inputs)
        if self._num_runs > CAPTURE:
            trees.library.vramcast_replayed_since(before)
        self._num_runs += 1
        # a result may be a view of an input
        trees.results |= {*map(_storage, filter(_is_on_gpu, results))} - given
        return results

    def _is_copied(self, trees: _Trees, index: int, value: Any) -> bool:
        return index not in self._static_inputs and _is_on_gpu(value) and not trees.has(value)

    def _copy(self, trees: _Trees, inputs: list[Any]) -> None:
        """The function frees a copy when it has used it for the last time."""
        for index in self._copied:
            value = inputs[index]
            with trees.in_pool():
                inputs[index] = value.new_empty_strided(value.shape, value.stride())
            inputs[index].copy_(value)


def _is_on_gpu(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_cuda


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
