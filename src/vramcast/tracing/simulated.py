"""What a simulated run allocated and freed, what is known about each allocation, and that as a memory trace. Plain data, no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vramcast.allocator.replay import EMPTY_CACHE
from vramcast.tracing.files import FACTS, Allocation, MemoryTrace
from vramcast.tracing.work import Work


@dataclass(frozen=True)
class AllocationDetail:
    """One allocation, described for people."""

    num_bytes: int
    category: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    operator: str
    node: str
    """The autograd node that was running, "" in the forward pass."""
    module: str
    source: str


@dataclass(frozen=True)
class Trace:
    """events: +i allocates the i-th allocation, -i frees it, 0 begins a step, EMPTY_CACHE empties the cache."""

    events: list[int]
    sizes: list[int]
    categories: list[str]
    num_parameters: int
    notes: tuple[str, ...]
    torch_version: str
    detail_of: Callable[[int], AllocationDetail]
    uses_libraries: bool = False  # flash attention or cuDNN, which load kernels of their own
    uses_solver: bool = False  # cuSOLVER, likewise
    works: Sequence[Work] = ()  # of the last step, in order
    uncalibrated_kernels: tuple[str, ...] = ()  # whose memory is an estimate


def in_canonical_order(events: Iterable[int]) -> list[int]:
    """Frees with no allocation between them commute; sorted, two runs of one program give equal events.

    The order within such a run is not the program's: autocast clears its cache in the order of a hash table.
    """
    ordered: list[int] = []
    frees: list[int] = []
    for event in events:
        if EMPTY_CACHE < event < 0:
            frees.append(event)
            continue
        ordered += sorted(frees, reverse=True)
        frees = []
        ordered.append(event)
    return ordered + sorted(frees, reverse=True)


def trace_of(
    simulated: Trace,
    *,
    workload: str,
    knobs: Mapping[str, Any],
    gpu: str | None,
    allocator_settings: str,
) -> MemoryTrace:
    return MemoryTrace(
        source="predicted",
        workload=workload,
        knobs=knobs,
        gpu=gpu,
        torch_version=simulated.torch_version,
        allocator_settings=allocator_settings,
        events=simulated.events,
        allocations=[
            _allocation(simulated.detail_of(number))
            for number in range(1, len(simulated.sizes) + 1)
        ],
        steps=range(1, simulated.events.count(0) + 1),
    )


def _allocation(detail: AllocationDetail) -> Allocation:
    known = {fact: value for fact in FACTS if (value := getattr(detail, fact))}
    # a profiler names operators without their overload, and so does a trace
    return Allocation(detail.num_bytes, detail.operator.partition(".")[0], known)
