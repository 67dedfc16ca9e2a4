"""torch.cuda's own functions for streams work on the simulated device.

Why: they ask torch._C, where a build without CUDA has nothing for them. An answer about a stream is
(its number, device index, device type). The classes are in stream_classes.py.
"""

from typing import Any

import torch

from vramcast.simulate.patching import Patcher
from vramcast.simulate.stream_classes import CUDA

LIBRARY = "torch"


def apply(patcher: Patcher) -> None:
    library = patcher.gpu.device.library

    def set_stream(stream_id: int, device_index: int, device_type: int) -> None:
        library.vramcast_set_stream(stream_id)

    def from_external(pointer: int, *_: Any) -> tuple[int, int, int]:
        return pointer, 0, CUDA

    for name, answer in {
        "_cuda_getCurrentRawStream": lambda *_: library.vramcast_stream(),
        "_cuda_getCurrentStream": lambda *_: (library.vramcast_stream(), 0, CUDA),
        "_cuda_getDefaultStream": lambda *_: (0, 0, CUDA),
        "_cuda_getStreamFromExternal": from_external,
        "_cuda_setStream": set_stream,
        "_cuda_synchronize": lambda: library.vramcast_finish_all(),
    }.items():
        patcher.put(torch._C, name, answer, add=True)
