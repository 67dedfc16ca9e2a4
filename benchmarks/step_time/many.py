"""Fits many products of one kind (bmm), and products in TF32 whose matrices are turned. Used by
refit.py.

By kind of product: the seconds of a block and of each element that it sums over, and the sizes of a
block, of which those that fit best are taken.
"""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import product

import numpy as np
from fit_kernels import fit_products, recorded_products
from scipy.optimize import least_squares
from steps import read_kernels

from vramcast.forecast.timing.kernels import PRODUCTS, any_product_time, product_kind
from vramcast.forecast.timing.many_products import is_many, key_of
from vramcast.hardware.gpus import find_gpu
from vramcast.records.calibration import Rates
from vramcast.tracing.work import OperatorWork

H200 = find_gpu("h200")
EXTREMES = "extremes_kernels.jsonl.gz"
TURNED = "tensor turned"
SIDES = (16, 32, 64, 128)
START = (2e-9, 3e-12)
FEWEST = 20


def fit_many(rates: Rates) -> dict[str, list[float]]:
    kernels = read_kernels(EXTREMES)
    products = {**rates.products, TURNED: fit_products([*kernels, *recorded_products()], TURNED)}
    by_kind: dict[str, list[tuple[OperatorWork, float]]] = defaultdict(list)
    for work, seconds, _ in kernels:
        if work.operator in PRODUCTS and work.flops > 0 and is_many(work):
            by_kind[key_of(product_kind(work), work)].append((work, seconds))
    for kind, chosen in sorted(by_kind.items()):
        if len(chosen) >= FEWEST:
            products[kind] = _fit_blocks(kind, chosen, products)
    return products


def _fit_blocks(
    kind: str, chosen: list[tuple[OperatorWork, float]], products: dict[str, list[float]]
) -> list[float]:
    seconds = np.array([s for _, s in chosen])
    weights = np.clip(np.sqrt(seconds / 2e-5), 0.3, 2.0)
    best_cost, best = math.inf, [0.0] * 4
    for sides in product(SIDES, SIDES):

        def errors(x: np.ndarray, sides: tuple[int, int] = sides) -> np.ndarray:
            rates = _Only({**products, kind: [*np.exp(x), *sides]})
            found = [any_product_time(work, H200, rates).seconds for work, _ in chosen]
            return weights * np.log(found / seconds)

        found = least_squares(errors, np.log(START), loss="soft_l1", f_scale=0.1)
        if found.cost < best_cost:
            best_cost = found.cost
            best = [*(float(f"{value:.4g}") for value in np.exp(found.x)), *map(float, sides)]
            off = 100 * np.median(np.abs(np.expm1(found.fun / weights)))
    print(f"{kind}, {len(chosen)}: blocks of {best[2:]}, median {off:.1f} %", flush=True)
    return best


class _Only:
    """Rates of products alone."""

    def __init__(self, products: dict[str, list[float]]) -> None:
        self.products = products
