"""Models of many tensors, steps of many kernels, tensors of many elements.

Three sizes of each; the ratio is to the first.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from timing import Row, grown

TITLE = "Large models"
TIMES = (1, 2, 5)
TENSORS, LAUNCHES, ROWS = 4_000, 200_000, 18_000_000
WORKLOADS = """
import torch
from torch import nn


def tensors(num_tensors=4_000):
    model = nn.Sequential(*[nn.Linear(16, 16) for _ in range(num_tensors // 2)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(4, 16, device="cuda")

    def step():
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    return step


def launches(num_launches=200_000):
    x = torch.randn(4, 16, device="cuda")

    def step():
        y = x
        for _ in range(num_launches):
            y = y * 1.5

    return step


def rows(num_rows=18_000_000):
    x = torch.randn(num_rows, 1024, device="cuda")
    model = nn.Linear(1024, 1024).cuda()

    def step():
        model(x).sum().backward()

    return step
"""


def rows(repeats: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "large.py").write_text(WORKLOADS)
        for what, knob, unit, seconds in (
            ("{} parameter tensors", "tensors", TENSORS, 5.0),
            ("{} launches a step", "launches", LAUNCHES, 12.0),
            ("a tensor of {} x 1024 elements", "rows", ROWS, None),
        ):
            sizes = [times * unit for times in TIMES]
            commands = [
                ("predict", f"large.py:{knob}", f"num_{knob}={size}", "--gpu", "h200")
                for size in sizes
            ]
            yield from grown(what, sizes, commands, folder, repeats, at_most_seconds=seconds)
