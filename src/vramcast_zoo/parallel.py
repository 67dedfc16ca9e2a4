"""A model on several GPUs: a copy on each of them ("ddp"), or a part of every weight ("fsdp2").

The processes are torchrun's, or `vramcast predict --world-size`'s.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from vramcast_zoo.refusal import Refused

Parallel = Literal["", "ddp", "fsdp2"]
HALVES = {"amp-bf16": torch.bfloat16, "amp-fp16": torch.float16}


class WithLoss(nn.Module):
    """Its forward pass is the model's loss: what spreads a model acts around a forward pass."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *batch: Tensor) -> Tensor:
        loss: Tensor = self.model.loss(*batch)  # type: ignore[operator]
        return loss


class Spread:
    """A model on this GPU and others, to be trained as one."""

    def __init__(self, model: Any, parallel: Parallel, precision: str) -> None:
        self.longest, self.random_batch = model.longest, model.random_batch
        join_processes(parallel)
        whole = WithLoss(model)
        self.loss: Any = (
            nn.parallel.DistributedDataParallel(whole, device_ids=[torch.cuda.current_device()])
            if parallel == "ddp"
            else shard(whole, precision)
        )

    def parameters(self) -> Iterable[nn.Parameter]:
        parameters: Iterable[nn.Parameter] = self.loss.parameters()
        return parameters


def join_processes(parallel: str) -> None:
    if dist.is_initialized():
        return
    if "WORLD_SIZE" not in os.environ:
        raise Refused(
            f"parallel={parallel!r} is for several processes.",
            "Start the program with torchrun, or give vramcast predict --world-size.",
        )
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    dist.init_process_group("nccl")


def shard(model: nn.Module, precision: str) -> nn.Module:
    """Every block by itself, so that one at a time is whole, and what is left together."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    options: dict[str, Any] = {}
    if precision in HALVES:
        options["mp_policy"] = MixedPrecisionPolicy(HALVES[precision], torch.float32)
    inside: set[nn.Module] = set()
    for module in list(model.modules()):
        # a list inside of a block, as T5 has them, goes with its block
        if isinstance(module, nn.ModuleList) and module not in inside:
            for block in module:
                inside.update(block.modules())
                fully_shard(block, **options)
    fully_shard(model, **options)
    return model
