"""A usual training program: epochs over data loaders, an evaluation, the best model saved."""

import argparse
import os
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=8)
parser.add_argument("--width", type=int, default=256)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--out", default="best.pt")
parser.add_argument("--settings")
given = parser.parse_args()
if given.settings:
    os.environ["PYTORCH_ALLOC_CONF"] = given.settings
print("started as", __name__, sys.argv[1:], torch.cuda.get_device_name())

model = torch.nn.Sequential(*[torch.nn.Linear(given.width, given.width) for _ in range(3)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
data = TensorDataset(torch.randn(512, given.width))
loader = DataLoader(data, given.batch_size, num_workers=given.workers, pin_memory=True)
for epoch in range(1000):
    model.train()
    for (x,) in loader:
        loss = model(x.cuda(non_blocking=True)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        for (x,) in DataLoader(data, 512):
            # held by nothing when the next one is made
            activations = [model(x.cuda()) for _ in range(8)]
    torch.save({"model": model.state_dict(), "epoch": epoch}, given.out)
    print("loaded again", torch.load(given.out)["epoch"], os.path.exists(given.out))
