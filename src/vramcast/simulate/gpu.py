"""The GPU that is simulated, as the patches and the kernels see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from vramcast.hardware.calibration.convolutions import KnownConvolutions


@dataclass
class SimulatedGpu:
    name: str
    capability: tuple[int, int]
    total_bytes: int
    num_multiprocessors: int
    max_threads_per_multiprocessor: int
    convolutions: KnownConvolutions = field(default_factory=lambda: KnownConvolutions({}))
    allocated_bytes: Callable[[], int] = lambda: 0
    peak_allocated_bytes: Callable[[], int] = lambda: 0
    empty_cache: Callable[[], None] = lambda: None
    # of the current recording
    notes: set[str] = field(default_factory=set)
    uncalibrated_kernels: set[str] = field(default_factory=set)
    # tensors that a library keeps for as long as the process lives, by purpose
    library_memory: dict[str, Any] = field(default_factory=dict)

    def note(self, text: str) -> None:
        """Say in the prediction's limits what was not modelled."""
        self.notes.add(text)

    def clear(self) -> None:
        """Forget the last recording."""
        self.notes.clear()
        self.uncalibrated_kernels.clear()
        self.library_memory.clear()


H200 = SimulatedGpu("NVIDIA H200", (9, 0), 150_109_880_320, 132, 2048)
