"""What a simulated run allocated and freed, and what is known about each allocation. Plain data, no torch."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class AllocationDetail:
    """One allocation, described for people."""

    num_bytes: int
    category: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    operator: str
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
    losses_are_scalar: bool = True
    details: dict[int, AllocationDetail] = field(default_factory=dict)
