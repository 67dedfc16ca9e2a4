"""Triton's autotuner takes the memory it times kernels with, and chooses by predicted times.

Why: without a GPU there is nothing to time. Before each run it overwrites the GPU's cache with a
buffer, which on a real GPU stays reserved after the first use of an autotuned kernel. Where the
time of a kernel cannot be told (triton_launch.py), its first configuration is chosen.
Versions: triton 3.
"""

import sys
from typing import Any

import torch

from vramcast.simulate.patching import Patcher

LIBRARY = "triton.runtime.autotuner"
NUM_TIMES = 3  # the median and two quantiles


def apply(patcher: Patcher) -> None:
    def time_it(self: Any, *arguments: Any, config: Any, **options: Any) -> list[float]:
        torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
        patcher.gpu.timed = timed = list[float]()
        try:
            self.fn.run(*arguments, **{**options, **config.all_kwargs()})
        finally:
            patcher.gpu.timed = None
        return [sum(timed)] * NUM_TIMES

    patcher.put(sys.modules[LIBRARY].Autotuner, "_bench", time_it)
