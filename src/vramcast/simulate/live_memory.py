"""The allocator of the simulated GPU while a program runs.

It answers what torch.cuda says about memory, and raises torch.OutOfMemoryError at the capacity.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vramcast.allocator.model import CachingAllocator, OutOfMemory
from vramcast.allocator.replay import EMPTY_CACHE
from vramcast.allocator.settings import AllocatorSettings
from vramcast.simulate.device import LIMIT_CALLBACK, Device
from vramcast.tracing.trace import HELD, KNOWN, RELEASED

# A program that runs out of memory so often would try for ever: from then on there is no limit.
MAX_OUT_OF_MEMORY = 1000
UNITS = ((30, "GiB"), (20, "MiB"), (10, "KiB"))


class LiveMemory:
    """Runs the events recorded so far through the model of the allocator, whenever it is asked."""

    def __init__(
        self,
        device: Device,
        total_bytes: int,
        settings: AllocatorSettings | None = None,
        capacity_bytes: int | None = None,
    ) -> None:
        """`capacity_bytes` is how much of the GPU's memory the allocator may take."""
        self._device, self.total_bytes = device, total_bytes
        self._settings = settings or AllocatorSettings()
        self._capacity_bytes = capacity_bytes
        self.clear()

    def clear(self) -> None:
        self._allocator = CachingAllocator(self._settings)
        self._num_events = self._num_allocations = 0
        self.num_out_of_memory = 0
        self._fraction = self._least_fraction = 1.0

    @property
    def limit_bytes(self) -> int:
        """How much the allocator may take now, also by set_per_process_memory_fraction."""
        return self._allowed(self._fraction)

    @property
    def least_limit_bytes(self) -> int:
        """The smallest limit that the program has set so far."""
        return self._allowed(self._least_fraction)

    def _allowed(self, fraction: float) -> int:
        capacity_bytes = sys.maxsize if self._capacity_bytes is None else self._capacity_bytes
        allowed_bytes = int(fraction * self.total_bytes)
        return capacity_bytes if fraction == 1 else min(capacity_bytes, allowed_bytes)

    @property
    def other_bytes(self) -> int:
        """The memory of the CUDA context and its kernels."""
        return (
            0 if self._capacity_bytes is None else max(0, self.total_bytes - self._capacity_bytes)
        )

    def set_fraction(self, fraction: float, *_: Any, **__: Any) -> None:
        self._fraction, self._least_fraction = fraction, min(fraction, self._least_fraction)
        if self._allocator.memory.capacity_bytes is not None:
            self._allocator.memory.capacity_bytes = self.limit_bytes

    @contextmanager
    def limited(self) -> Iterator[None]:
        """In this block the program runs out of memory where a real one would."""
        self._allocator.memory.capacity_bytes = self.limit_bytes
        callback = LIMIT_CALLBACK(self._take)  # must live as long as C++ has the pointer to it
        library = self._device.library
        library.vramcast_set_limit_callback(callback)
        try:
            yield
        finally:
            library.vramcast_set_limit_callback(LIMIT_CALLBACK(0))

    def current(self) -> CachingAllocator:
        events = self._device.events(self._num_events)
        # after the events: another thread may allocate meanwhile
        sizes = self._device.allocations(self._num_allocations)
        first = self._num_allocations + 1
        for event, next_event in zip(events, [*events[1:], 0], strict=False):
            self._do(event, next_event, sizes, first)
        self._num_events += len(events)
        self._num_allocations += sum(event > 0 for event in events)
        return self._allocator

    def free_bytes(self) -> int:
        taken_bytes = self.other_bytes + self.current().reserved_bytes
        return max(0, self.total_bytes - taken_bytes)

    def reset_peaks(self, *_: Any, **__: Any) -> None:
        allocator = self.current()
        allocator.peak_allocated_bytes = allocator.allocated_bytes
        allocator.memory.peak_reserved_bytes = allocator.reserved_bytes

    def statistics(self) -> dict[str, Any]:
        """The same as torch.cuda.memory_stats_as_nested_dict."""
        now = self.current()
        in_use = _statistic(now.allocated_bytes, now.peak_allocated_bytes)
        reserved = _statistic(now.reserved_bytes, now.peak_reserved_bytes)
        return {
            "allocated_bytes": {"all": in_use},
            "active_bytes": {"all": dict(in_use)},
            "requested_bytes": {"all": dict(in_use)},
            "reserved_bytes": {"all": reserved},
            "num_alloc_retries": now.num_alloc_retries,
            "num_ooms": self.num_out_of_memory,
        }

    def _do(self, event: int, next_event: int, sizes: Any, first: int) -> None:
        allocator = self._allocator
        if event > 0:
            if not allocator.has(event):  # _take may have allocated it already
                made = sizes[event - first]
                allocator.malloc(event, made.num_bytes, made.stream)
        elif event == EMPTY_CACHE:
            allocator.empty_cache()
        elif KNOWN < event <= RELEASED:
            allocator.release(RELEASED - event)
        elif HELD < event < 0:
            if next_event == HELD + event:
                allocator.hold(-event)
            else:
                allocator.free(-event)

    def _take(self, num_bytes: int, stream: int) -> int:
        """Called before every allocation in `limited`: 1 if there is no memory for it."""
        allocator = self.current()
        try:
            allocator.malloc(self._num_allocations + 1, num_bytes, stream)
        except OutOfMemory as failed:
            self.num_out_of_memory += 1
            if self.num_out_of_memory > MAX_OUT_OF_MEMORY:
                allocator.memory.capacity_bytes = None
                return 0
            # The allocator has emptied its cache before it gave up, and so does the replay.
            self._device.empty_cache()
            self._device.library.vramcast_set_out_of_memory_message(self._message(failed).encode())
            return 1
        return 0

    def _message(self, failed: OutOfMemory) -> str:
        """torch's own message, from c10/cuda/CUDACachingAllocator.cpp."""
        in_use = failed.reserved_bytes + self.other_bytes
        allowed = f"{_size(self.limit_bytes)} allowed; " if self._fraction < 1 else ""
        return (
            f"CUDA out of memory. Tried to allocate {_size(failed.segment_bytes)}. "
            f"GPU 0 has a total capacity of {_size(self.total_bytes)} "
            f"of which {_size(max(0, self.total_bytes - in_use))} is free. "
            f"Including non-PyTorch memory, this process has {_size(in_use)} memory in use. "
            f"{allowed}Of the allocated memory {_size(failed.allocated_bytes)} is allocated by "
            f"PyTorch, and {_size(failed.reserved_bytes - failed.allocated_bytes)} is reserved by "
            "PyTorch but unallocated. If reserved but unallocated memory is large try setting "
            "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See "
            "documentation for Memory Management  (https://docs.pytorch.org/docs/stable/notes/"
            "cuda.html#optimizing-memory-usage-with-pytorch-alloc-conf)"
        )


def _statistic(current: int, peak: int) -> dict[str, int]:
    return {"current": current, "peak": peak, "allocated": peak, "freed": peak - current}


def _size(num_bytes: int) -> str:
    for shift, unit in UNITS:
        if num_bytes >= 1 << shift:
            return f"{num_bytes / (1 << shift):.2f} {unit}"
    return f"{num_bytes} bytes"
