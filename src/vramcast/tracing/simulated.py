"""The memory trace of a simulated run, from what the simulation recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramcast.simulate.trace import AllocationDetail, Trace
from vramcast.tracing.files import FACTS, Allocation, MemoryTrace


def trace_of(simulated: Trace, *, workload: str, knobs: Mapping[str, Any], gpu: str | None, allocator_settings: str) -> MemoryTrace:
    return MemoryTrace(
        source="predicted",
        workload=workload,
        knobs=knobs,
        gpu=gpu,
        torch_version=simulated.torch_version,
        allocator_settings=allocator_settings,
        events=simulated.events,
        allocations=[_allocation(simulated.detail_of(number)) for number in range(1, len(simulated.sizes) + 1)],
        steps=range(1, simulated.events.count(0) + 1),
    )


def _allocation(detail: AllocationDetail) -> Allocation:
    known = {fact: value for fact in FACTS if (value := getattr(detail, fact))}
    # a profiler names operators without their overload, and so does a trace
    return Allocation(detail.num_bytes, detail.operator.partition(".")[0], known)
