"""How many steps of a program are looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

import vramcast

pytestmark = pytest.mark.usefixtures("warm_simulations")
MIB = 1 << 20
TRAIN = """
import torch
model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for number in range(1_000):
    x = torch.randn({rows}, 1024, device="cuda")
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
BY_HAND = """
import torch
weights = torch.nn.Parameter(torch.randn(1024, 1024, device="cuda"))
optimizer = torch.optim.Adam([weights])
for _ in range(10**9):
    weights.grad = torch.randn_like(weights)
    optimizer.step()
"""


def predict(folder: Path, text: str) -> vramcast.Prediction:
    (program := folder / "train.py").write_text(text)
    return vramcast.predict(["python", str(program)], gpu="h200")


def test_batches_that_grow_every_few_steps_are_followed(tmp_path: Path) -> None:
    """Four lengths, two steps each."""
    found = predict(tmp_path, TRAIN.format(rows="4096 * (1 + number // 2 % 4)"))
    assert found.phases[-1].num_steps == 8
    # the batch, and what the model makes of it
    assert found.peak_allocated_bytes > 2 * 64 * MIB
    assert any("training steps differ" in limit for limit in found.limits)


def test_of_batches_that_are_alike_a_few_are_enough(tmp_path: Path) -> None:
    found = predict(tmp_path, TRAIN.format(rows="4096"))
    assert found.phases[-1].num_steps == 3
    assert not found.limits


def test_an_update_without_a_backward_pass_is_a_step(tmp_path: Path) -> None:
    found = predict(tmp_path, BY_HAND)
    assert found.phases[-1].name == "train" and found.phases[-1].num_steps >= 3
    # weights, gradients and two states
    assert 16 * MIB <= found.peak_allocated_bytes < 33 * MIB
