"""A tiny workload whose steps take as long as its knobs say, by a clock that it brings along.

How busy the machine is does not matter to it.
"""

from types import SimpleNamespace
from typing import Literal

import torch

from vramcast.probing import cuda_on_cpu, on_gpu

now_seconds = 0.0
num_steps = 0
cuda_on_cpu.time = on_gpu.time = SimpleNamespace(perf_counter=lambda: now_seconds)


def let_pass(seconds):
    """Not always the same time: every third step takes 2 % longer."""
    global now_seconds, num_steps
    num_steps += 1
    now_seconds += seconds * (1.02 if num_steps % 3 == 0 else 1.0)


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
        let_pass(
            (0.06 if attention == "plain" else 0.01) + (0.04 if torch.is_anomaly_enabled() else 0.0)
        )
        if not checkpointing:
            raise RuntimeError("torch._dynamo.exc.Unsupported: print")
        update.zero_grad()
        loss = weight(x).square().mean()
        loss.backward()
        update.step()
        return loss.detach() * loss_chunks

    return step
