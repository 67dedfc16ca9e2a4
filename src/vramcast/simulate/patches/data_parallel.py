"""nn.DataParallel and torch.cuda.comm work on one GPU.

Why: they ask torch._C to spread and collect tensors, which a build without CUDA cannot. With one
GPU, inputs are moved there; tensors that are there already are not copied.
"""

from typing import Any

import torch

from vramcast.simulate.patching import Patcher

LIBRARY = "torch"


def apply(patcher: Patcher) -> None:
    def scatter(tensor: torch.Tensor, *_: Any) -> list[torch.Tensor]:
        return [tensor.to("cuda", non_blocking=True)]

    def gather(tensors: list[torch.Tensor], dim: int, *_: Any) -> torch.Tensor:
        return torch.cat(tensors, dim)

    def broadcast(tensor: Any, *_: Any) -> list[Any]:
        return [tensor]

    for name, answer in {
        "_scatter": scatter,
        "_gather": gather,
        "_broadcast": broadcast,
        "_broadcast_coalesced": broadcast,
    }.items():
        patcher.put(torch._C, name, answer, add=True)
