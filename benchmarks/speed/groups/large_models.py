"""Models of many tensors, steps of many kernels, tensors of many elements.

Three sizes of each; the ratio is to the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from timing import Row, grown

TITLE = "Large models"
TIMES = (1, 2, 5)
TENSORS, LAUNCHES, ROWS = 4_000, 200_000, 18_000_000
ROOT = Path(__file__).parents[3]
WORKLOADS = "benchmarks/speed/large.py"


def rows(repeats: int) -> Iterator[Row]:
    for what, knob, unit, seconds in (
        ("{} parameter tensors", "tensors", TENSORS, 5.0),
        ("{} launches a step", "launches", LAUNCHES, 12.0),
        ("a tensor of {} x 1024 elements", "rows", ROWS, None),
    ):
        sizes = [times * unit for times in TIMES]
        commands = [
            ("predict", f"{WORKLOADS}:{knob}", f"num_{knob}={size}", "--gpu", "h200")
            for size in sizes
        ]
        yield from grown(what, sizes, commands, ROOT, repeats, at_most_seconds=seconds)
