"""Fits the kernels of FlexAttention to recorded/flex.jsonl (recording/flex.py).

    python benchmarks/step_time/fit_flex.py

It prints the fraction of the GPU's peak that the table has as "inductor::flex_attention", by type
and direction, and how far off each recorded kernel is then. The columns in
simulate/flex_attention.py were fitted to the same kernels, by hand: there are few.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from typing import Any

from steps import RECORDED

from vramcast.forecast.timing.rates import peak_flops
from vramcast.hardware.gpus import find_gpu
from vramcast.simulate.flex_attention import NAME, Scores

FIXED_SECONDS, TANH = 3e-6, 4
PRECISIONS = {"bfloat16": "bf16", "float32": "fp32"}
Found = dict[str, list[tuple[float, float, str]]]


def scores_of(line: dict[str, Any]) -> Scores:
    length, is_masked = line["length"], line["blocks"] >= 0
    return Scores(
        line["batch"] * line["heads"],
        line["blocks"] * 128 * 128 if is_masked else length * length,
        line["width"],
        TANH if line["score"] == "cap" else 0,
        length * 128 if is_masked else 0,
    )


def memory_seconds(line: dict[str, Any], is_backward: bool) -> float:
    heads = line["heads"] + 2 * line["key_heads"]
    item_bytes = 2 if line["dtype"] == "bfloat16" else 4
    num_bytes: int = line["batch"] * heads * line["length"] * line["width"] * item_bytes
    return (3 if is_backward else 2) * num_bytes / find_gpu("h200").bandwidth_bytes_per_second


def recorded() -> Found:
    """By name and precision: operations, and seconds that they take."""
    found: Found = defaultdict(list)
    for line in map(json.loads, (RECORDED / "flex.jsonl").read_text().splitlines()):
        for kernel, nanoseconds in line["kernels"].items():
            if "_tem_" not in kernel:
                continue
            is_backward = "backward" in kernel
            name = f"{NAME}{'_backward' * is_backward} {PRECISIONS[line['dtype']]}"
            seconds = nanoseconds / 1e9 - FIXED_SECONDS - memory_seconds(line, is_backward)
            shape = " ".join(str(line[key]) for key in ("length", "width", "mask", "score"))
            found[name].append((scores_of(line).cost(is_backward), seconds, shape))
    return found


def main() -> None:
    for name, kernels in recorded().items():
        peak = peak_flops(find_gpu("h200"), name.rpartition(" ")[2])
        fraction = statistics.median(flops / seconds / peak for flops, seconds, _ in kernels)
        print(f"{name}: {fraction:.3f}")
        for flops, seconds, shape in kernels:
            print(f"  {100 * (flops / fraction / peak / seconds - 1):+.0f} % {shape}")


if __name__ == "__main__":
    main()
