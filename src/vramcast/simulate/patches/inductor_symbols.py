"""Inductor's generated code allocates on the simulated GPU.

Why: a build of torch without CUDA lacks the function by which this code allocates, and a few
others.
"""

from typing import Any

import torch

from vramcast.simulate.patching import Patcher

LIBRARY = "torch"


def apply(patcher: Patcher) -> None:
    def empty_strided_cuda(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty_strided(size, stride, dtype=dtype, device="cuda")

    patcher.put(torch._C._dynamo.guards, "_empty_strided_cuda", empty_strided_cuda, add=True)
    patcher.put(torch._C, "_cuda_cudaCachingAllocator_is_enabled", lambda: True, add=True)
    for name in ("_cuda_CUDAAllocator_AllocatorState", "_set_cached_tensors_enabled"):
        if not hasattr(torch._C, name):  # imported by name
            patcher.put(torch._C, name, lambda *_: None, add=True)
