"""torch.cuda.Stream and torch.cuda.Event on the simulated device.

Their code in torch/cuda/streams.py stays. Their base classes are missing in a build of torch
without CUDA, and ask the driver in one with it, so torch.Stream and torch.Event replace them.
Programs may import these classes by name, so this is done before any of them runs.
"""

import ctypes
import importlib
from typing import Any

CUDA = 1  # the value of c10::DeviceType


def install(library: ctypes.CDLL) -> None:
    import torch

    class StreamBase(torch.Stream):
        def __new__(
            cls,
            priority: int = 0,
            stream_id: int = 0,
            device_index: int = 0,
            device_type: int = 0,
            stream_ptr: int = 0,
        ) -> Any:
            if stream_id or device_index or device_type or stream_ptr:
                known = {"device_index": device_index, "device_type": CUDA}
                return super().__new__(cls, stream_id=stream_id or stream_ptr, **known)
            return super().__new__(cls, device="cuda:0", priority=priority)

        @property
        def cuda_stream(self) -> int:
            return self.stream_id

        @property
        def priority(self) -> int:
            return int(library.vramcast_stream_priority(self.stream_id))

        @staticmethod
        def priority_range() -> tuple[int, int]:
            return 0, -5

    class EventBase(torch.Event):
        def __new__(
            cls,
            enable_timing: bool = False,
            blocking: bool = False,
            interprocess: bool = False,
            external: bool = False,
        ) -> Any:
            return super().__new__(cls, device="cuda:0", enable_timing=enable_timing)

        @property
        def cuda_event(self) -> int:
            return self.event_id

        def elapsed_time(self, other: Any) -> float:
            if not (self.event_id and other.event_id):
                raise ValueError("Both events must be recorded before calculating elapsed time.")
            milliseconds = library.vramcast_elapsed_milliseconds(self.event_id, other.event_id)
            return float(milliseconds)

    C: Any = torch._C
    C._CudaStreamBase, C._CudaEventBase = StreamBase, EventBase
    streams = importlib.reload(torch.cuda.streams)
    for name in ("Stream", "ExternalStream", "Event"):
        setattr(torch.cuda, name, getattr(streams, name))
