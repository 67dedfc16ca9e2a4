"""Packed samples: a recurrent network works on the steps that they have, and on no others."""

from __future__ import annotations

from pathlib import Path

import vramcast

WORKLOAD = """
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

def build(packed: bool = True, short: bool = False):
    network = nn.GRU(64, 128, num_layers=2).cuda()
    x = torch.randn(200, 4, 64, device="cuda")
    lengths = torch.tensor([200, 100, 50, 50] if short else [200] * 4)

    def step():
        given = pack_padded_sequence(x, lengths) if packed else x
        loss = network(given)[1].sum()
        loss.backward()
        return loss

    return step
"""


def predict(folder: Path, **knobs: bool) -> vramcast.Prediction:
    file = folder / "workload.py"
    file.write_text(WORKLOAD)
    return vramcast.predict(f"{file}:build", gpu="h200", **knobs)


def test_samples_of_equal_lengths_take_the_operations_of_samples_that_are_not_packed(
    tmp_path: Path,
) -> None:
    packed, plain = predict(tmp_path), predict(tmp_path, packed=False)
    assert packed.step and plain.step
    assert packed.step.flops == plain.step.flops


def test_shorter_samples_take_fewer_operations_and_less_memory(tmp_path: Path) -> None:
    """Half of all steps."""
    long, short = predict(tmp_path), predict(tmp_path, short=True)
    assert long.step and short.step
    assert short.step.flops == long.step.flops / 2
    assert short.peak_allocated_bytes < long.peak_allocated_bytes
