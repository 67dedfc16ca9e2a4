"""torch's CUDA caching allocator as arithmetic: sizes in, reserved bytes out, no GPU and no
torch."""

from __future__ import annotations

from vramcast.allocator.blocks import Block, Segment
from vramcast.allocator.model import CachingAllocator, OutOfMemory
from vramcast.allocator.replay import EMPTY_CACHE, Replay, live_at, replay
from vramcast.allocator.settings import AllocatorSettings

__all__ = [
    "EMPTY_CACHE",
    "AllocatorSettings",
    "Block",
    "CachingAllocator",
    "OutOfMemory",
    "Replay",
    "Segment",
    "live_at",
    "replay",
]
