"""Fits the gradients of tables whose rows are sorted (forecast/timing/additions.py, sum_seconds).

    python benchmarks/step_time/sums.py

It prints the numbers fitted to families_kernels.jsonl.gz and rarely_kernels.jsonl.gz, which the
table has as "sum of rows", and their errors: on every fifth kernel where that is left out, and on
those of steps (mixed_*_kernels.jsonl.gz), which are never fitted to. What writing a byte of the
result takes is not fitted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import least_squares
from steps import read_kernels

from vramcast.forecast.timing.additions import is_sum, sum_seconds
from vramcast.tracing.work import OperatorWork

Kernels = list[tuple[OperatorWork, float]]
FAMILIES = ("families_kernels.jsonl.gz", "rarely_kernels.jsonl.gz")
OF_STEPS = tuple(f"mixed{which}_kernels.jsonl.gz" for which in ("", "_second", "_third"))
BYTE_SECONDS = 2.19e-13
FEWEST = 2048  # rows; fewer take another sort
START = (7e-5, 1e-10, 1.7e-11, 3e-12, 110.0)


def recorded(names: Sequence[str]) -> Kernels:
    all_of = ((work, seconds) for name in names for work, seconds, _ in read_kernels(name))
    return [(work, s) for work, s in all_of if is_sum(work) and work.sizes[1] > FEWEST]


def errors(logarithms: np.ndarray, kernels: Kernels) -> np.ndarray:
    known = [*np.exp(logarithms).tolist(), BYTE_SECONDS]
    return np.array([math.log(sum_seconds(work, known) / s) for work, s in kernels])


def fitted(kernels: Kernels) -> np.ndarray:
    how = {"loss": "soft_l1", "f_scale": 0.1, "args": (kernels,)}
    found: np.ndarray = least_squares(errors, np.log(START), **how).x
    return found


def tell(what: str, logarithms: np.ndarray) -> None:
    off = np.abs(np.expm1(logarithms))
    median, most = (100 * np.quantile(off, share) for share in (0.5, 0.9))
    print(f"{what}, {len(off)}: median {median:.1f} %, 90 % within {most:.0f} %")


def main() -> None:
    families, of_steps = recorded(FAMILIES), recorded(OF_STEPS)
    part = np.random.RandomState(0).permutation(len(families)) % 5
    left_out = []
    for number in range(5):
        rest = [k for k, p in zip(families, part, strict=True) if p != number]
        out = [k for k, p in zip(families, part, strict=True) if p == number]
        left_out.append(errors(fitted(rest), out))
    tell("left out", np.concatenate(left_out))
    best = fitted(families)
    tell("of steps", errors(best, of_steps))
    print([float(f"{value:.3g}") for value in np.exp(best)] + [BYTE_SECONDS])


if __name__ == "__main__":
    main()
