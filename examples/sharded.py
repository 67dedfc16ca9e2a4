"""A GPT spread by FSDP2, with a knob for everything that its memory depends on.

    vramcast predict examples/sharded.py:build --world-size 8 --gpu a100-40gb
    vramcast predict examples/sharded.py:build --world-size 8 --gpu a100-40gb --vary wrap=block,pair

docs/several-questions.md asks it fifteen questions. Nothing in it knows of vramcast.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from gpt import GPT
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

VOCABULARY = 50304
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def build(
    *,
    batch_size: int = 4,
    seq_len: int = 1024,
    width: int = 1024,
    depth: int = 24,
    heads: int = 16,
    wrap: str = "block",  # what is gathered at once: a block, a pair of them, or the whole model
    precision: str = "bf16",  # of parameters while they are used
    reduce: str = "fp32",  # of gradients while they are averaged
    reshard: bool = True,  # give parameters back after the forward pass
    reshard_to: int = 0,  # GPUs to which they are given back; 0: all
    replicate: int = 1,  # copies of the model, each spread over a part of the GPUs
    offload: bool = False,  # parameters and optimizer live on the host
    checkpointing: bool = True,
) -> Callable[[], torch.Tensor]:
    dist.init_process_group("nccl")
    gpus = dist.get_world_size()
    mesh = init_device_mesh(
        "cuda", (replicate, gpus // replicate), mesh_dim_names=("replicate", "shard")
    )
    with torch.device("meta"):
        model = GPT(VOCABULARY, seq_len, width, depth, heads)
    model.checkpointing = checkpointing
    options: dict[str, Any] = {
        "mesh": mesh if replicate > 1 else mesh["shard"],
        "mp_policy": MixedPrecisionPolicy(DTYPES[precision], DTYPES[reduce]),
        "reshard_after_forward": reshard_to or reshard,
    }
    if offload:
        options["offload_policy"] = CPUOffloadPolicy()
    size = {"block": 1, "pair": 2, "whole": depth}[wrap]
    for first in range(0, depth if size < depth else 0, size):
        fully_shard(list(model.blocks[first : first + size]), **options)
    fully_shard(model, **options)
    model.to_empty(device="cpu" if offload else "cuda")
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

    def step() -> torch.Tensor:
        tokens = torch.randint(VOCABULARY, (batch_size, seq_len + 1), device="cuda")
        loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step
