"""Fits many products of one kind (bmm). Used by refit.py.

By kind of product: the fixed seconds, the share of the bandwidth, and what tiles_seconds in
many_products.py names, with the smallest side of a tile that fits best.
"""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
from scipy.optimize import least_squares

from vramcast.forecast.timing.kernels import PRODUCTS, any_product_time, product_kind
from vramcast.forecast.timing.many_products import MANY, SIDES, is_many, key_of
from vramcast.hardware.gpus import find_gpu
from vramcast.records.calibration import Rates
from vramcast.tracing.work import OperatorWork

H200 = find_gpu("h200")
EXTREMES, BATCHED = "extremes_kernels.jsonl.gz", "batched_kernels.jsonl.gz"
START = (2.5e-6, 0.6, 2.0, 50.0, 5e-9, 60.0)
LIMITS = (1e-6, 0.1, 0.1, 1.0, 1e-12, 5.0), (1e-5, 1.0, 50.0, 3000.0, 1e-7, 1000.0)
FEWEST = 20
Chosen = list[tuple[OperatorWork, float]]


def fit_many(rates: Rates, kernels: Chosen) -> dict[str, list[float]]:
    products = {kind: v for kind, v in rates.products.items() if not kind.startswith(MANY)}
    by_kind: dict[str, Chosen] = defaultdict(list)
    for work, seconds in kernels:
        if work.operator in PRODUCTS and work.flops > 0 and is_many(work):
            by_kind[key_of(product_kind(work), work)].append((work, seconds))
    for kind, chosen in sorted(by_kind.items()):
        if len(chosen) >= FEWEST:
            products[kind] = _fit(kind, chosen, products)
    return products


def _fit(kind: str, chosen: Chosen, products: dict[str, list[float]]) -> list[float]:
    seconds = np.array([s for _, s in chosen])
    weights = np.clip(np.sqrt(seconds / 2e-5), 0.3, 2.0)
    best_cost, best = math.inf, [0.0]
    for smallest in SIDES[:-1]:

        def errors(x: np.ndarray, smallest: int = smallest) -> np.ndarray:
            rates = _Only({**products, kind: [*np.exp(x), smallest]})
            found = [any_product_time(work, H200, rates).seconds for work, _ in chosen]
            return weights * np.log(found / seconds)

        found = least_squares(
            errors, np.log(START), bounds=np.log(LIMITS), loss="soft_l1", f_scale=0.1
        )
        if found.cost < best_cost:
            best_cost = found.cost
            best = [*(float(f"{value:.4g}") for value in np.exp(found.x)), float(smallest)]
            off = 100 * np.median(np.abs(np.expm1(found.fun / weights)))
    print(f"{kind}, {len(chosen)}: sides from {best[-1]:.0f}, median {off:.1f} %", flush=True)
    return best


class _Only:
    """Rates of products alone."""

    def __init__(self, products: dict[str, list[float]]) -> None:
        self.products = products
