"""Models of many tensors, steps of many kernels, tensors of many elements.

Three sizes of each; the ratio is to the first. The aims in seconds, 5 and 12, are of a machine on
which `import torch` takes 1.07 s: the largest sizes are compared with it once more, in turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from timing import VRAMCAST, Row, against_torch, grown

TITLE = "Large models"
TIMES = (1, 2, 5)
TENSORS, LAUNCHES, ROWS = 4_000, 200_000, 18_000_000
ROOT = Path(__file__).parents[3]
WORKLOADS = "benchmarks/speed/large.py"
IMPORT_TORCH_SECONDS = 1.07


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
        if seconds is not None:
            yield against_torch(
                what.format(f"{sizes[-1]:,}"),
                (*VRAMCAST, *commands[-1]),
                repeats,
                at_most=seconds / IMPORT_TORCH_SECONDS,
                exit_codes=(0, 3),
            )
