"""The GPU that is simulated, as the patches and the kernels see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class SimulatedGpu:
    name: str
    capability: tuple[int, int]
    total_bytes: int
    num_multiprocessors: int
    max_threads_per_multiprocessor: int
    allocated_bytes: Callable[[], int] = lambda: 0
    peak_allocated_bytes: Callable[[], int] = lambda: 0
    empty_cache: Callable[[], None] = lambda: None
    notes: set[str] = field(default_factory=set)

    def note(self, text: str) -> None:
        """Say in the prediction's limits what was not modelled."""
        self.notes.add(text)


H200 = SimulatedGpu("NVIDIA H200", (9, 0), 150_109_880_320, 132, 2048)
