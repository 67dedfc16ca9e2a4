"""Parameters are counted once, also where an optimizer has flat copies of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import vramcast

pytestmark = pytest.mark.usefixtures("warm_simulations")

PROGRAM = """
import torch
model = torch.nn.Linear(64, 64).cuda().half()
copy = torch.cat([p.detach().float().flatten() for p in model.parameters()])
optimizer = torch.optim.Adam([copy])
for _ in range(3):
    model(torch.ones(8, 64, device="cuda").half()).sum().backward()
    copy.grad = torch.cat([p.grad.float().flatten() for p in model.parameters()])
    optimizer.step()
    model.zero_grad()
"""


def test_an_optimizers_copies_of_the_parameters_are_not_counted(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    found = vramcast.predict(["python", str(program)], gpu="h200")
    assert found.num_parameters == found.num_trainable_parameters == 64 * 64 + 64


def test_what_only_an_optimizer_has_is_counted_where_it_is_no_copy(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        "import torch\n"
        "points = torch.randn(100, 3, device='cuda', requires_grad=True)\n"
        "optimizer = torch.optim.Adam([points])\n"
        "for _ in range(3):\n"
        "    points.square().sum().backward()\n"
        "    optimizer.step()\n"
    )
    assert vramcast.predict(["python", str(program)], gpu="h200").num_parameters == 300
