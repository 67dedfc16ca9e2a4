"""Networks with parts that torch.jit compiles: `python scripted.py gates`, `chain` or `modules`."""

import sys

import torch
import torch.nn.functional as F
from torch import nn


@torch.jit.script
def gate(a, b, width: int):
    x = a + b
    return torch.tanh(x[:, :width]) * torch.sigmoid(x[:, width:])


class Gated(nn.Module):
    """As in WaveNet, WaveGlow and VITS."""

    def __init__(self, width: int, dilation: int):
        super().__init__()
        self.width = width
        self.near = nn.Conv1d(width, 2 * width, 3, padding=dilation, dilation=dilation)
        self.given = nn.Conv1d(width, 2 * width, 1)

    def forward(self, x):
        return x + gate(self.near(x), self.given(x), self.width)


@torch.jit.script
def bias_gelu(bias, y):
    x = bias + y
    return x * 0.5 * (1.0 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))


@torch.jit.script
def bias_dropout_add(x, bias, residual, share: float):
    return residual + F.dropout(x + bias, p=share, training=True)


class Chained(nn.Module):
    """As in Megatron-LM."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)
        self.up_bias = nn.Parameter(torch.zeros(4 * width))
        self.down_bias = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        inner = bias_gelu(self.up_bias, self.up(self.norm(x)))
        return bias_dropout_add(self.down(inner), self.down_bias, x, 0.1)


class Mixed(torch.jit.ScriptModule):
    """As in RWKV."""

    def __init__(self, width: int):
        super().__init__()
        self.key, self.value = nn.Linear(width, width), nn.Linear(width, width)
        self.gate = nn.Linear(width, width)
        self.share = nn.Parameter(torch.rand(width))

    @torch.jit.script_method
    def forward(self, x):
        before = F.pad(x, (0, 0, 1, -1)) - x
        key = torch.relu(self.key(x + before * self.share)) ** 2
        return x + torch.sigmoid(self.gate(x)) * (key * self.value(x - before * self.share))


kinds = {
    "gates": lambda: (
        [Gated(192, 2 ** (i % 4)) for i in range(16)],
        torch.float32,
        (16, 192, 2000),
    ),
    "chain": lambda: ([Chained(1024) for _ in range(8)], torch.bfloat16, (8192, 1024)),
    "modules": lambda: ([Mixed(768) for _ in range(8)], torch.float32, (32, 512, 768)),
}
layers, dtype, shape = kinds[sys.argv[1]]()
network = nn.Sequential(*layers).to("cuda", dtype)
optimizer = torch.optim.AdamW(network.parameters())
for _ in range(8):
    x = torch.randn(shape, device="cuda", dtype=dtype)
    loss = network(x).float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
