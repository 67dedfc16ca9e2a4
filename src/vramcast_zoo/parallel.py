"""A model on several GPUs: a copy on each of them ("ddp"), or a part of every weight ("fsdp2").

The processes are torchrun's, or `vramcast predict --world-size`'s.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
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


@contextmanager
def weights_later() -> Iterator[None]:
    """Parameters made inside get no memory: `shard` gives it to this GPU's part of them. A model
    that is larger than one GPU cannot be made on it."""
    register: Any = nn.Module.register_parameter

    def on_meta(self: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        # one that has none already may belong to two modules
        if parameter is not None and not parameter.is_meta:
            parameter = nn.Parameter(parameter.to("meta"), parameter.requires_grad)
        register(self, name, parameter)

    nn.Module.register_parameter = on_meta  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


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
    if any(parameter.is_meta for parameter in model.parameters()):
        _fill(model)
    return model


def _fill(model: nn.Module) -> None:
    """Memory and random values for the parts of parameters that are this GPU's."""
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    model.to_empty(device=torch.device("cuda", torch.cuda.current_device()))
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            buffer.copy_(buffers[name])
        for parameter in model.parameters():
            part: Tensor = parameter.to_local()  # type: ignore[attr-defined]
            if parameter.dim() == 1:
                part.fill_(1.0)
            else:
                part.normal_(std=0.02)
