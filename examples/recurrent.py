"""A recurrent network over bytes, with its loop over time in plain PyTorch, as a workload.

    vramcast predict examples/recurrent.py batch_size=64 --gpu a100-80gb    no GPU needed
    python examples/recurrent.py                                            on your GPU

Each of the 512 time steps leaves small tensors behind for the backward pass: memory grows with
seq_len although the state does not.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

DEVICE = torch.device("cuda")
BYTES = 256


class RecurrentLayer(nn.Module):
    """A gated Elman layer: the new state mixes the old one and a candidate, as in a GRU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.from_input = nn.Linear(width, 2 * width)
        self.from_state = nn.Linear(width, 2 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        # All time steps at once: one large product instead of many small ones.
        inputs = self.from_input(self.norm(x))
        state, states = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            gate, candidate = (inputs[:, t] + self.from_state(state)).chunk(2, dim=-1)
            state = torch.lerp(state, torch.tanh(candidate), torch.sigmoid(gate))
            states.append(state)
        return x + torch.stack(states, dim=1)


class ByteModel(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.byte = nn.Embedding(BYTES, width)
        self.layers = nn.Sequential(*(RecurrentLayer(width) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, BYTES)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        logits = self.head(self.norm(self.layers(self.byte(tokens))))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def build(
    *,
    batch_size: int = 32,
    seq_len: int = 512,
    width: int = 512,
    depth: int = 2,
    learning_rate: float = 1e-3,
) -> Callable[[], Tensor]:
    with DEVICE:  # makes the weights on the GPU, not on the CPU first
        model = ByteModel(width, depth)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)

    def step() -> Tensor:
        # Random bytes take the memory that real ones take.
        tokens = torch.randint(BYTES, (batch_size, seq_len + 1), device=DEVICE)
        loss: Tensor = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # gradients through 512 steps can explode
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


if __name__ == "__main__":
    train_one_step = build()
    for number in range(5):
        print(f"step {number}: loss {train_one_step().item():.3f}")
    print(f"peak reserved: {torch.cuda.max_memory_reserved() / 2**30:.2f} GiB")
