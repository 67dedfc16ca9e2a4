"""Fits attention, recurrent networks and copies over PCIe to recordings. Used by fit.py."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from itertools import product
from typing import Any

import numpy as np
from scipy.optimize import least_squares
from steps import RECORDED

from vramcast.forecast.timing.kernels import (
    REDUCTION_ACROSS,
    attention_in_tiles,
    attention_time,
    is_reduction_across,
    scores_seconds,
)
from vramcast.forecast.timing.rates import peak_flops
from vramcast.forecast.timing.recurrent import RECURRENT, recurrent_seconds
from vramcast.forecast.timing.reductions import reduction_seconds
from vramcast.hardware.gpus import find_gpu
from vramcast.records.calibration import Power
from vramcast.tracing.work import OperatorWork

H200 = find_gpu("h200")
SIXTEEN_BITS = ("bf16", "fp16")
ROWS, COLUMNS, WIDTHS = (16, 64, 128), (16, 64, 128), (16, 32, 64)
# logarithms but for the powers
START_OF_RECURRENT = (-12.0, 0.8, 0.1, 0.0, 0.0, 1.0, -0.5, -0.5)
START = (5e-6, 0.4, 0.5, 1e-9, 20.0)
FEWEST = 20
SHORTEST = 5e-6  # less is a kernel that the profiler lost
LARGE_COPY = 1 << 18
PRODUCT, COPIED = (8192, 14336, 4096), 1 << 28  # of sustained.py
Kernels = list[tuple[OperatorWork, float, int]]


def fit_attention(kernels: Kernels) -> dict[str, list[float]]:
    """By operator and precision; those of 16 bits are equally fast."""
    groups: dict[tuple[str, bool], Kernels] = defaultdict(list)
    for kernel in kernels:
        work = kernel[0]
        if "scaled_dot_product" in work.operator and work.flops > 0:
            groups[work.operator, work.precision in SIXTEEN_BITS].append(kernel)
    found = {}
    for (operator, is_short), chosen in sorted(groups.items()):
        if len(chosen) < FEWEST:
            continue
        tiles = product(ROWS, COLUMNS, WIDTHS)
        _, known = min((_fit_tile(chosen, tile) for tile in tiles), key=lambda each: each[0])
        errors = [abs(math.log(attention_time(w, H200, known).seconds / s)) for w, s, _ in chosen]
        precisions = SIXTEEN_BITS if is_short else ("fp32",)
        tell_errors(f"{operator} {precisions[0]}, {len(chosen)}, tiles {known[4:]}", errors)
        found |= {f"{operator} {precision}": known for precision in precisions}
    return found


def _fit_tile(chosen: Kernels, tile: tuple[int, ...]) -> tuple[float, list[float]]:
    counts = [attention_in_tiles(work, 0.0, *tile) for work, _, _ in chosen]
    wider = np.array([attention_in_tiles(work, 1.0, *tile)[0] for work, _, _ in chosen])
    flops = np.array([flops for flops, _ in counts])
    blocks = np.array([count for _, count in counts], float)
    peaks = np.array([peak_flops(H200, work.precision) for work, _, _ in chosen])
    idle = np.maximum(1.0, H200.num_multiprocessors / blocks)
    memory = np.array([w.num_bytes for w, _, _ in chosen]) / H200.bandwidth_bytes_per_second
    seconds = np.array([s for _, s, _ in chosen])
    scores = np.array([scores_seconds(work, *tile) for work, _, _ in chosen])

    def errors(x: np.ndarray) -> np.ndarray:
        fixed, of_peak, of_bandwidth, each, columns = np.exp(x)
        compute = (flops + columns * (wider - flops)) * idle / (peaks * of_peak)
        found = scores + fixed + np.maximum(compute, memory / of_bandwidth) + blocks * each
        return np.log(found / seconds)

    best = least_squares(errors, np.log(START), loss="soft_l1", f_scale=0.1)
    return best.cost, [*(float(f"{value:.4g}") for value in np.exp(best.x)), *map(float, tile)]


def fit_recurrent(kernels: Kernels) -> dict[str, list[float]]:
    """By operator, in 16 and in 32 bits."""
    found = {}
    for operator, bits in product(RECURRENT, (16, 32)):
        chosen = [
            (w, s)
            for w, s, _ in kernels
            if w.operator == operator and s > SHORTEST and 8 * w.item_bytes == bits
        ]
        seconds = np.array([s for _, s in chosen])

        def errors(x: np.ndarray, chosen: Any = chosen, s: np.ndarray = seconds) -> np.ndarray:
            known = known_of(x)
            return np.log([recurrent_seconds(w, H200, known) for w, _ in chosen] / s)

        def known_of(x: np.ndarray) -> list[float]:
            return [math.exp(x[0]), *x[1:6], *np.exp(x[6:])]

        best = least_squares(errors, START_OF_RECURRENT, loss="soft_l1", f_scale=0.2)
        tell_errors(f"{operator} {bits}, {len(chosen)}", np.abs(best.fun))
        found[f"{operator} {bits}"] = [float(f"{value:.4g}") for value in known_of(best.x)]
    return found


def fit_reductions(kernels: Kernels) -> dict[str, list[float]]:
    """By operator, and of all together for those that were not recorded. Those of units that do
    not lie side by side in memory, which a recording does not tell, are much slower: outliers."""
    groups: dict[str, Kernels] = defaultdict(list)
    for kernel in kernels:
        if is_reduction_across(kernel[0]):
            groups[f"{kernel[0].operator} strided across"].append(kernel)
            groups[REDUCTION_ACROSS].append(kernel)
    found = {}
    for name, chosen in sorted(groups.items()):
        seconds = np.array([s for _, s, _ in chosen])

        def errors(x: np.ndarray, chosen: Kernels = chosen, s: np.ndarray = seconds) -> np.ndarray:
            known = np.exp(x).tolist()
            return np.log([reduction_seconds(w, H200, known) for w, _, _ in chosen] / s)

        limits = (-np.inf, [np.inf, 0.0, np.inf])  # no more than the bandwidth
        best = least_squares(
            errors, np.log([4e-6, 0.8, 2.5e-7]), bounds=limits, loss="soft_l1", f_scale=0.1
        )
        tell_errors(f"{name}, {len(chosen)}", np.abs(best.fun))
        found[name] = [float(f"{value:.4g}") for value in np.exp(best.x)]
    return found


def fit_copies() -> tuple[dict[str, list[float]], dict[str, float]]:
    """Seconds of each and bytes a second, and how far large ones lie from that."""
    names = {
        f"{way} {kind}": f"copy {way} the GPU, {kind}{more}"
        for way in ("to", "from")
        for kind, more in (("pinned", " non_blocking"), ("pageable", ""))
    }
    lines = list(map(json.loads, (RECORDED / "copies.jsonl").read_text().splitlines()))
    rates, errors = {}, defaultdict(list)
    for name, recorded in names.items():
        chosen = [(c["num_bytes"], c["seconds"]) for c in lines if c.get("name") == recorded]
        moved, seconds = (np.array(column, float) for column in zip(*chosen, strict=True))
        best = least_squares(
            lambda x, moved=moved, seconds=seconds: np.log(
                (np.exp(x[0]) + moved / np.exp(x[1])) / seconds
            ),
            [math.log(3e-6), math.log(3e10)],
            loss="soft_l1",
            f_scale=0.1,
        )
        rates[name] = [float(f"{value:.4g}") for value in np.exp(best.x)]
        errors[name.split()[1]] += np.abs(best.fun)[moved >= LARGE_COPY].tolist()
    return rates, {kind: 1.4826 * float(np.median(found)) for kind, found in errors.items()}


def fit_power() -> Power:
    """From loads that were on for a part of the time, at the highest clock, and from copies.

    An operation of attention took 9 % more than one of products, of convolutions 7 % less: two
    sessions differ as much, and all have one number.
    """
    lines = list(map(json.loads, (RECORDED / "sustained.jsonl").read_text().splitlines()))
    whole = {line["load"]: line for line in lines if "bursts" in line}
    _, idle = np.polyfit(*zip(*_parts(lines, "product"), strict=True), 1)
    copied = 2.0 * 4 * COPIED / np.median(whole["copy"]["bursts"])
    per_byte = (whole["copy"]["watts"] - idle) / copied

    def per_flop(load: str, item_bytes: int) -> float:
        parts = [(share, watts - idle) for share, watts in _parts(lines, load)]
        watts = sum(share * more for share, more in parts) / sum(share**2 for share, _ in parts)
        m, n, k = PRODUCT
        moved = item_bytes * (m * k + n * k + m * n) * per_byte
        return (watts * float(np.median(whole[load]["bursts"])) - moved) / whole[load]["flops"]

    short = per_flop("product", 2)
    plain = whole["product fp32"]
    of_fp32 = (plain["watts"] - idle) * float(np.median(plain["quarters"])) / plain["flops"]
    joules = {
        **dict.fromkeys(SIXTEEN_BITS, short),
        "tf32": per_flop("product tf32", 4),
        "fp8": short / 2,  # assumed: tensor cores take as much in a second as in 16 bits
        "fp32": of_fp32,
    }
    return Power(
        idle_watts=round(float(idle), 1),
        joules_per_flop={name: float(f"{value:.4g}") for name, value in joules.items()},
        joules_per_byte=float(f"{per_byte:.4g}"),
        teraflops_of_multiprocessor=1e-12 * peak_flops(H200, "bf16") / H200.num_multiprocessors,
    )


def _parts(lines: list[dict[str, Any]], load: str) -> list[tuple[float, float]]:
    return [(c["share"], c["watts"]) for c in lines if c.get("load") == load and "share" in c]


def tell_errors(what: str, error: object) -> None:
    median, most = 100 * np.median(error), 100 * np.quantile(error, 0.9)
    print(f"{what}: median error {median:.1f} %, 90 % within {most:.1f} %")
