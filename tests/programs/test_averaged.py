"""An average of the weights, which needs no gradients, is evaluated like the network itself."""

from __future__ import annotations

from pathlib import Path

import pytest

import vramcast
from vramcast.records.phases import PhaseName

pytestmark = pytest.mark.usefixtures("warm_simulations")

PROGRAM = """
import copy, torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(64, 64)
model(torch.ones(1, 64))  # on the host, to see what comes out
model.cuda()
average = copy.deepcopy(model).eval().requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(9):
    for x in DataLoader(torch.ones(400, 64), 8):
        model(x.cuda()).square().mean().backward()
        optimizer.step()
    with torch.no_grad():
        for x in DataLoader(torch.ones(20, 64), 4):
            average(x.cuda())
"""


def test_an_average_that_is_frozen_is_seen_to_be_evaluated(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    found = vramcast.predict(["python", str(program)], gpu="h200")
    assert [(phase.name, phase.num_steps) for phase in found.phases] == [
        (PhaseName.BUILD, 0),
        (PhaseName.TRAIN, 3),
        (PhaseName.EVALUATE, 3),
    ]
    assert found.first_step_reserved_bytes > 20 << 20, "with the workspace of cuBLAS"
    assert found.num_parameters == 2 * 4160
    assert found.num_trainable_parameters == 4160
