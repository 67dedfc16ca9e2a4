"""Fits the time of convolutions to those recorded in benchmarks/convolutions. Used by fit.py."""

from __future__ import annotations

import gzip
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from steps import read_kernels

from vramcast.forecast.timing.convolutions import (
    FIXED_SECONDS,
    base_seconds,
    directions_of,
    features,
    is_convolution,
    kind_of,
)
from vramcast.hardware.gpus import find_gpu
from vramcast.tracing.work import TF32, Convolution, OperatorWork

RECORDED = Path(__file__).parents[1] / "convolutions" / "h200-torch-2.11.jsonl.gz"
H200 = find_gpu("h200")
DIRECTIONS = ("forward", "data_gradient", "weight_gradient")
KINDS = ("dense", "depthwise")
DTYPES = {"fp32": 6, "bf16": 15, "fp16": 5}
# A call of those was timed with its launch, which takes 20 to 100 us: of short ones the time is the
# host's. To choose by the time that was measured would choose slow ones: what they compute decides.
LAUNCH_SECONDS = 3e-5
SHORTEST_SECONDS = {"dense": 2e-4, "depthwise": 2e-4}
LEAST_WORK_SECONDS = {"dense": 1e-4, "depthwise": 0.0}
RIDGE = 1.0
NUM_FOLDS = 5
NUM_PARTS = 20  # of the families, each left out like a network
USUAL_ERROR = 0.1  # larger ones count less


def recorded() -> list[dict[str, Any]]:
    with gzip.open(RECORDED, "rt") as file:
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
        dims=len(weight) - 2,
        is_transposed=is_transposed,
        is_channels_last=record["channels_last"],
        of_data=direction == "data_gradient",
        of_weight=direction == "weight_gradient",
        batch=record["batch"],
    )
    dtype = TF32 if record["tf32"] else DTYPES[record["dtype"]]
    moved = (x + y + math.prod(weight)) * (4 if record["dtype"] == "fp32" else 2)
    flops = 2.0 * small * math.prod(weight) / weight[0]
    return OperatorWork("aten::convolution", dtype, flops, float(moved), sizes.packed, 0, 1)


def timed_convolutions() -> list[tuple[str, OperatorWork, float]]:
    """(network, what is computed, seconds). Those of operators.jsonl.gz are without the launch."""
    timed = []
    for record in recorded():
        for direction in DIRECTIONS:
            work, seconds = work_of(record, direction), record["seconds"][direction]
            kind, least = kind_of(Convolution.unpacked(work.sizes)), base_seconds(work, H200)
            if seconds > SHORTEST_SECONDS[kind] and least > LEAST_WORK_SECONDS[kind]:
                timed.append((record["network"], work, seconds - LAUNCH_SECONDS))
    for number, (work, seconds, _) in enumerate(read_kernels("operators.jsonl.gz")):
        if is_convolution(work) and seconds > FIXED_SECONDS:
            timed.append((f"operators {number % NUM_PARTS}", work, seconds))
    return timed


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


def fit_convolutions() -> tuple[dict[str, list[float]], float]:
    """The polynomials, and how far they are off for networks that they were not fitted to: the
    standard deviation of a network's mean logarithmic error, without its outliers."""
    polynomials: dict[str, list[float]] = {}
    timed = timed_convolutions()
    networks = sorted({network for network, _, _ in timed})
    order = np.random.RandomState(0).permutation(len(networks))
    fold = {networks[index]: number % NUM_FOLDS for number, index in enumerate(order)}
    errors: dict[str, list[float]] = defaultdict(list)
    for direction in DIRECTIONS:
        usable = [
            t for t in timed if directions_of(Convolution.unpacked(t[1].sizes)) == [direction]
        ]
        for kind in KINDS:
            chosen = [u for u in usable if kind_of(Convolution.unpacked(u[1].sizes)) == kind]
            inputs = np.array(
                [features(Convolution.unpacked(w.sizes), w, H200) for _, w, _ in chosen]
            )
            wanted = np.array(
                [
                    math.log((seconds - FIXED_SECONDS) / base_seconds(w, H200))
                    for _, w, seconds in chosen
                ]
            )
            folds = np.array([fold[network] for network, _, _ in chosen])
            left_out = np.empty(len(chosen))
            for number in range(NUM_FOLDS):
                inside, outside = folds != number, folds == number
                limits = np.quantile(wanted[inside], [0.01, 0.99])
                found = np.clip(inputs[outside] @ solve(inputs[inside], wanted[inside]), *limits)
                left_out[outside] = found - wanted[outside]
            for (network, _, _), error in zip(chosen, left_out, strict=True):
                errors[network].append(error)
            error = np.abs(np.expm1(left_out))
            print(
                f"convolutions {direction} {kind}, {len(chosen)}: networks left out, median error "
                f"{100 * np.median(error):.0f} %, 90 % within {100 * np.quantile(error, 0.9):.0f} %"
            )
            values = [*np.quantile(wanted, [0.01, 0.99]), *solve(inputs, wanted)]
            polynomials[f"{direction} {kind}"] = [float(f"{value:.5g}") for value in values]
    means = np.array([np.mean(of_network) for of_network in errors.values()])
    return polynomials, float(1.4826 * np.median(np.abs(means)))
