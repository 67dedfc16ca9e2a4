"""One rank of many: language models spread over GPUs by torch's own means.

The other ranks are not there: torch's fake process group has collectives that do nothing, so one
GPU, simulated or real, runs one rank of a thousand. What such a rank computes is nonsense; what it
allocates is not. DistributedDataParallel refuses that group, and gets a world of one with NCCL.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from vramcast_zoo.attention import rotary_angles
from vramcast_zoo.language_model import run_blocks
from vramcast_zoo.llama import THETA, Llama
from vramcast_zoo.suites.models import GPT, Block
from vramcast_zoo.suites.tensor_parallel import split
from vramcast_zoo.suites.training import training_step
from vramcast_zoo.transformer import DecoderBlock

Step = Callable[[], Tensor]
GPTS = {  # width, depth, heads
    "gpt-124m": (768, 12, 12),
    "gpt-355m": (1024, 24, 16),
    "gpt-774m": (1280, 36, 20),
    "gpt-1.5b": (1600, 48, 25),
}
# Llama 3.1 and 3.2, with a head of its own in every size
LLAMAS = {
    "llama-1b": {"dim": 2048, "depth": 16, "heads": 32, "kv_heads": 8, "hidden": 8192},
    "llama-3b": {"dim": 3072, "depth": 28, "heads": 24, "kv_heads": 8, "hidden": 8192},
    "llama-8b": {"dim": 4096, "depth": 32, "heads": 32, "kv_heads": 8, "hidden": 14336},
}
GPT_VOCABULARY, LLAMA_VOCABULARY = 50304, 128256


def start(gpus: int, rank: int = 0) -> None:
    torch.cuda.set_device(0)
    if gpus == 1:
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
        return
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=gpus)


def make(size: str, length: int, checkpointing: bool, device: str) -> nn.Module:
    with torch.device(device):
        if size in LLAMAS:
            return Llama(vocabulary=LLAMA_VOCABULARY, checkpointing=checkpointing, **LLAMAS[size])
        width, depth, heads = GPTS[size]
        mode = "non-reentrant" if checkpointing else ""
        return GPT(GPT_VOCABULARY, width, depth, heads, length, 0.0, mode, "sdpa")


def fill(model: nn.Module, device: str = "cuda") -> None:
    """A model of the meta device gets memory, of its own shards only."""
    from torch.distributed.tensor import DTensor

    model.to_empty(device=device)
    with torch.no_grad():
        for parameter in model.parameters():
            local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
            local.normal_(0, 0.02)


def loss_of(model: nn.Module, size: str, tokens: Tensor, targets: Tensor) -> Tensor:
    if size in GPTS:
        loss: Tensor = model(tokens, targets)
        return loss
    return F.cross_entropy(model(tokens).flatten(0, 1).float(), targets.flatten())


def batch(size: str, batch_size: int, seq_len: int) -> tuple[Tensor, Tensor]:
    vocabulary = GPT_VOCABULARY if size in GPTS else LLAMA_VOCABULARY
    tokens = torch.randint(vocabulary, (batch_size, seq_len + 1), device="cuda")
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def ddp(
    *,
    size: str = "gpt-124m",
    batch_size: int = 8,
    seq_len: int = 1024,
    autocast: str = "bf16",
    checkpointing: bool = False,
    accumulate: int = 1,
    bucket_view: bool = False,
    static_graph: bool = False,
    find_unused: bool = False,
    hook: str = "",
    bucket_mb: int = 0,
) -> Step:
    """`hook` is one of torch's communication hooks, by name."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    start(1)
    model = nn.parallel.DistributedDataParallel(
        make(size, seq_len, checkpointing, "cuda"),
        device_ids=[0],
        gradient_as_bucket_view=bucket_view,
        static_graph=static_graph,
        find_unused_parameters=find_unused,
        bucket_cap_mb=bucket_mb or None,
    )
    if hook:
        model.register_comm_hook(None, getattr(default_hooks, hook))
    return training_step(
        lambda: loss_of(model, size, *batch(size, batch_size, seq_len)),
        model.parameters(),
        autocast=autocast,
        accumulate=accumulate,
    )


def zero(
    *,
    size: str = "gpt-124m",
    gpus: int = 8,
    batch_size: int = 8,
    seq_len: int = 1024,
    checkpointing: bool = False,
    bucket_view: bool = False,
) -> Step:
    """The optimizer's states are spread; gradients are averaged by hand."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    start(gpus)
    model = make(size, seq_len, checkpointing, "cuda")
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(),
        torch.optim.AdamW,
        parameters_as_bucket_view=bucket_view,
        lr=1e-4,
    )

    def step() -> Tensor:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of(model, size, *batch(size, batch_size, seq_len))
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
            parameter.grad.div_(gpus)
        optimizer.step()
        return loss.detach()

    return step


def fsdp1(
    *,
    size: str = "gpt-124m",
    gpus: int = 8,
    batch_size: int = 8,
    seq_len: int = 1024,
    sharding: str = "FULL_SHARD",
    replicate: int = 1,
    mixed: bool = True,
    checkpointing: bool = False,
    original_parameters: bool = True,
) -> Step:
    """`mixed`: bf16 by FSDP itself, else by autocast. `replicate`: copies of a hybrid shard."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import (
        FullyShardedDataParallel,
        MixedPrecision,
        ShardingStrategy,
    )
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    start(gpus)
    half = torch.bfloat16
    mesh = None
    if replicate > 1:
        mesh = init_device_mesh(
            "cuda", (replicate, gpus // replicate), mesh_dim_names=("replicate", "shard")
        )
    model = FullyShardedDataParallel(
        make(size, seq_len, checkpointing, "meta"),
        auto_wrap_policy=ModuleWrapPolicy({Block, DecoderBlock}),
        sharding_strategy=ShardingStrategy[sharding],
        mixed_precision=MixedPrecision(half, torch.float32, half) if mixed else None,
        param_init_fn=lambda module: module.to_empty(device="cuda", recurse=False),
        device_id=0,
        device_mesh=mesh,
        use_orig_params=original_parameters,
    )
    return training_step(
        lambda: loss_of(model, size, *batch(size, batch_size, seq_len)),
        model.parameters(),
        autocast="" if mixed else "bf16",
        clip=0.0,
    )


def fsdp2(
    *,
    size: str = "gpt-124m",
    gpus: int = 8,
    rank: int = 0,
    batch_size: int = 8,
    seq_len: int = 1024,
    replicate: int = 1,
    context: int = 1,
    tensor: int = 1,
    shard: bool = True,
    reshard: bool = True,
    offload: bool = False,
    checkpointing: bool = False,
    accumulate: int = 1,
    clip: float = 1.0,
) -> Step:
    """fully_shard over what `replicate`, `context` and `tensor` parallel leave of the world.

    Without `shard` there is only tensor parallel. `seq_len` is of the whole sequence.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

    start(gpus, rank)
    names = ("replicate", "shard", "context", "tensor")
    shape = (replicate, gpus // (replicate * context * tensor), context, tensor)
    mesh = init_device_mesh("cuda", shape, mesh_dim_names=names)
    model = make(size, seq_len, checkpointing, "meta")
    if tensor > 1:
        split(model, mesh["tensor"], tensor)
    if shard:
        over = [name for name in names[:3] if mesh[name].size() > 1]
        if "context" in over:  # shards are spread over both
            mesh["shard", "context"]._flatten("both")
            over = [*(["replicate"] if replicate > 1 else []), "both"]
        options: dict[str, Any] = {
            "mesh": mesh[tuple(over)],
            "mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32),
            "reshard_after_forward": reshard,
        }
        if offload:
            options["offload_policy"] = CPUOffloadPolicy()
        for block in model.blocks:  # type: ignore[union-attr]
            fully_shard(block, **options)
        fully_shard(model, **options)
    elif tensor > 1:
        model.bfloat16()
    fill(model, "cpu" if offload else "cuda")
    inputs: list[Tensor] = []
    step = training_step(
        lambda: loss_of(model, size, *inputs), model.parameters(), accumulate=accumulate, clip=clip
    )

    def spread_step() -> Tensor:
        inputs[:] = batch(size, batch_size, seq_len)
        with ExitStack() as contexts:
            if tensor > 1:
                from torch.distributed.tensor.parallel import loss_parallel

                contexts.enter_context(loss_parallel())
            if context > 1:
                from torch.distributed.tensor.experimental import context_parallel

                contexts.enter_context(
                    context_parallel(
                        mesh["context"],
                        buffers=inputs,
                        buffer_seq_dims=[1, 1],
                        no_restore_buffers=set(inputs),
                    )
                )
            return step()

    return spread_step


class Stage(nn.Module):
    """Some blocks of a Llama; the first stage has its embedding, the last its head."""

    def __init__(self, whole: Llama, index: int, stages: int) -> None:
        super().__init__()
        depth = len(whole.blocks)
        self.embedding = whole.embedding if index == 0 else None
        self.blocks = whole.blocks[index * depth // stages : (index + 1) * depth // stages]
        self.norm, self.head = (whole.norm, whole.head) if index == stages - 1 else (None, None)
        self.head_dim, self.checkpointing = whole.head_dim, whole.checkpointing

    def forward(self, x: Tensor) -> Tensor:
        angles = rotary_angles(x.shape[1], self.head_dim, THETA, x.device)
        if self.embedding is not None:
            x = self.embedding(x)
        x = run_blocks(self.blocks, x, *angles, checkpointing=self.checkpointing)
        return x if self.norm is None or self.head is None else self.head(self.norm(x))


def pipeline(
    *,
    size: str = "llama-1b",
    gpus: int = 4,
    rank: int = 0,
    schedule: str = "1F1B",
    stages_per_rank: int = 1,
    microbatches: int = 8,
    batch_size: int = 8,
    seq_len: int = 2048,
    checkpointing: bool = False,
) -> Step:
    """One rank of a pipeline in bf16; `schedule` is one of torch's, by name."""
    from torch.distributed.pipelining import PipelineStage, schedules

    start(gpus, rank)
    whole = make(size, seq_len, checkpointing, "meta")
    assert isinstance(whole, Llama)
    num_stages, wide = gpus * stages_per_rank, whole.norm.normalized_shape[0]
    stages = []
    for index in range(rank, num_stages, gpus):
        part = Stage(whole, index, num_stages).bfloat16()
        fill(part)
        rows = batch_size // microbatches
        tokens = torch.empty(rows, seq_len, dtype=torch.long, device="meta")
        hidden, logits = (
            torch.empty(
                rows, seq_len, last, dtype=torch.bfloat16, device="meta", requires_grad=True
            )
            for last in (wide, LLAMA_VOCABULARY)
        )
        inputs, outputs = (
            (tokens if index == 0 else hidden),
            (hidden if part.head is None else logits),
        )
        stages.append(
            PipelineStage(
                part,
                index,
                num_stages,
                torch.device("cuda"),
                input_args=(inputs,),
                output_args=(outputs,),
            )
        )
    del whole

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    kind = getattr(schedules, f"Schedule{schedule}")
    plan = kind(stages if stages_per_rank > 1 else stages[0], microbatches, loss_fn=loss)
    parameters = [each for stage in stages for each in stage.submod.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4)

    def step() -> Tensor:
        tokens, targets = batch(size, batch_size, seq_len)
        first, last = rank == 0, rank == gpus - 1
        optimizer.zero_grad()
        plan.step(*([tokens] if first else []), **({"target": targets} if last else {}))
        optimizer.step()
        return torch.zeros(())

    return step
