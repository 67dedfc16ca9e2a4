"""Programs that compile more than a model."""

from __future__ import annotations

from pathlib import Path

import pytest

import vramcast

pytestmark = pytest.mark.usefixtures("warm_simulations")
WHOLE_STEP = """
import torch
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)

@torch.compile(backend="eager")
def step(x):
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss

for _ in range(10):
    step(torch.randn(128, 64, device="cuda"))
"""


def test_of_a_compiled_step_only_the_programs_own_functions_are_compiled(tmp_path: Path) -> None:
    """Hooks hear the optimizer in it. What they call would be compiled again for each step."""
    (program := tmp_path / "train.py").write_text(WHOLE_STEP)
    found = vramcast.predict(["python", str(program)], gpu="h200")
    assert found.phases[-1].name == "train" and found.phases[-1].num_steps >= 2
    assert found.compilation and not found.compilation.recompilations
