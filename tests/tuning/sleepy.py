"""A tiny workload whose steps take as long as its knobs say."""

import time
from typing import Literal

import torch


def build(
    *,
    batch_size: int = 4,
    attention: Literal["plain", "auto"] = "plain",
    optimizer: Literal["adamw", "adamw-fused"] = "adamw",
    loss_chunks: int = 1,
    checkpointing: bool = True,
    dtype: torch.dtype = torch.float32,
):
    torch.manual_seed(0)
    torch.autograd.set_detect_anomaly(True)  # a switch that a workload has left on
    weight = torch.nn.Linear(8, 8).to("cuda", dtype)
    x = torch.randn(batch_size, 8, device="cuda", dtype=dtype)
    update = torch.optim.SGD(weight.parameters(), lr=0.1)

    def step():
        time.sleep(0.06 if attention == "plain" else 0.01)
        time.sleep(0.04 if torch.is_anomaly_enabled() else 0.0)
        if not checkpointing:
            raise RuntimeError("torch._dynamo.exc.Unsupported: print")
        update.zero_grad()
        loss = weight(x).square().mean()
        loss.backward()
        update.step()
        return loss.detach() * loss_chunks

    return step
