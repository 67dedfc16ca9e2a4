"""Inductor asks for the simulated GPU's current stream.

Why: in a build of torch without CUDA it has no function for that.
"""

import sys

from vramcast.simulate.patching import Patcher

LIBRARY = "torch._dynamo.device_interface"


def apply(patcher: Patcher) -> None:
    stream = patcher.gpu.device.library.vramcast_stream
    cuda = sys.modules[LIBRARY].CudaInterface
    patcher.put(cuda, "get_raw_stream", staticmethod(lambda *_: int(stream())))
