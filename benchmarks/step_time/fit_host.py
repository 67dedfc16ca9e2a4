"""Fits how long the host takes to launch kernels, and how far predictions are off.

Used by fit.py.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace

import numpy as np
from fit_kernels import H200, SOFT
from others import (
    Kernels,
    tell_errors,
)
from scipy.optimize import least_squares
from steps import Step

from vramcast.forecast.timing.kernels import (
    kernel_class,
    kernel_time,
)
from vramcast.forecast.timing.pipeline import (
    WITHIN_90_PERCENT,
    host_costs,
    period_seconds,
)
from vramcast.records.calibration import Rates
from vramcast.tracing.work import ACCESS_NAMES, Works

WAITED = 1.1  # a step this much longer than the GPU's work waited for the host
WIDEST_OF_HOST = 2.45
WIDEST_OF_ALL = 1.25
# Assumed: of kernels that are not torch's own only the bytes are known.
CUSTOM_SPREAD = math.log(2.5)
# Of those recorded (operators.py, algebra) half are within 15 %, 80 % within 30 %.
FACTORIZATIONS_SPREAD = 0.22
# Assumed: how far the fractions of the data sheet differ on a GPU that was not measured.
OTHER_GPU_SPREAD = 0.15
LONGEST_STEP = 30_000
LONG_SECONDS = 2e-4
LATENCY_SECONDS = 4e-6  # from a launch to the kernel's begin
# From a kernel's end to the next one's begin: what 100 busy steps (mixed_third to seventh) take
# beyond their kernels is about as much for each in the median. It was 1 us, by five of unseen.py.
GAP_SECONDS = 1.5e-6
# Of a large operator on the host, which gets new pages: 4.1e-11 to 7.5e-11 for each byte, of 12
# kinds with 16.8 million elements. Beside an H200 those of 2 to 32 MB took 4 to 20 ms when the
# memory was new, and 0.1 ms when it was used again: that is not counted.
BYTE_SECONDS = 6e-11
# microseconds: where the search begins, least, most
HOST = {
    "forward": (25, 6, 35),
    "backward": (12, 4, 40),
    "update": (12, 4, 30),
    "view": (4, 1, 8),
    "tensor_of_list": (4, 0.3, 6),
    # on all threads: what is simulated as a call stands for the work in it too
    "python_call": (1.2, 0.3, 1.5),
    "wait": (1, 0.1, 60),
    "recurrent_step": (20, 0.1, 40),
}


def fit_host(rates: Rates, steps: list[Step]) -> dict[str, float]:
    """Fits the host's part to whole steps, without very long ones, which would take hours."""
    short = [step for step in steps if len(step.works) < LONGEST_STEP]
    chosen = [(step, kernel_seconds(step, rates)) for step in short]

    def with_host(values: np.ndarray) -> dict[str, float]:
        micro = zip(HOST, values, strict=True)
        return {
            **{name: float(f"{1e-6 * value:.4g}") for name, value in micro},
            "latency": LATENCY_SECONDS,
            "gap": GAP_SECONDS,
            "byte": BYTE_SECONDS,
        }

    def errors(values: np.ndarray) -> np.ndarray:
        candidate = replace(rates, host=with_host(values))
        periods = [period_of(step, seconds, candidate) for step, seconds in chosen]
        return np.log(periods) - np.log([step.mean_seconds for step in short])

    start, low, high = (np.array(column) for column in zip(*HOST.values(), strict=True))
    found = least_squares(
        errors, start, bounds=(low, high), x_scale=start, max_nfev=25, diff_step=0.03, **SOFT
    )
    tell_errors(f"host, {len(chosen)} steps", np.abs(np.expm1(found.fun)))
    return with_host(found.x)


def kernel_seconds(step: Step, rates: Rates) -> np.ndarray:
    return Works.of(step.works).each(lambda work: kernel_time(work, H200, rates).seconds)


def period_of(step: Step, seconds: np.ndarray, rates: Rates) -> float:
    works = Works.of(step.works)
    costs = host_costs(works, step.num_python_calls, rates)
    return period_seconds(works, seconds, costs, rates)


def spreads_of_steps(rates: Rates, steps: list[Step]) -> dict[str, float]:
    """Of whole steps: "host" where the GPU waited for it, which holds 95 % of the medians: steps
    that nothing was fitted to lie further off than these. "all" is what the kinds of kernels leave
    unexplained: next to nothing of these steps, of others as much as a narrow range allows."""
    waited = []
    for step in steps:
        own = kernel_seconds(step, rates)
        predicted, device_seconds = period_of(step, own, rates), own.sum()
        for seconds in step.medians.values():
            if seconds > WAITED * device_seconds:
                waited.append(abs(math.log(predicted / seconds)))
    widest, widest_of_all = (math.log(w) / 2 for w in (WIDEST_OF_HOST, WIDEST_OF_ALL))
    of_host = min(float(np.quantile(waited, 0.95)), widest) / WITHIN_90_PERCENT
    return {"host": of_host, "all": widest_of_all / WITHIN_90_PERCENT}


def spreads(kernels: Kernels, rates: Rates) -> dict[str, float]:
    """Standard deviations of logarithmic errors, by how well a kind of kernel is known.

    They are those of the median error, in which a kernel counts by its time; outliers do not, and
    a few very long ones of the families count as others.
    """
    errors = defaultdict(list)
    without_own = replace(rates, kernels={name: rates.kernels[name] for name in ACCESS_NAMES[1:]})
    for work, seconds, count in kernels:
        kind = kernel_class(work, rates)
        guess = kernel_time(work, H200, rates).seconds
        weight = min(seconds, LONG_SECONDS) * count
        errors[kind].append((abs(math.log(guess / seconds)), weight))
        if kind == "known":  # how it would be if this operator had never been recorded
            guess = kernel_time(work, H200, without_own).seconds
            errors["default"].append((abs(math.log(guess / seconds)), weight))
    found = {kind: 1.4826 * weighted_median(values) for kind, values in errors.items()}
    return {
        **found,
        "custom": CUSTOM_SPREAD,
        "factorizations": FACTORIZATIONS_SPREAD,
        "other_gpu": OTHER_GPU_SPREAD,
    }


def weighted_median(values: list[tuple[float, float]]) -> float:
    ordered, weights = (np.array(column) for column in zip(*sorted(values), strict=True))
    return float(ordered[np.searchsorted(weights.cumsum(), weights.sum() / 2)])
