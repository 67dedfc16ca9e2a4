"""One rank of many: a small transformer, spread in the way that is named."""

import argparse
import os
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.optim import AdamW

parser = argparse.ArgumentParser()
parser.add_argument("kind")
parser.add_argument("--width", type=int, default=128)
parser.add_argument("--depth", type=int, default=2)
parser.add_argument("--vocabulary", type=int, default=512)
parser.add_argument("--length", type=int, default=64)
given = parser.parse_args()
kind, width = given.kind, given.width


def attend(x):
    heads = x[:, None]
    return F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)[:, 0]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(given.vocabulary, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width,
                12 if width % 12 == 0 else 4,
                4 * width,
                0.0,
                "gelu",
                batch_first=True,
                norm_first=True,
            )
            for _ in range(given.depth)
        )
        self.head = nn.Linear(width, given.vocabulary)

    def forward(self, tokens, targets):
        x = self.tokens(tokens)
        for block in self.blocks:
            x = attend(x) if kind == "cp" else block(x)
        return F.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


if kind == "tp":  # the mesh starts the processes' group
    mesh = dist.init_device_mesh("cuda", (int(os.environ["WORLD_SIZE"]),))
else:
    dist.init_process_group("nccl")
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
print("rank", dist.get_rank(), "of", dist.get_world_size(), "backend", dist.get_backend())
with torch.device("cuda"):
    model = Model()
optimizer = None
match kind:
    case "ddp" | "zero" | "zero-saved" | "hook":
        model = nn.parallel.DistributedDataParallel(model, device_ids=[local])
        if kind == "hook":
            from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

            model.register_comm_hook(None, default_hooks.bf16_compress_hook)
        if kind.startswith("zero"):
            from torch.distributed.optim import ZeroRedundancyOptimizer

            optimizer = ZeroRedundancyOptimizer(model.parameters(), AdamW, lr=1e-3)
    case "fsdp2":
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
        for block in model.blocks:
            fully_shard(block, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
    case "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        wrap = ModuleWrapPolicy({nn.TransformerEncoderLayer})
        model = FullyShardedDataParallel(
            model, auto_wrap_policy=wrap, device_id=local, use_orig_params=True
        )
    case "tp":
        from torch.distributed.tensor.parallel import (
            ColwiseParallel,
            RowwiseParallel,
            parallelize_module,
        )

        plan = {"linear1": ColwiseParallel(), "linear2": RowwiseParallel()}
        for block in model.blocks:
            parallelize_module(block, mesh, plan)
    case "cp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.experimental import context_parallel

        mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    case "pp" | "pp-shapes-unknown":
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B

        model.head.requires_grad_(False)
        model, rank, last = model.blocks[0], dist.get_rank(), dist.get_world_size() - 1
        sent = torch.empty(1, given.length, width, device="meta", requires_grad=True)
        shapes = {} if "unknown" in kind else {"input_args": (sent,), "output_args": (sent,)}
        stage = PipelineStage(model, rank, last + 1, torch.device("cuda"), **shapes)
        pipeline = Schedule1F1B(stage, 8, loss_fn=F.mse_loss)
if optimizer is None:
    optimizer = AdamW(model.parameters(), foreach=False if kind == "tp" else None)
while True:
    tokens = torch.randint(given.vocabulary, (8, given.length + 1), device="cuda")
    parts = [tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()]
    if kind.startswith("pp"):
        batch = torch.randn(8, given.length, width, device="cuda")
        pipeline.step(*[batch][: rank == 0], target=batch if rank == last else None)
    else:
        spread = kind == "cp" and context_parallel(mesh, buffers=parts, buffer_seq_dims=[1, 1])
        with spread or nullcontext():
            with torch.autocast("cuda", torch.bfloat16, enabled=kind != "fsdp2"):
                loss = model(*parts)
            loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if kind == "zero-saved":
        optimizer.consolidate_state_dict(to=0)
        saved = len(optimizer.state_dict()["state"]) if dist.get_rank() == 0 else None
        assert saved in (None, len([*model.parameters()]))
    sizes = [None] * dist.get_world_size()
    dist.all_gather_object(sizes, {"rank": dist.get_rank()})
    dist.barrier()
