"""What a simulated run allocated and freed, and what is known about each allocation. Plain data, no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from vramcast.allocator.replay import EMPTY_CACHE
from vramcast.timing.works import Work


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
