"""Fits the time of convolutions to recorded ones. Used by fit.py; called itself, it writes only
their part of the tables.

    python benchmarks/step_time/convolutions.py [--hold-out [NAME]]

shapes.jsonl.gz and volumes.jsonl.gz have those that shapes.py recorded, layers.jsonl.gz,
more_layers.jsonl.gz and more_layers_in_time.jsonl.gz those of layers.py, operators.jsonl.gz those
of the families: seconds of their kernels alone, in which any of them ran where this was recorded
(`spans`). What benchmarks/convolutions has was timed with its launches. How much a feature tells is
in the table already (scales.py). With --hold-out a quarter of the file NAME, or of all, is left
out, and the errors on those are told: of the table, and of what is fitted to the others.
"""

from __future__ import annotations

import gzip
import json
import math
import sys
import zlib
from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from steps import HERE, RECORDED, read_kernels

from vramcast.forecast.timing.convolutions import (
    COMMON,
    FIXED_SECONDS,
    LIKE,
    NEAREST,
    NOISE,
    convolution_seconds,
    directions_of,
    features,
    groups_of,
    is_convolution,
    kind_of,
    least_seconds,
)
from vramcast.forecast.timing.convolutions import TABLE as TABLE_OF_CONVOLUTIONS
from vramcast.forecast.timing.likeness import likeness
from vramcast.forecast.timing.rates import TABLE, shipped
from vramcast.hardware.gpus import find_gpu
from vramcast.tracing.work import TF32, Convolution, OperatorWork, is_padded

TABLES = HERE.parents[1] / "src/vramcast/forecast/timing/tables"
SHAPES = RECORDED / "shapes.jsonl.gz"
RARER = "more_layers"
NAMES = ("volumes", RARER, f"{RARER}_in_time", "layers")
FILES = (SHAPES, *(RECORDED / f"{name}.jsonl.gz" for name in NAMES))
H200 = find_gpu("h200")
STEPS = tuple(
    f"{name}_kernels.jsonl.gz"
    for name in (
        *("mixed_third", "mixed_fifth", "sixth", "seventh", "eighth", "compiled_third", "ninth"),
        *("tenth", "compiled_fourth", "compiled_fifth"),
    )
)
WITH_SPANS = STEPS[-6:]  # in which kernels that ran side by side are told
FARTHEST = 2.0
DIRECTIONS = ("forward", "data_gradient", "weight_gradient")
KINDS = ("dense", "depthwise", "volumes")
DTYPES = {"fp32": 6, "bf16": 15, "fp16": 5}
RIDGE = 1.0
HELD_OUT = 4  # one of
IN_A_PART = 60  # how many of the families count as a network
USUAL_ERROR = 0.1  # larger ones count less
LONGEST = 2e-3  # longer ones count as this


class Timed(NamedTuple):
    network: str
    kind: str  # of layer
    is_held_out: bool
    work: OperatorWork
    seconds: float


def recorded(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as file:
        lines = [json.loads(line) for line in file]
    return [line for line in lines if "seconds" in line and "benchmark" not in line]


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
        is_padded=is_padded(weight[2:], record["padding"], record["dilation"]),
        side=weight[-1],
        stride=record["stride"][-1],
    )
    is_tf32 = record["dtype"] == "fp32" and record.get("tf32", True)
    dtype = TF32 if is_tf32 else DTYPES[record["dtype"]]
    moved = (x + y + math.prod(weight)) * (4 if record["dtype"] == "fp32" else 2)
    flops = 2.0 * small * math.prod(weight) / weight[0]
    return OperatorWork("aten::convolution", dtype, flops, float(moved), sizes.packed, 0, 1)


def timed_convolutions(held_out: str | None = None) -> dict[str, list[Timed]]:
    """By direction and kind; a quarter is held out, of one file if it is named."""
    families = [
        (work, seconds)
        for work, seconds, _ in read_kernels("operators.jsonl.gz")
        if is_convolution(work) and not may_be_beside(Convolution.unpacked(work.sizes), work)
    ]
    timed = [
        Timed(f"part {number // IN_A_PART}", "of the families", False, *each)
        for number, each in enumerate(families)
    ]
    for path in FILES:
        for number, record in enumerate(r for r in recorded(path) if "weight" in r):
            network = record.get("network", f"{path.name} {number // IN_A_PART}")
            is_out = held_out in (None, path.name) and is_held_out(record)
            for direction in DIRECTIONS:
                seconds = record.get("spans", record["seconds"])[direction]
                work = work_of(record, direction)
                sizes = Convolution.unpacked(work.sizes)
                if "spans" not in record and may_be_beside(sizes, work):
                    continue
                timed.append(Timed(network, kind_of_layer(record), is_out, work, seconds))
    found: dict[str, list[Timed]] = {f"{d} {k}": [] for d, k in product(DIRECTIONS, KINDS)}
    for each in [*timed, *of_steps()]:
        sizes = Convolution.unpacked(each.work.sizes)
        if each.seconds > FIXED_SECONDS and len(directions_of(sizes)) == 1:
            found[f"{directions_of(sizes)[0]} {kind_of(sizes)}"].append(each)
    return found


def of_steps() -> list[Timed]:
    """Of real steps. Two gradients were timed as one: each has its share as the table tells them,
    and what is very far from that was paired wrongly or told another layout than it had."""
    rates, found = shipped().convolutions, []
    for name, (work, seconds, _) in ((n, k) for n in STEPS for k in read_kernels(n)):
        sizes = Convolution.unpacked(work.sizes)
        if not is_convolution(work) or sizes.is_transposed:
            continue
        if may_be_beside(sizes, work) and name not in WITH_SPANS:
            continue
        parts = parts_of(sizes, work)
        told = [convolution_seconds(part, H200, rates) for part in parts]
        if 1 / FARTHEST < seconds / sum(told) < FARTHEST:
            found += [
                Timed(name, "of steps", False, part, seconds * own / sum(told))
                for part, own in zip(parts, told, strict=True)
            ]
    return found


def parts_of(sizes: Convolution, work: OperatorWork) -> list[OperatorWork]:
    if not (sizes.of_data and sizes.of_weight):
        return [work]
    parts = (sizes._replace(of_data=of_data, of_weight=not of_data) for of_data in (True, False))
    half = work._replace(flops=work.flops / 2, num_bytes=work.num_bytes / 2)
    return [half._replace(sizes=part.packed) for part in parts]


def may_be_beside(sizes: Convolution, work: OperatorWork) -> bool:
    """cuDNN may run the kernels of groups side by side: their sum says nothing."""
    return groups_of(sizes, work) > 1 and sizes.channels > 1


def is_held_out(record: dict[str, Any]) -> bool:
    what = [record[name] for name in ("x", "weight", "batch", "dtype", "stride", "groups")]
    return zlib.crc32(repr(what).encode()) % HELD_OUT == 0


def kind_of_layer(record: dict[str, Any]) -> str:
    dims, groups, weight = len(record["weight"]) - 2, record["groups"], record["weight"]
    kinds = {
        "transposed": record["transposed"],
        "a first layer": groups == 1 and weight[1] <= 4,
        "a group for each sample": record["batch"] == 1 and groups > 1,
        "one filter a channel": groups > 1 and weight[1] == 1,
        "groups": groups > 1,
        "dilated": max(record["dilation"]) > 1,
        "in 16 bits": dims == 3 and record["dtype"] != "fp32",
        "of very many": dims == 2 and record["batch"] > 512,
    }
    return f"{dims}-d {next((kind for kind, is_one in kinds.items() if is_one), 'others')}"


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


def sum_of(chosen: list[Timed], inputs: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Of usual ones: with the rare ones too, usual layers were told worse."""
    usual = np.array([not each.network.startswith(RARER) for each in chosen])
    return solve(inputs[usual], wanted[usual])


def values_of(chosen: list[Timed]) -> tuple[np.ndarray, np.ndarray]:
    """Their features, and the logarithm of how many times the least they take."""
    inputs = [features(Convolution.unpacked(t.work.sizes), t.work, H200) for t in chosen]
    wanted = [(t.seconds - FIXED_SECONDS) / sum(least_seconds(t.work, H200)) for t in chosen]
    return np.array(inputs), np.log(wanted)


def near(asked: np.ndarray, places: np.ndarray, left: np.ndarray) -> np.ndarray:
    """As convolutions.by_likeness, for what is not in the table."""
    squares, found = (places**2).sum(1), []
    for place in asked:
        nearest = np.argpartition(squares - 2 * places @ place, NEAREST)[:NEAREST]
        those = places[nearest]
        matrix = likeness(those, those, LIKE) + NOISE * np.eye(NEAREST)
        weights = np.linalg.solve(matrix, left[nearest])
        found.append(likeness(place[None], those, LIKE)[0] @ weights)
    return np.array(found)


def fit_convolutions() -> tuple[dict[str, list[float]], dict[str, np.ndarray], float]:
    """The sums, what recorded ones add, and how far off a quarter of layers.jsonl.gz is that is
    held out: the standard deviation of a network's mean logarithmic error, without outliers."""
    sums: dict[str, list[float]] = {}
    table: dict[str, np.ndarray] = {}
    errors: dict[str, list[float]] = defaultdict(list)
    for name, chosen in timed_convolutions(FILES[-1].name).items():
        inputs, wanted = values_of(chosen)
        limits = np.quantile(wanted, [0.002, 0.998])
        of_sum = sum_of(chosen, inputs, wanted)
        sums[name] = [float(f"{value:.5g}") for value in (*limits, *of_sum)]
        left = wanted - inputs @ np.array(sums[name][2:])
        table[f"{name} places"] = inputs[:, COMMON:].T.astype(np.float16)
        table[f"{name} left"] = left.astype(np.float16)
        table[f"{name} scales"] = scales_of(name)
        out, found = held_out_of(name, chosen)
        for each, logarithm, right in zip(out, found, values_of(out)[1], strict=True):
            errors[each.network].append(logarithm - right)
    means = np.array([np.mean(of_network) for of_network in errors.values()])
    return sums, table, float(1.4826 * np.median(np.abs(means)))


def scales_of(name: str) -> np.ndarray:
    with np.load(TABLES / TABLE_OF_CONVOLUTIONS) as known:
        scales: np.ndarray = known[f"{name} scales"]
    return scales


def held_out_of(name: str, chosen: list[Timed]) -> tuple[list[Timed], np.ndarray]:
    """Those held out, and their logarithms by the others."""
    out, kept = ([t for t in chosen if t.is_held_out is is_out] for is_out in (True, False))
    (inputs, wanted), scales = values_of(kept), scales_of(name)
    found = sum_of(kept, inputs, wanted)
    places, left = inputs[:, COMMON:] * scales, wanted - inputs @ found
    others = values_of(out)[0]
    more = near(others[:, COMMON:] * scales, places, left)
    return out, np.clip(others @ found + more, *np.quantile(wanted, [0.002, 0.998]))


def tell(what: str, rows: list[tuple[float, float, float]]) -> None:
    measured, before, after = np.array(rows).T
    errors = [np.abs(found / measured - 1) for found in (before, after)]
    medians = [100 * np.median(error) for error in errors]
    by_time = [100 * np.average(e, weights=np.minimum(measured, LONGEST)) for e in errors]
    print(
        f"{what}, {len(rows)}: median {medians[0]:.1f} -> {medians[1]:.1f} %, "
        f"by time {by_time[0]:.1f} -> {by_time[1]:.1f} %"
    )


def hold_out(name_of_file: str | None) -> None:
    """Compares the table, which may know what is held out here, with what is fitted to the rest."""
    every, rates = defaultdict(list), shipped().convolutions
    for name, chosen in timed_convolutions(name_of_file).items():
        for each, logarithm in zip(*held_out_of(name, chosen), strict=True):
            before = convolution_seconds(each.work, H200, rates)
            after = FIXED_SECONDS + sum(least_seconds(each.work, H200)) * math.exp(logarithm)
            for what in (f"{name}, {each.kind}", name, "all"):
                every[what].append((each.seconds, before, after))
    for what, rows in sorted(every.items()):
        tell(what, rows)


def main() -> None:
    """Writes only what is told of convolutions."""
    if sys.argv[1:2] == ["--hold-out"]:
        hold_out(sys.argv[2] if sys.argv[2:] else None)
        return
    sums, like_them, spread = fit_convolutions()
    np.savez_compressed(TABLES / TABLE_OF_CONVOLUTIONS, **like_them)
    path = TABLES / TABLE
    rates = json.loads(path.read_text())
    rates["convolutions"] = sums
    print("spread", round(spread, 4), "before", rates["spread"]["convolutions"])
    path.write_text(json.dumps(rates, indent=1) + "\n")


if __name__ == "__main__":
    main()
