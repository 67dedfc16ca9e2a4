"""Peaks of parts of a run, with an allocator that is invented."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from vramcast.probing.phase_peaks import PhasePeaks
from vramcast.records.measurement import Memory


class Allocator:
    """What torch._C tells of the GPU's allocator."""

    def __init__(self) -> None:
        self.now = self.peak = 0

    def take(self, num_bytes: int) -> None:
        self.now += num_bytes
        self.peak = max(self.peak, self.now)

    def stats(self, device: int) -> dict[str, Any]:
        numbers = {"all": {"current": self.now, "peak": self.peak}}
        return {"allocated_bytes": numbers, "reserved_bytes": numbers, "num_ooms": 0}

    def reset(self, device: int) -> None:
        self.peak = self.now


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Allocator:
    allocator = Allocator()
    monkeypatch.setattr(torch._C, "_cuda_memoryStats", allocator.stats, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_resetPeakMemoryStats", allocator.reset, raising=False)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda.memory, "is_initialized", lambda: True)
    return allocator


def memory(num_bytes: int) -> Memory:
    return Memory(allocated_bytes=num_bytes, reserved_bytes=num_bytes)


def test_each_part_has_its_own_peak_and_the_program_sees_that_of_all(gpu: Allocator) -> None:
    peaks = PhasePeaks()
    with peaks.unnoticed():
        gpu.take(100)
        gpu.take(-60)
        assert peaks.take() == memory(100)
        gpu.take(20)
        assert torch.cuda.max_memory_allocated(0) == 100
        assert peaks.take() == memory(60)
        assert peaks.of_run() == memory(100)
    assert torch.cuda.max_memory_allocated(0) == 60


def test_a_program_that_resets_its_peaks_hides_none_from_the_measurement(gpu: Allocator) -> None:
    peaks = PhasePeaks()
    with peaks.unnoticed():
        gpu.take(100)
        gpu.take(-60)
        torch.cuda.reset_peak_memory_stats(0)
        assert torch.cuda.max_memory_allocated(0) == 40
        gpu.take(10)
        assert peaks.take() == memory(100)
        assert torch.cuda.max_memory_allocated(0) == 50
        assert peaks.of_run() == memory(100)


def test_before_cuda_has_started_there_is_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "_cuda_memoryStats", None, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_resetPeakMemoryStats", None, raising=False)
    peaks = PhasePeaks()
    assert (peaks.take(), peaks.of_run()) == (memory(0), memory(0))
