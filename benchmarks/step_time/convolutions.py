"""Fits the time of convolutions to recorded ones. Used by fit.py; called itself, it writes only
their part of the tables.

shapes.jsonl.gz has those that shapes.py recorded, operators.jsonl.gz those of the families: seconds
of their kernels alone. What benchmarks/convolutions has was timed with its launches.
"""

from __future__ import annotations

import gzip
import json
import math
from collections import defaultdict
from itertools import compress, product
from pathlib import Path
from typing import Any

import numpy as np
from others import tell_errors
from scipy import linalg
from steps import HERE, RECORDED, read_kernels

from vramcast.forecast.timing.convolutions import (
    COMMON,
    FIXED_SECONDS,
    LIKE,
    directions_of,
    features,
    is_convolution,
    kind_of,
    least_seconds,
)
from vramcast.forecast.timing.convolutions import TABLE as TABLE_OF_CONVOLUTIONS
from vramcast.forecast.timing.likeness import likeness
from vramcast.forecast.timing.rates import TABLE
from vramcast.hardware.gpus import find_gpu
from vramcast.tracing.work import TF32, Convolution, OperatorWork

TABLES = HERE.parents[1] / "src/vramcast/forecast/timing/tables"
SHAPES = RECORDED / "shapes.jsonl.gz"
H200 = find_gpu("h200")
DIRECTIONS = ("forward", "data_gradient", "weight_gradient")
KINDS = ("dense", "depthwise", "volumes")
DTYPES = {"fp32": 6, "bf16": 15, "fp16": 5}
RIDGE = 1.0
ONE_OF = 5  # networks is left out to see how far it is off for those
IN_A_PART = 60  # of the families, each left out like a network
USUAL_ERROR = 0.1  # larger ones count less
NOISE = 0.03  # variance of a recorded logarithm


def recorded(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as file:
        lines = [json.loads(line) for line in file]
    return [line for line in lines if "seconds" in line]


def work_of(record: dict[str, Any], direction: str) -> OperatorWork:
    weight, is_transposed = record["weight"], record["transposed"]
    x, y = record["batch"] * math.prod(record["x"]), math.prod(record["y"])
    small, filters = (x, record["x"][0]) if is_transposed else (y, record["y"][1])
    sizes = Convolution(
        positions=small // filters,
        filters=filters // record["groups"],
        channels=weight[1],
        kernel=math.prod(weight[2:]),
        # forward, a line is a picture that is one high
        dims=2 if direction == "forward" and len(weight) == 3 else len(weight) - 2,
        is_transposed=is_transposed,
        is_channels_last=record.get("channels_last", record.get("last")),
        of_data=direction == "data_gradient",
        of_weight=direction == "weight_gradient",
        batch=record["batch"],
        is_dilated=max(record["dilation"]) > 1,
    )
    is_tf32 = record["dtype"] == "fp32" and record.get("tf32", True)
    dtype = TF32 if is_tf32 else DTYPES[record["dtype"]]
    moved = (x + y + math.prod(weight)) * (4 if record["dtype"] == "fp32" else 2)
    flops = 2.0 * small * math.prod(weight) / weight[0]
    return OperatorWork("aten::convolution", dtype, flops, float(moved), sizes.packed, 0, 1)


def timed_convolutions() -> list[tuple[str, OperatorWork, float]]:
    """(network, what is computed, seconds)."""
    families = [(w, s) for w, s, _ in read_kernels("operators.jsonl.gz") if is_convolution(w)]
    timed = [(f"part {number // IN_A_PART}", *each) for number, each in enumerate(families)]
    for number, record in enumerate(line for line in recorded(SHAPES) if "weight" in line):
        for direction in DIRECTIONS:
            network = record.get("network", f"drawn {number // IN_A_PART}")
            timed.append((network, work_of(record, direction), record["seconds"][direction]))
    return [each for each in timed if each[2] > FIXED_SECONDS]


def solve(inputs: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Least squares with a penalty on large coefficients and less weight on large errors."""
    middle, scale = inputs.mean(0), inputs.std(0)
    middle[0], scale[scale < 1e-9] = 0.0, 1.0
    scaled = (inputs - middle) / scale
    penalty = RIDGE * np.eye(scaled.shape[1])
    penalty[0, 0] = 0.0
    weights = np.ones(len(wanted))
    for _ in range(8):
        weighted = (scaled * weights[:, None]).T
        found = np.linalg.solve(weighted @ scaled + penalty, weighted @ wanted)
        weights = USUAL_ERROR / np.maximum(np.abs(scaled @ found - wanted), USUAL_ERROR)
    coefficients = found / scale
    coefficients[0] -= (middle * coefficients)[1:].sum()
    return coefficients


def around(inputs: np.ndarray, left: np.ndarray) -> np.ndarray:
    """How much each counts for those that are like it."""
    places = inputs[:, COMMON:]
    matrix = likeness(places, places, LIKE)
    matrix[np.diag_indices(len(matrix))] += NOISE
    return linalg.solve(matrix, left, assume_a="pos", overwrite_a=True)


def fit_convolutions() -> tuple[dict[str, list[float]], dict[str, np.ndarray], float]:
    """The sums, what recorded ones add, and how far it is off for networks that it was not fitted
    to: the standard deviation of a network's mean logarithmic error, without its outliers."""
    sums: dict[str, list[float]] = {}
    table: dict[str, np.ndarray] = {}
    timed = timed_convolutions()
    networks = sorted({network for network, *_ in timed})
    order = np.random.RandomState(0).permutation(len(networks))
    is_left_out = {networks[index]: number % ONE_OF == 0 for number, index in enumerate(order)}
    errors: dict[str, list[float]] = defaultdict(list)
    for direction, kind in product(DIRECTIONS, KINDS):
        chosen = [
            (network, work, seconds)
            for network, work, seconds in timed
            for sizes in [Convolution.unpacked(work.sizes)]
            if directions_of(sizes) == [direction] and kind_of(sizes) == kind
        ]
        inputs = np.array([features(Convolution.unpacked(w.sizes), w, H200) for _, w, _ in chosen])
        wanted = np.array(
            [math.log((s - FIXED_SECONDS) / sum(least_seconds(w, H200))) for _, w, s in chosen]
        )
        outside = np.array([is_left_out[network] for network, *_ in chosen])
        found = solve(inputs[~outside], wanted[~outside])
        left = wanted - inputs @ found
        weights = around(inputs[~outside], left[~outside])
        near = likeness(inputs[outside, COMMON:], inputs[~outside, COMMON:], LIKE)
        wrong = near @ weights - left[outside]
        for (network, *_), error in zip(compress(chosen, outside), wrong, strict=True):
            errors[network].append(error)
        tell_errors(
            f"convolutions {direction} {kind}, {len(chosen)}: networks left out",
            np.abs(np.expm1(wrong)),
        )
        values = [*np.quantile(wanted, [0.002, 0.998]), *solve(inputs, wanted)]
        name = f"{direction} {kind}"
        sums[name] = [float(f"{value:.5g}") for value in values]
        table[f"{name} places"] = inputs[:, COMMON:].astype(np.float16)
        weights = around(inputs, wanted - inputs @ np.array(sums[name][2:]))
        table[f"{name} weights"] = weights.astype(np.float32)
    means = np.array([np.mean(of_network) for of_network in errors.values()])
    return sums, table, float(1.4826 * np.median(np.abs(means)))


def main() -> None:
    """Writes only what is told of convolutions."""
    sums, like_them, spread = fit_convolutions()
    np.savez_compressed(TABLES / TABLE_OF_CONVOLUTIONS, **like_them)
    path = TABLES / TABLE
    rates = json.loads(path.read_text())
    rates["convolutions"] = sums
    print("spread", round(spread, 4), "before", rates["spread"]["convolutions"])
    path.write_text(json.dumps(rates, indent=1) + "\n")


if __name__ == "__main__":
    main()
