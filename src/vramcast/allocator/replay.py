"""Runs the events of a trace through the model of the allocator.

An event is an integer: +i allocates the i-th allocation (from 1), -i frees it, 0 begins a step,
EMPTY_CACHE is torch.cuda.empty_cache().
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from vramcast.allocator import compiled
from vramcast.allocator.addresses import AddressSpace, Starts
from vramcast.allocator.model import DEFAULT_STREAM, CachingAllocator, OutOfMemory
from vramcast.allocator.settings import AllocatorSettings

if TYPE_CHECKING:  # commands that need no arrays start faster without numpy
    import numpy as np
    from numpy.typing import NDArray

EMPTY_CACHE = -(2**62)
NEVER = Starts()


@dataclass(frozen=True)
class Replay:
    """What the allocator did. If it ran out of memory, the replay ends before the event that
    failed."""

    num_alloc_retries: int
    out_of_memory: OutOfMemory | None
    allocated_bytes: NDArray[np.int64]  # after each event
    reserved_bytes: NDArray[np.int64]  # after each event
    block_bytes: NDArray[np.int64]  # the size of each allocation's block
    # The peaks of allocated and reserved bytes so far, at the end of each step and at the very end.
    peaks_after_step: list[tuple[int, int]]

    @property
    def peak_allocated_bytes(self) -> int:
        return self.peaks_after_step[-1][0]

    @property
    def peak_reserved_bytes(self) -> int:
        return self.peaks_after_step[-1][1]

    @property
    def fits(self) -> bool:
        return self.out_of_memory is None

    @property
    def allocated_peak_event(self) -> int:
        """Index of the first event after which most was allocated; -1 when nothing was."""
        if not self.peak_allocated_bytes:
            return -1
        return int(self.allocated_bytes.argmax())


def replay(
    events: Sequence[int] | NDArray[np.int64],
    sizes: Sequence[int] | NDArray[np.int64],
    settings: AllocatorSettings | None = None,
    capacity_bytes: int | None = None,
    *,
    keys: Sequence[Hashable] | NDArray[np.int64] = (),
    held_until: Mapping[int, int] | None = None,
    starts: Starts = NEVER,
) -> Replay:
    """Replays the events. `keys` has the stream of each allocation, if not all are on the default
    one.

    `held_until` has allocations that another stream still uses when they are freed: the index of
    the event before which their memory can be used again.
    """
    run = _Run(
        events,
        sizes,
        settings or AllocatorSettings(),
        capacity_bytes,
        keys,
        held_until or {},
        starts,
    )
    found = _run_compiled(run)
    if found is None:
        return _in_python(run)
    num_retries, failed, *rest, _ = found
    return Replay(num_retries, failed and OutOfMemory(*failed), *rest)


class _Run(NamedTuple):
    """The arguments of `replay`."""

    events: Any
    sizes: Any
    settings: AllocatorSettings
    capacity_bytes: int | None
    keys: Any
    held_until: Mapping[int, int]
    starts: Starts


def _in_python(run: _Run) -> Replay:
    import numpy as np

    allocator = CachingAllocator(run.settings, run.capacity_bytes)
    memory = allocator.memory
    # an int object for every event would take four times the memory
    allocated_bytes, reserved_bytes = array("q"), array("q")
    block_bytes = array("q", bytes(8 * len(run.sizes)))
    peaks_after_step: list[tuple[int, int]] = []
    out_of_memory = None

    def note_peaks() -> None:
        peaks_after_step.append((allocator.peak_allocated_bytes, memory.peak_reserved_bytes))

    def note(event: int, given_bytes: int) -> None:
        if event > 0:
            block_bytes[event - 1] = given_bytes
        elif event == 0:
            note_peaks()
        allocated_bytes.append(allocator.allocated_bytes)
        reserved_bytes.append(memory.reserved_bytes)

    try:
        _feed(allocator, run, note)
    except OutOfMemory as error:
        out_of_memory = error
    note_peaks()
    return Replay(
        allocator.num_alloc_retries,
        out_of_memory,
        np.array(allocated_bytes),
        np.array(reserved_bytes),
        np.array(block_bytes),
        peaks_after_step,
    )


def _feed(allocator: CachingAllocator, run: _Run, note: Callable[[int, int], None]) -> None:
    """Feeds the events to the allocator. `note` is called after each event, with the bytes of its
    block."""
    held = run.held_until
    # sorted so that the next one to be released is last
    releases = sorted(((index, number) for number, index in held.items()), reverse=True)
    all_sizes = _listed(run.sizes)
    all_keys = _listed(run.keys) or [DEFAULT_STREAM] * len(all_sizes)
    # Looked up once, because this loop runs for every event of a trace.
    malloc, free = allocator.malloc, allocator.free
    starts = run.starts
    addresses = allocator.addresses = AddressSpace(has_kernels=not starts.kernel)
    for index, event in enumerate(_listed(run.events)):
        while releases and releases[-1][0] <= index:
            allocator.release(releases.pop()[1])
        if starts.kernel and index == starts.kernel + 1:
            addresses.start_kernels(after_copies=run.events[starts.kernel] > 2)
        if starts.convolution and index == starts.convolution + 1:
            addresses.start_cudnn()
        if index and index in (starts.product, starts.backward_product):
            addresses.start_cublas(starts.cublas_bytes)
        if starts.collective and index == starts.collective:
            addresses.fill_gaps()
        given_bytes = 0
        if event > 0:
            given_bytes = malloc(event, all_sizes[event - 1], all_keys[event - 1])
        elif event == EMPTY_CACHE:
            allocator.empty_cache()
        elif event and -event in held:
            allocator.hold(-event)
        elif event:
            free(-event)
        note(event, given_bytes)


class Piece(NamedTuple):
    """A part of a segment: an allocation's block, or free memory."""

    size_bytes: int
    block_id: int | None  # None: it is free


def segments_after(
    events: Any,
    sizes: Any,
    settings: AllocatorSettings,
    capacity_bytes: int | None,
    **others: Any,
) -> list[list[Piece]]:
    """The memory after these events, or where they run out of it: the pieces of each segment, by
    address. The other arguments are those of `replay`."""
    run = _Run(events, sizes, settings, capacity_bytes, **others)
    found = _run_compiled(run, with_pieces=True)
    if found is not None:
        return _by_segment(found[-1].tolist())
    allocator = CachingAllocator(settings, capacity_bytes)
    with suppress(OutOfMemory):
        _feed(allocator, run, lambda *_: None)
    return [
        [Piece(block.size_bytes, block.block_id) for block in segment.blocks]
        for segment in allocator.snapshot()
    ]


def _by_segment(rows: list[list[int]]) -> list[list[Piece]]:
    segments: list[tuple[int, list[Piece]]] = []
    for address, size_bytes, block_id in rows:
        if not size_bytes:
            segments.append((address, []))
        else:
            segments[-1][1].append(Piece(size_bytes, block_id or None))
    return [pieces for _, pieces in sorted(segments)]


def _run_compiled(run: _Run, *, with_pieces: bool = False) -> tuple[Any, ...] | None:
    """The result of the compiled replay. None if only Python can do it."""
    if not compiled.can_replay(run.settings, run.capacity_bytes):
        return None
    import numpy as np

    if len(run.keys) and np.asarray(run.keys).dtype.kind != "i":
        return None
    # if only a part of a run is replayed, later allocations do not exist
    held = ((number, index) for number, index in run.held_until.items() if number <= len(run.sizes))
    releases = sorted((index, number) for number, index in held)
    return compiled.replay(
        np.asarray(run.events, np.int64),
        np.asarray(run.sizes, np.int64),
        run.settings,
        run.capacity_bytes,
        np.asarray(run.keys, np.int64) if len(run.keys) else None,
        np.array(releases, np.int64).reshape(-1, 2),
        EMPTY_CACHE,
        run.starts,
        with_pieces=with_pieces,
    )


def _listed(numbers: Any) -> Any:
    """The numbers as Python's integers, with which the model of the allocator counts."""
    return numbers.tolist() if hasattr(numbers, "tolist") else numbers


def live_at(events: Sequence[int] | NDArray[np.int64], event_index: int) -> list[int]:
    """The numbers of the allocations alive just after that event, oldest first."""
    import numpy as np

    until = np.asarray(events[: event_index + 1], np.int64)
    made = until[until > 0]
    is_alive = np.ones(made.max(initial=0) + 1, bool)
    is_alive[-until[(until < 0) & (until != EMPTY_CACHE)]] = False
    numbers: list[int] = made[is_alive[made]].tolist()
    return numbers
