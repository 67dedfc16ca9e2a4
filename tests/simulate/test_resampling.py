"""Upsampling copies a gradient that is not dense, as torch's CUDA kernels do."""

from __future__ import annotations

import json
from pathlib import Path

import vramcast

WORKLOAD = """
import torch
from torch.nn import functional

def build(joined: bool = True):
    x = torch.randn(2, 8, 16, 16, device="cuda", requires_grad=True)
    other = torch.randn(2, 8, 32, 32, device="cuda")

    def step():
        y = functional.interpolate(x, scale_factor=2, mode="nearest")
        loss = (torch.cat([y, other], 1) if joined else y * 2).square().sum()
        loss.backward()
        return loss

    return step
"""
SMALL_BYTES, LARGE_BYTES = (4 * 2 * 8 * side * side for side in (16, 32))


def backward_sizes(folder: Path, joined: bool) -> list[int]:
    trace = folder / str(joined)
    file = folder / "workload.py"
    file.write_text(WORKLOAD)
    vramcast.predict(f"{file}:build", gpu="h200", trace=trace, joined=joined)
    events = json.loads((trace / "trace.json").read_text())["events"]
    operator = "aten::upsample_nearest2d_backward"
    return [event[2] for event in events if event[0] == "alloc" and event[3] == operator]


def test_the_gradient_of_one_of_several_joined_tensors_is_copied(tmp_path: Path) -> None:
    assert backward_sizes(tmp_path, joined=True)[:2] == [SMALL_BYTES, LARGE_BYTES]


def test_a_dense_gradient_is_not_copied(tmp_path: Path) -> None:
    assert set(backward_sizes(tmp_path, joined=False)) == {SMALL_BYTES}
