"""Packed samples: a recurrent network works on the steps that they have, and on no others."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import vramcast
from vramcast.simulate.kernels.recurrent_workspace import (
    Recurrent,
    reserve_bytes,
    workspace_bytes,
)

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


RECORDED = Path(__file__).parents[2] / "benchmarks/libraries/recurrent-h200-torch-2.11.jsonl.gz"
ITEM_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}


def _described(case: dict[str, Any]) -> Recurrent:
    lengths = case["lengths"]
    same = {name: case[name] for name in ("kind", "hidden", "layers", "directions")}
    return Recurrent(
        **same,
        item_bytes=ITEM_BYTES[case["dtype"]],
        input_size=case["input"],
        batch=len(lengths),
        steps=lengths[0],
        all_steps=sum(lengths),
        dropout=case["dropout"] > 0,
        is_half=case["dtype"] == "fp16",
        is_packed=case["packed"],
        is_training=case["train"],
    )


@pytest.mark.parametrize(("packed", "fewest"), [(True, 1900), (False, 360)])
def test_cudnn_takes_as_much_for_samples_as_it_took_on_an_h200(packed: bool, fewest: int) -> None:
    with gzip.open(RECORDED, "rt") as file:
        cases = [json.loads(line) for line in file]
    right = []
    for case in cases:
        if case["packed"] != packed or case["proj"]:
            continue
        network, taken = _described(case), case["forward"]
        errors = [workspace_bytes(network, backward=False) - taken[-1 - case["train"]]]
        if case["train"]:
            errors.append(reserve_bytes(network) - taken[-1])
        right.append(all(abs(error) <= 256 for error in errors))
    assert len(right) > fewest and sum(right) / len(right) > 0.99
