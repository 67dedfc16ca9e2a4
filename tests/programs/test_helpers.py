"""Networks that a training step asks and does not train are part of that step."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import vramcast
from vramcast.programs.helpers import is_training
from vramcast.records.phases import PhaseName

pytestmark = pytest.mark.usefixtures("warm_simulations")

PROGRAM = """
import torch
encoder = torch.nn.Linear(512, 64).cuda().eval()  # frozen by nothing but torch.no_grad()
model = torch.nn.Linear(64, 8).cuda()
optimizer = torch.optim.AdamW(model.parameters())

def evaluate():
    model.eval()
    with torch.no_grad():
        for _ in range(5):
            model(torch.randn(16, 64, device="cuda"))
    model.train()

if BEFORE:
    evaluate()
for step in range(6):
    with torch.no_grad():
        encoded = encoder(torch.randn(100_000, 512, device="cuda"))
    model(encoded).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def phases_of(folder: Path, *, evaluates_before: bool) -> dict[PhaseName, int]:
    program = folder / "train.py"
    program.write_text(PROGRAM.replace("BEFORE", str(evaluates_before)))
    found = vramcast.predict(["python", str(program)], gpu="h200")
    assert found.peak_phase.startswith("step")
    return {phase.name: phase.num_steps for phase in found.phases}


def test_what_an_encoder_takes_in_every_step_is_of_the_training(tmp_path: Path) -> None:
    phases = phases_of(tmp_path, evaluates_before=False)
    assert phases == {PhaseName.BUILD: 0, PhaseName.TRAIN: 3}


def test_an_evaluation_before_the_training_is_still_seen_as_one(tmp_path: Path) -> None:
    phases = phases_of(tmp_path, evaluates_before=True)
    assert phases == {PhaseName.BUILD: 0, PhaseName.EVALUATE: 5, PhaseName.TRAIN: 3}


def test_a_wrapper_is_evaluated_where_the_network_in_it_is() -> None:
    engine = torch.nn.Module()
    engine.module = torch.nn.Linear(2, 2)
    assert is_training(engine)
    engine.module.eval()
    assert engine.training and not is_training(engine)
