"""A plain training program for a model that one GPU cannot hold: each has a part of every weight.

    torchrun --nproc-per-node 8 examples/fsdp.py                                      on your GPUs
    vramcast predict --gpu a100-40gb -- torchrun --nproc-per-node 8 examples/fsdp.py  no GPU needed

Nothing in it knows of vramcast.
"""

import argparse
import os

import torch
import torch.distributed as dist
from gpt import GPT
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=4, help="of each GPU")
parser.add_argument("--seq_len", type=int, default=1024)
parser.add_argument("--width", type=int, default=1600)
parser.add_argument("--depth", type=int, default=48)
parser.add_argument("--heads", type=int, default=25)
parser.add_argument("--epochs", type=int, default=10)
VOCABULARY = 50304


def sharded_gpt(given: argparse.Namespace) -> GPT:
    """Made without memory, then sharded, then each GPU gets memory for its own part only."""
    with torch.device("meta"):
        model = GPT(VOCABULARY, given.seq_len, given.width, given.depth, given.heads)
    model.checkpointing = True
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    model.to_empty(device="cuda")
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)
        elif "norm" in name and name.endswith("weight"):
            nn.init.ones_(parameter)
        else:
            nn.init.zeros_(parameter)
    return model


def main() -> None:
    given = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    model = sharded_gpt(given)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    data = TensorDataset(torch.randint(VOCABULARY, (4096, given.seq_len + 1)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, given.batch_size, sampler=sampler, pin_memory=True)
    for epoch in range(given.epochs):
        sampler.set_epoch(epoch)
        for (tokens,) in loader:
            tokens = tokens.cuda(non_blocking=True)
            loss = model(tokens[:, :-1], tokens[:, 1:])
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
