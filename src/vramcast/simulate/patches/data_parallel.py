"""nn.DataParallel on one GPU moves its inputs there.

Why: it asks torch._C to spread them, which a build without CUDA cannot.
Versions: torch 2.10 to 2.15.
"""

from __future__ import annotations

from typing import Any

import torch

from vramcast.simulate.patching import Patcher

LIBRARY = "torch"


def apply(patcher: Patcher) -> None:
    def scatter(tensor: torch.Tensor, *_: Any) -> list[torch.Tensor]:
        return [tensor.to("cuda", non_blocking=True)]

    patcher.put(torch._C, "_scatter", scatter, add=True)
