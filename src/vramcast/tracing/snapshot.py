"""The snapshot that torch.cuda.memory._dump_snapshot() would write, for pytorch.org/memory_viz.

A trace is replayed through the model of the allocator, so segments, addresses, splits and cached
blocks are the model's. Nothing was timed: time_us counts events.
"""

import re
from functools import cache
from typing import Any

from vramcast.allocator.blocks import Block, Segment
from vramcast.allocator.model import CachingAllocator, OutOfMemory
from vramcast.allocator.replay import EMPTY_CACHE
from vramcast.allocator.settings import AllocatorSettings
from vramcast.tracing.trace import Allocation, Trace

Frames = list[dict[str, Any]]
# Added to the model's addresses, which begin at 0: to torch that is no address. A browser can still
# represent these numbers exactly.
FIRST_ADDRESS = 0x7000_0000_0000
ALL_SEGMENTS = (0, 0)  # the pool of everything outside CUDA graphs
# memory_viz refuses snapshots with categories but without this one; segments always have it
UNKNOWN = "unknown"
SOURCE = re.compile(r"(.*):([0-9]+) in (.*)", re.DOTALL)


def make_snapshot(trace: Trace, capacity_bytes: int | None = None) -> dict[str, Any]:
    """The state at the end of the trace, and its history."""
    history = _History(trace, capacity_bytes)
    history.replay()
    return {
        "segments": [history.segment(segment) for segment in history.allocator.snapshot()],
        "device_traces": [history.entries],
        "external_annotations": history.annotations,
        "allocator_settings": _settings(history.settings, trace.allocator_settings),
    }


class _History:
    def __init__(self, trace: Trace, capacity_bytes: int | None) -> None:
        self.trace = trace
        self.capacity_bytes = capacity_bytes
        self.entries: list[dict[str, Any]] = []
        self.annotations: list[dict[str, Any]] = []
        self.settings = AllocatorSettings.parse(trace.allocator_settings)
        self.allocator = CachingAllocator(self.settings, capacity_bytes, self._note_segment)
        self._frames_of_segment: dict[int, Frames] = {}
        self._frames: Frames = []  # those of the present allocation
        self._time_us = 0

    def replay(self) -> None:
        steps = iter(self.trace.steps)
        try:
            for event in self.trace.events.tolist():
                self._time_us += 1
                self._frames = []
                if event > 0:
                    self._allocate(event, self.trace.allocations[event - 1])
                elif event == 0:
                    self._begin_step(next(steps))
                elif event == EMPTY_CACHE:
                    self.allocator.empty_cache()
                else:
                    self._free(-event)
        except OutOfMemory as error:
            assert self.capacity_bytes is not None
            free_bytes = self.capacity_bytes - error.reserved_bytes
            self._note("oom", error.requested_bytes, device_free=free_bytes)
        self._end_step()
        # torch's history ends with this entry
        self._note("snapshot", self.allocator.allocated_bytes, addr=0)

    def segment(self, segment: Segment) -> dict[str, Any]:
        used = [block for block in segment.blocks if block.block_id is not None]
        active_bytes = sum(block.size_bytes for block in used)
        return {
            "device": 0,
            "address": FIRST_ADDRESS + segment.address,
            "total_size": segment.size_bytes,
            "allocated_size": active_bytes,
            "active_size": active_bytes,
            "requested_size": sum(block.requested_bytes for block in segment.blocks),
            "stream": segment.key,
            "segment_type": "large" if segment.is_large else "small",
            "segment_pool_id": ALL_SEGMENTS,
            "is_expandable": self.settings.expandable_segments,
            "frames": self._frames_of_segment.get(segment.address, []),
            "blocks": [self._block(block) for block in segment.blocks],
        }

    def _block(self, block: Block) -> dict[str, Any]:
        number = block.block_id
        return {
            "address": FIRST_ADDRESS + block.address,
            "size": block.size_bytes,
            "requested_size": block.requested_bytes,
            "state": "inactive" if number is None else "active_allocated",
            "frames": [] if number is None else frames_of(self.trace.allocations[number - 1]),
        }

    def _allocate(self, number: int, allocation: Allocation) -> None:
        self._frames = frames_of(allocation)
        self.allocator.malloc(number, allocation.num_bytes, allocation.stream)
        address = FIRST_ADDRESS + self.allocator.address_of(number)
        category = allocation.category or UNKNOWN
        about = {"addr": address, "stream": allocation.stream}
        self._note("alloc", allocation.num_bytes, **about, category=category)

    def _free(self, number: int) -> None:
        address = FIRST_ADDRESS + self.allocator.address_of(number)
        self.allocator.free(number)
        allocation = self.trace.allocations[number - 1]
        for action in ("free_requested", "free_completed"):
            self._note(action, allocation.num_bytes, addr=address, stream=allocation.stream)

    def _note(self, action: str, num_bytes: int, **more: Any) -> None:
        about = {"action": action, "size": num_bytes, "stream": 0}
        self.entries.append({**about, "time_us": self._time_us, "frames": self._frames, **more})

    def _note_segment(self, action: str, address: int, num_bytes: int) -> None:
        self._frames_of_segment[address] = self._frames
        self._note(action, num_bytes, addr=FIRST_ADDRESS + address, category=UNKNOWN)

    def _begin_step(self, number: int) -> None:
        self._end_step()
        begin = {"device": 0, "time_us": self._time_us, "name": f"step {number}", "stage": "START"}
        self.annotations.append(begin)

    def _end_step(self) -> None:
        if self.annotations:
            end = {**self.annotations[-1], "time_us": self._time_us, "stage": "END"}
            self.annotations.append(end)


def frames_of(allocation: Allocation) -> Frames:
    """The frames of an allocation, innermost first as in torch: operator, autograd node, module,
    the user's line."""
    return _frames(allocation.op, allocation.node, allocation.module, allocation.source)


@cache
def _frames(op: str, node: str, module: str, source: str) -> Frames:
    made_by = {"<operator>": op, "<autograd>": node, "<module>": module}
    frames: Frames = [
        {"filename": what, "line": 0, "name": name} for what, name in made_by.items() if name
    ]
    if place := SOURCE.fullmatch(source):
        frames.append({"filename": place[1], "line": int(place[2]), "name": place[3]})
    return frames


def _settings(settings: AllocatorSettings, text: str) -> dict[str, Any]:
    """The settings as torch writes them; -1 means no limit."""
    return {
        "PYTORCH_CUDA_ALLOC_CONF": text,
        "max_split_size": settings.max_split_size_bytes or -1,
        "garbage_collection_threshold": settings.garbage_collection_threshold,
        "expandable_segments": settings.expandable_segments,
        "roundup_power2_divisions": {
            str(2**index): number for index, number in enumerate(settings.roundup_power2_divisions)
        },
    }
