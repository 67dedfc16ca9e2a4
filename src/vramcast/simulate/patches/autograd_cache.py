"""A graph that is found in the cache allocates what compiling it had allocated.

Why: memory that is allocated to time kernels is part of a first run. Its sizes are kept beside the
graph. A graph whose backward pass, compiled later, was timed is not kept, nor is one with a part
that Inductor does not keep (inductor_graphs.py).
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vramcast.records.store import cache_folder, read_text, write_atomically
from vramcast.simulate.gpu import SimulatedGpu
from vramcast.simulate.patches.torch_compile import FOLDER
from vramcast.simulate.patching import Patcher
from vramcast.tracing.trace import Compilations

LIBRARY = "torch._functorch._aot_autograd.autograd_cache"
WORKSPACE = "cublas_workspace"


def apply(patcher: Patcher) -> None:
    cache, gpu = sys.modules[LIBRARY].AOTAutogradCache, patcher.gpu
    lookup, save = cache._lookup, cache.save
    # how many allocations, spans and parts not kept there were when a graph was not found
    begins: dict[str, tuple[int, int, int]] = {}

    def find(key: str, *arguments: Any, **options: Any) -> Any:
        found = lookup(key, *arguments, **options)
        if found is None:
            done = gpu.compilations or Compilations()
            begins[key] = gpu.device.num("allocations"), len(done.spans), gpu.num_not_kept
        elif (file := _file(key)).exists():
            allocate_again(gpu, json.loads(read_text(file)))
        return found

    def save_with_allocations(key: str, *arguments: Any, **options: Any) -> Any:
        if key not in begins:
            return save(key, *arguments, **options)
        first, span, num_not_kept = begins.pop(key)
        end = _end(gpu, first, span)
        if gpu.num_not_kept > num_not_kept or (gpu.was_timed and end is not None):
            return None
        if events := allocated_between(gpu, first, end or gpu.device.num("allocations") + 1):
            write_atomically(_file(key), json.dumps(events))
        return save(key, *arguments, **options)

    patcher.put(cache, "_lookup", staticmethod(find))
    patcher.put(cache, "save", staticmethod(save_with_allocations))


def _file(key: str) -> Path:
    return cache_folder() / FOLDER / f"allocated-{key}.json"


def _end(gpu: SimulatedGpu, first: int, span: int) -> int | None:
    """The number of the first allocation after the compilation. None while it is still going on."""
    spans = gpu.compilations.spans[span:] if gpu.compilations else []
    return next((end for begin, end in spans if begin <= first + 1), None)


def allocated_between(gpu: SimulatedGpu, first: int, end: int) -> list[int]:
    """The sizes of the allocations numbered between `first` and `end`, in order; -n means that the
    n-th of them is freed. Of allocations that are not freed, cuBLAS' workspaces are 0, and others
    are left out, because they are the graph's own."""
    events, allocations = gpu.device.events_array(), gpu.device.allocations_array()
    until = np.flatnonzero(events == end)
    events = events[: until[0]] if len(until) else events
    freed = {-int(event) for event in events[(events < -first) & (events > -end)]}
    numbers: dict[int, int] = {}
    found = []
    for event in events[(np.abs(events) > first) & (np.abs(events) < end)].tolist():
        if event in freed:
            numbers[event] = len(numbers) + 1
            found.append(int(allocations["num_bytes"][event - 1]))
        elif -event in numbers:
            found.append(-numbers[-event])
        elif gpu.device.name(allocations["operator_name"][event - 1]) == WORKSPACE:
            found.append(0)
    return found


def allocate_again(gpu: SimulatedGpu, events: Iterable[int]) -> None:
    held: list[torch.Tensor | None] = []
    is_second = False  # the second workspace is that of cuBLASLt
    for event in events:
        if event > 0:
            held.append(torch.empty(event, dtype=torch.uint8, device="cuda"))
        elif event < 0:
            held[-event - 1] = None
        else:
            gpu.device.library.vramcast_take_gemm_workspace(is_second)
            is_second = True
