"""A plain training program on several GPUs: a copy of the model on each, gradients averaged.

    torchrun --nproc-per-node 8 examples/ddp.py                                       on your GPUs
    vramcast predict --gpu a100-80gb -- torchrun --nproc-per-node 8 examples/ddp.py   no GPU needed

Nothing in it knows of vramcast.
"""

import argparse
import os

import torch
import torch.distributed as dist
from gpt import GPT
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=8, help="of each GPU")
parser.add_argument("--seq_len", type=int, default=1024)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--out", default="model.pt")
VOCABULARY = 50304


def main() -> None:
    given = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    model = GPT(VOCABULARY, given.seq_len, width=768, depth=12, heads=12).to(device)
    # gradients are views into the buckets that are sent, instead of copies
    spread = DistributedDataParallel(model, device_ids=[device.index], gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(spread.parameters(), lr=3e-4)
    data = TensorDataset(torch.randint(VOCABULARY, (4096, given.seq_len + 1)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, given.batch_size, sampler=sampler, pin_memory=True)
    for epoch in range(given.epochs):
        sampler.set_epoch(epoch)
        for (tokens,) in loader:
            tokens = tokens.to(device, non_blocking=True)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = spread(tokens[:, :-1], tokens[:, 1:])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}")
            torch.save(model.state_dict(), given.out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
