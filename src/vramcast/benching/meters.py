"""How long each step took and how much memory it had at most, without making the GPU wait for the question."""

from __future__ import annotations

import resource
import time
from typing import Protocol

import torch


class Meter(Protocol):
    """Of steps one after another, from the moment it is made."""

    def after_step(self) -> None: ...

    def finish(self) -> tuple[list[float], list[int]]:
        """Seconds and bytes of every step; waits for the last one."""


def meter_for(device: torch.device) -> Meter:
    return GpuMeter(device) if device.type == "cuda" else CpuMeter()


def memory_kind(device: torch.device) -> str:
    """Whose memory a meter tells, in words."""
    return "GPU, allocated" if device.type == "cuda" else "process, resident"


class CpuMeter:
    def __init__(self) -> None:
        self._times, self._bytes = [time.perf_counter()], list[int]()

    def after_step(self) -> None:
        self._times.append(time.perf_counter())
        self._bytes.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)

    def finish(self) -> tuple[list[float], list[int]]:
        return [
            after - before for before, after in zip(self._times, self._times[1:], strict=False)
        ], self._bytes


class GpuMeter:
    """Events lie in the GPU's queue beside the work; the allocator's peak is known on the host when the work is queued."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._events, self._bytes = [self._event()], list[int]()
        torch.cuda.reset_peak_memory_stats(device)

    def after_step(self) -> None:
        self._events.append(self._event())
        # max_memory_allocated() sorts all statistics first, which takes several times as long
        self._bytes.append(
            torch.cuda.memory_stats_as_nested_dict(self._device)["allocated_bytes"]["all"]["peak"]
        )
        torch.cuda.reset_peak_memory_stats(self._device)

    def finish(self) -> tuple[list[float], list[int]]:
        self._events[-1].synchronize()
        pairs = zip(self._events, self._events[1:], strict=False)
        return [before.elapsed_time(after) / 1000 for before, after in pairs], self._bytes

    def _event(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event
