"""Convolutions of layers.py:of_network, from the shapes in their profile alone.

    python benchmarks/step_time/networks.py OUT.jsonl RECORDED.jsonl ...

Each was called forward, then for the gradient of its input, then of its weight. A line of OUT is
like those of joined.py.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from pairing import Call, calls_of

from vramcast.tracing.work import PLAIN, TF32, Convolution, OperatorWork

DTYPES = {"fp32": (TF32, 4), "bf16": (15, 2), "fp16": (5, 2)}
BACKWARD = "aten::convolution_backward"


def works_of(grad: list[int], x: list[int], w: list[int], knobs: dict[str, Any]) -> list[Any]:
    """Forward, of the input, of the weight."""
    dtype, size = DTYPES[knobs["dtype"]]
    groups = x[1] // w[1]
    moved = size * sum(map(math.prod, (grad, x, w)))
    flops = 2.0 * math.prod(grad) * math.prod(w) / w[0]
    works = []
    for of_data, of_weight in ((False, False), (True, False), (False, True)):
        sizes = Convolution(
            positions=math.prod(grad) // grad[1],
            filters=w[0] // groups,
            channels=w[1],
            kernel=math.prod(w[2:]),
            dims=len(w) - 2,
            is_channels_last=bool(knobs["last"]),
            of_data=of_data,
            of_weight=of_weight,
            batch=x[0],
        )
        name = BACKWARD if of_data or of_weight else "aten::cudnn_convolution"
        works.append(OperatorWork(name, dtype, flops, float(moved), sizes.packed, 0, PLAIN))
    return works


def lines_of(record: dict[str, Any]) -> list[list[Any]]:
    """Each once: forward is what came before two gradients of the same shapes."""
    calls = [c for c in calls_of(record) if any("conv" in name for name in c.names)]
    lines: list[list[Any]] = []
    for forward, *gradients in zip(calls, calls[1:], calls[2:]):
        if BACKWARD in forward.names or not all(_is_gradient(g) for g in gradients):
            continue
        grad, x, w = json.loads(gradients[0].shapes)[:3]
        if json.loads(forward.shapes)[0] != x:
            continue
        for work, call in zip(works_of(grad, x, w, record["knobs"]), (forward, *gradients)):
            lines.append([*work[:5], work.access, float(f"{call.seconds:.4g}"), 1])
    return lines


def _is_gradient(call: Call) -> bool:
    return call.names[-1] == BACKWARD


def main() -> None:
    out, *recorded = map(Path, sys.argv[1:])
    with open(out, "w") as file:
        for path in recorded:
            lines = lines_of(json.loads(path.read_text()))
            print(path.name, len(lines))
            file.writelines(json.dumps(line) + "\n" for line in lines)


if __name__ == "__main__":
    main()
