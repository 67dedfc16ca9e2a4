"""Fits how fast kernels run, and how long the host takes to launch them, to recorded steps.

    python benchmarks/step_time/fit.py

It writes src/vramcast/forecast/timing/tables from two files beside it. kernels.jsonl.gz has
[operator, dtype, flops, bytes, sizes, access, median seconds, how often] of the kernels of one
profiled step of each calibration row, paired with the simulated operators one by one.
steps.jsonl.gz has for every calibration row its step times, measured in three sessions on H200
machines, and the simulated operators of a step in order. The other rows of the suites are the test:
`make accuracy` compares them.
"""

from __future__ import annotations

import gzip
import json
import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from vramcast.forecast.timing.kernels import (
    PRODUCTS,
    RECURRENT,
    kernel_time,
    product_kind,
    product_time,
)
from vramcast.forecast.timing.pipeline import period_seconds
from vramcast.forecast.timing.rates import TABLE
from vramcast.hardware.gpus import find_gpu
from vramcast.records.calibration import Rates
from vramcast.tracing.work import ACCESS_NAMES, OperatorWork

HERE = Path(__file__).parent
H200 = find_gpu("h200")
SOFT = {"loss": "soft_l1", "f_scale": 0.1}
START_OF_PRODUCT = (3e-6, 0.8, 0.7, 3e-6, 100.0)
SMALL_BYTES = 1e6
LONGEST_STEP = 30_000
LATENCY_SECONDS = 4e-6  # from a launch to the kernel's begin
# microseconds: where the search begins, least, most
HOST = {
    "forward": (18, 1, 60),
    "backward": (10, 1, 40),
    "update": (9, 6, 30),
    "view": (4, 0.1, 12),
    "tensor_of_list": (2, 0.01, 10),
    "wait": (10, 0.1, 60),
    "recurrent_step": (8, 0.1, 40),
    "gap": (1.3, 0.8, 1.6),
}


def recorded() -> list[tuple[OperatorWork, float, int]]:
    kernels = []
    with gzip.open(HERE / "kernels.jsonl.gz", "rt") as file:
        for line in file:
            operator, dtype, flops, num_bytes, sizes, access, seconds, count = json.loads(line)
            kernels.append(
                (
                    OperatorWork(operator, dtype, flops, num_bytes, tuple(sizes), 0, access),
                    seconds,
                    count,
                )
            )
    return kernels


def tell(what: str, error: np.ndarray) -> None:
    median, most = 100 * np.median(error), 100 * np.quantile(error, 0.9)
    print(f"{what}: median error {median:.1f} %, 90 % within {most:.1f} %")


def fit_products(kernels: list[tuple[OperatorWork, float, int]], kind: str) -> list[float]:
    chosen = [
        (w, s)
        for w, s, _ in kernels
        if w.operator in PRODUCTS and w.flops > 0 and w.sizes[1] and product_kind(w) == kind
    ]

    def errors(values: np.ndarray) -> np.ndarray:
        return np.array(
            [math.log(product_time(w, H200, list(values)).seconds / s) for w, s in chosen]
        )

    start = np.array(START_OF_PRODUCT)
    limits = ([5e-7, 0.05, 0.2, 0, 0], [1e-5, 1.3, 1.5, 3e-5, 2000])
    found = least_squares(errors, start, bounds=limits, x_scale=start, **SOFT)
    error = np.abs(found.fun)
    tell(f"products {kind}, {len(chosen)} shapes", error)
    return [float(f"{value:.4g}") for value in found.x]


def fit_compute(chosen: list[tuple[OperatorWork, float, int]], of_peak: float = 0.3) -> list[float]:
    """seconds = fixed + flops / (peak x a) + bytes / (bandwidth x b)."""
    from vramcast.forecast.timing.kernels import peak_flops

    flops = np.array([w.flops / peak_flops(H200, w.precision) for w, _, _ in chosen])
    moved = np.array([w.num_bytes / H200.bandwidth_bytes_per_second for w, _, _ in chosen])
    seconds = np.array([s for _, s, _ in chosen])
    if len(chosen) < 3:
        ratio = float(np.median(seconds / (flops / of_peak + moved + 5e-6)))
        return [5e-6 * ratio, of_peak / ratio, 1.0 / ratio]

    def errors(x: np.ndarray) -> np.ndarray:
        return np.log((x[0] + flops / x[1] + moved / x[2]) / seconds)

    found = least_squares(
        errors,
        [5e-6, of_peak, 0.5],
        bounds=([1e-6, 0.01, 0.02], [1e-4, 2.0, 50.0]),
        x_scale=[5e-6, 0.3, 0.5],
        **SOFT,
    )
    return [float(f"{value:.4g}") for value in found.x]


def fit_memory(
    chosen: list[tuple[OperatorWork, float, int]], default: list[float] | None = None
) -> list[float]:
    """seconds = fixed + bytes / (bandwidth x fraction).

    What was only seen small keeps the common fraction, and the other way round.
    """
    moved = np.array([w.num_bytes / H200.bandwidth_bytes_per_second for w, _, _ in chosen])
    seconds = np.array([s for _, s, _ in chosen])
    largest, smallest = (
        max(w.num_bytes for w, _, _ in chosen),
        min(w.num_bytes for w, _, _ in chosen),
    )
    if default is not None and largest < SMALL_BYTES:
        return [float(f"{max(5e-7, np.median(seconds - moved / default[1])):.4g}"), default[1]]
    if default is not None and smallest > largest / 4:
        fraction = np.median(moved / np.maximum(seconds - default[0], 1e-7))
        return [default[0], float(f"{np.clip(fraction, 0.001, 5.0):.4g}")]

    def errors(x: np.ndarray) -> np.ndarray:
        return np.log((x[0] + moved / x[1]) / seconds)

    found = least_squares(
        errors, [2e-6, 0.6], bounds=([5e-7, 0.001], [1e-3, 5.0]), x_scale=[2e-6, 0.5], **SOFT
    )
    return [float(f"{value:.4g}") for value in found.x]


def fit_device(kernels: list[tuple[OperatorWork, float, int]]) -> dict[str, object]:
    compute: dict[str, list[tuple[OperatorWork, float, int]]] = defaultdict(list)
    memory: dict[str, list[tuple[OperatorWork, float, int]]] = defaultdict(list)
    for kernel in kernels:
        work = kernel[0]
        if work.operator in PRODUCTS and work.flops > 0:
            continue
        if work.flops > 0:
            compute[f"{work.operator} {work.precision}"].append(kernel)
        else:
            memory[f"{work.operator} {ACCESS_NAMES[work.access]}"].append(kernel)
            memory[f"{work.operator} {ACCESS_NAMES[work.access]} {work.precision}"].append(kernel)
    moving = [kernel for found in memory.values() for kernel in found]
    defaults = {
        name: fit_memory([k for k in moving if ACCESS_NAMES[k[0].access] == name])
        for name in ACCESS_NAMES[1:]
    }
    attention = [k for name, ks in compute.items() if "attention" in name for k in ks]
    steps = {}
    for name in RECURRENT:
        chosen = [k for key, ks in compute.items() if key.startswith(f"{name} ") for k in ks]
        if (
            chosen
        ):  # the work of a step is small: what takes time is that they come one after the other
            steps[name] = float(
                f"{np.median([s / (w.sizes[0] * w.sizes[2]) for w, s, _ in chosen]):.4g}"
            )
    return {
        "products": {
            kind: fit_products(kernels, kind) for kind in ("tensor", "tensor unaligned", "fp32")
        },
        "compute": {
            **{
                name: fit_compute(ks)
                for name, ks in sorted(compute.items())
                if not name.startswith(RECURRENT)
            },
            **{name: [5e-6, 1.0, 1.0] for name in sorted(compute) if name.startswith(RECURRENT)},
            "attention": fit_compute(attention),
            "other": fit_compute([k for ks in compute.values() for k in ks]),
        },
        "recurrent_step_seconds": steps,
        "kernels": {
            **defaults,
            **{
                name: fit_memory(ks, defaults[ACCESS_NAMES[ks[0][0].access]])
                for name, ks in sorted(memory.items())
            },
        },
    }


def recorded_steps() -> dict[str, tuple[float, list[OperatorWork]]]:
    """By row, the mean over its sessions: the host was faster in some than in others."""
    steps = {}
    with gzip.open(HERE / "steps.jsonl.gz", "rt") as file:
        for record in map(json.loads, file):
            works = [
                OperatorWork(*fields[:4], tuple(fields[4]), *fields[5:])
                for fields in record["works"]
            ]
            medians = [
                math.log(np.median(seconds)) for seconds in record["seconds_by_session"].values()
            ]
            steps[record["row"]] = (
                math.exp(np.mean(medians)),
                [works[index] for index in record["order"]],
            )
    return steps


def fit_host(rates: Rates, steps: dict[str, tuple[float, list[OperatorWork]]]) -> dict[str, float]:
    """Fits the host's part to whole steps, without very long ones, which would take hours."""
    short = [(seconds, works) for seconds, works in steps.values() if len(works) < LONGEST_STEP]
    chosen = [
        (seconds, works, [kernel_time(work, H200, rates) for work in works])
        for seconds, works in short
    ]

    def with_host(values: np.ndarray) -> dict[str, float]:
        return {
            **{
                name: float(f"{1e-6 * value:.4g}") for name, value in zip(HOST, values, strict=True)
            },
            "latency": LATENCY_SECONDS,
        }

    def errors(values: np.ndarray) -> np.ndarray:
        candidate = replace(rates, host=with_host(values))
        return np.array(
            [
                math.log(period_seconds(works, kernels, candidate) / seconds)
                for seconds, works, kernels in chosen
            ]
        )

    start, low, high = (np.array(column) for column in zip(*HOST.values(), strict=True))
    found = least_squares(
        errors, start, bounds=(low, high), x_scale=start, max_nfev=25, diff_step=0.03, **SOFT
    )
    error = np.abs(np.expm1(found.fun))
    tell(f"host, {len(chosen)} steps", error)
    return with_host(found.x)


def main() -> None:
    kernels, steps = recorded(), recorded_steps()
    device = fit_device(kernels)
    table = HERE.parents[1] / "src/vramcast/forecast/timing/tables" / TABLE
    count = sum(often for _, _, often in kernels)
    rates = Rates(
        gpu=H200.full_name,
        torch_version="2.11.0+cu130",
        calibrated_on=sorted(steps),
        num_kernels=count,
        host={},
        **device,
    )
    rates = replace(rates, host=fit_host(rates, steps))
    table.parent.mkdir(exist_ok=True)
    table.write_text(json.dumps(json.loads(rates.to_json()), indent=1) + "\n")
    errors = [math.log(kernel_time(w, H200, rates).seconds / s) for w, s, _ in kernels]
    weights = np.array([s * n for _, s, n in kernels])
    weights /= weights.sum()
    in_all, each = np.exp(errors) @ weights - 1, np.abs(np.expm1(errors)) @ weights
    print(
        f"{len(kernels)} kernels; weighted by time: {100 * in_all:+.1f} % in all, "
        f"{100 * each:.1f} % each"
    )


if __name__ == "__main__":
    main()
