"""Triton's autotuner takes the memory it times kernels with, and chooses the first configuration.

Why: without a GPU there is nothing to time. Before each run it overwrites the GPU's cache with a
buffer, which on a real GPU stays reserved after the first use of an autotuned kernel.
Versions: triton 3.
"""

import sys
from typing import Any

import torch

from vramcast.simulate.patching import Patcher

LIBRARY = "triton.runtime.autotuner"
SECONDS = [1.0, 1.0, 1.0]  # the median and two quantiles


def apply(patcher: Patcher) -> None:
    def time_it(self: Any, *_: Any, **__: Any) -> list[float]:
        torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
        return SECONDS

    patcher.put(sys.modules[LIBRARY].Autotuner, "_bench", time_it)
