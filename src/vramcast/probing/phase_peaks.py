"""Measures the peak of the GPU's memory in each part of a run, unnoticed by the program.

To know the peak of a part, the allocator's peaks are reset where the part begins. A program that
asks for its own peaks still gets those since its start, or since it reset them itself.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from vramcast.records.measurement import Memory

# torch.cuda's functions, and those of torch.accelerator
STATS = ("_cuda_memoryStats", "_accelerator_getDeviceStats")
RESETS = ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats")
NOTHING = Memory(allocated_bytes=0, reserved_bytes=0)


class PhasePeaks:
    def __init__(self) -> None:
        # a CPU build of torch has none of these
        self._stats: Any = getattr(torch._C, STATS[0], None)
        self._reset: Any = getattr(torch._C, RESETS[0], None)
        # the allocator's statistics before we reset them: their peaks are what the program must see
        self._kept: dict[str, Any] = {}
        # the peaks of this part before the program itself reset them
        self._before_reset = NOTHING
        self._of_run = NOTHING

    def take(self) -> Memory:
        """The peaks since the last call."""
        if not has_started():
            return NOTHING
        device = torch.cuda.current_device()
        peaks = self._so_far(device)
        self._kept = _with_peaks(self._stats(device), self._kept)
        self._reset(device)
        self._before_reset, self._of_run = NOTHING, larger(self._of_run, peaks)
        return peaks

    def of_run(self) -> Memory:
        if not has_started():
            return NOTHING
        return larger(self._of_run, self._so_far(torch.cuda.current_device()))

    def _so_far(self, device: int) -> Memory:
        stats = self._stats(device)
        now = Memory(
            allocated_bytes=stats["allocated_bytes"]["all"]["peak"],
            reserved_bytes=stats["reserved_bytes"]["all"]["peak"],
        )
        return larger(self._before_reset, now)

    @contextlib.contextmanager
    def unnoticed(self) -> Iterator[None]:
        """In this block the program sees its own peaks."""
        originals = {
            name: getattr(torch._C, name) for name in (*STATS, *RESETS) if hasattr(torch._C, name)
        }
        for name, original in originals.items():
            wrap = self._shown if name in STATS else self._by_the_program
            setattr(torch._C, name, wrap(original))
        try:
            yield
        finally:
            for name, original in originals.items():
                setattr(torch._C, name, original)

    def _shown(self, original: Any) -> Any:
        return lambda *arguments: _with_peaks(original(*arguments), self._kept)

    def _by_the_program(self, original: Any) -> Any:
        def reset(*arguments: Any) -> None:
            if has_started():
                self._before_reset = self._so_far(torch.cuda.current_device())
            self._kept = {}
            original(*arguments)

        return reset


def has_started() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def larger(a: Memory, b: Memory) -> Memory:
    return Memory(
        allocated_bytes=max(a.allocated_bytes, b.allocated_bytes),
        reserved_bytes=max(a.reserved_bytes, b.reserved_bytes),
    )


def _with_peaks(stats: dict[str, Any], kept: dict[str, Any]) -> dict[str, Any]:
    """The statistics, with every peak at least as high as the kept one."""

    def higher(name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return _with_peaks(value, kept.get(name, {}))
        return max(value, kept.get(name, 0)) if name == "peak" else value

    return {name: higher(name, value) for name, value in stats.items()}
