"""Fits products of two matrices to recorded ones, and writes their rates. Used by fit.py too.

    python benchmarks/step_time/fit_products.py

Errors are told of what was left out, a quarter at a time.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from convolutions import SHAPES
from not_aligned import recorded_unaligned
from scipy.optimize import least_squares
from steps import HERE, read_kernels

from vramcast.forecast.timing.many_products import MANY, is_many, is_thin
from vramcast.forecast.timing.products import (
    ALIGNED,
    GROUPED,
    GROUPED_PRODUCT,
    PRODUCTS,
    Products,
    TileRates,
    key_of_single,
    product_kind,
    product_seconds,
)
from vramcast.forecast.timing.rates import TABLE
from vramcast.hardware.gpus import find_gpu
from vramcast.tracing.work import CONVERTING, PLAIN, STRIDED, TF32, TURNED, OperatorWork

H200 = find_gpu("h200")
FAMILIES = "products_kernels.jsonl.gz"
DTYPES = {"bf16": (15, 2), "fp16": (5, 2), "tf32": (TF32, 4), "fp32": (6, 4)}
# Of TF32 the files before told less of how matrices lie.
OTHERS = ("kernels.jsonl.gz", "larger_kernels.jsonl.gz", "newest_kernels.jsonl.gz")
START = TileRates(3e-6, 0.8, 2.5, 30.0, 100.0, 3e-6, 1e-9, 4.0, 2.0)
LEAST = TileRates(1e-6, 0.3, 1.9, 0.1, 1.0, 1e-7, 1e-13, 1.2, 0.1)
MOST = TileRates(1e-5, 1.2, 80.0, 2000.0, 3000.0, 3e-5, 1e-7, 12.0, 50.0)
USUAL_SECONDS, LEAST_SECONDS = 5e-5, 4e-6
QUARTERS = 4
OF_GROUPS = ("larger_kernels.jsonl.gz", "tenth_kernels.jsonl.gz")
LIKENESS = 0.2
Chosen = list[tuple[OperatorWork, float]]


def recorded_products() -> Chosen:
    """Of shapes.py: a layer's own, for its input and for its weight."""
    found: Chosen = []
    with gzip.open(SHAPES, "rt") as file:
        lines = [line for line in map(json.loads, file) if "product" in line]
    for line in lines:
        rows, outside, inside = line["product"]
        dtype, size = DTYPES[line["dtype"]]
        moved = size * (rows * outside + rows * inside + outside * inside)
        shapes = ((rows, outside, inside), (rows, inside, outside), (outside, inside, rows))
        accesses = (PLAIN, CONVERTING, TURNED) if dtype == TF32 else (PLAIN,) * 3
        if any(sides % (16 // size) for sides in line["product"]):
            accesses = (STRIDED,) * 3
        for sizes, seconds, access in zip(shapes, line["seconds"].values(), accesses, strict=True):
            flops = 2.0 * rows * outside * inside
            work = OperatorWork("aten::mm", dtype, flops, float(moved), (1, *sizes), 0, access)
            found.append((work, seconds))
    return found


def by_kind() -> dict[str, Chosen]:
    others = [(w, s) for n in OTHERS for w, s, _ in read_kernels(n) if w.precision != "tf32"]
    families = [(work, seconds) for work, seconds, _ in read_kernels(FAMILIES)]
    unaligned = [(work, seconds) for work, seconds, _ in recorded_unaligned()]
    found: dict[str, Chosen] = defaultdict(list)
    for work, seconds in [*others, *families, *unaligned, *recorded_products()]:
        is_product = work.operator in PRODUCTS and work.flops > 0 and work.sizes[1] > 0
        if is_product and not is_many(work) and not is_thin(work) and seconds > LEAST_SECONDS:
            found[key_of_single(product_kind(work), work)].append((work, seconds))
    return found


def grouped() -> Chosen:
    kernels = [kernel for name in OF_GROUPS for kernel in read_kernels(name)]
    return [(work, seconds) for work, seconds, _ in kernels if work.operator == GROUPED_PRODUCT]


def fitted(chosen: Chosen, near: Sequence[float] = ()) -> list[float]:
    """`near`: rates that these should be like."""
    products = Products.of([work for work, _ in chosen], H200)
    seconds = np.array([s for _, s in chosen])
    weights = np.clip((seconds / USUAL_SECONDS) ** 0.25, 0.6, 2.0)

    def errors(x: np.ndarray) -> np.ndarray:
        found, _ = product_seconds(products, H200, np.exp(x).tolist(), may_split=not near)
        away = LIKENESS * (x - np.log(near)) if near else []
        return np.append(weights * np.log(found / seconds), away)

    found = least_squares(
        errors, np.log(near or START), bounds=np.log([LEAST, MOST]), loss="soft_l1", f_scale=0.08
    )
    return [float(f"{value:.4g}") for value in np.exp(found.x)]


def tell_left_out(kind: str, chosen: Chosen) -> None:
    """The three products of a layer are in the same quarter."""
    parts = np.array([zlib.crc32(str(sorted(w.sizes)).encode()) % QUARTERS for w, _ in chosen])
    seconds, found = np.array([s for _, s in chosen]), np.empty(len(chosen))
    for part in np.unique(parts):
        known = fitted([each for each, own in zip(chosen, parts) if own != part])
        out = Products.of([work for (work, _), own in zip(chosen, parts) if own == part], H200)
        found[parts == part] = product_seconds(out, H200, known)[0]
    errors, by_time = np.abs(np.log(found / seconds)), np.abs(found - seconds).sum()
    print(
        f"{kind}, {len(chosen)}, left out: median {100 * np.median(errors):.1f} %, "
        f"by time {100 * by_time / seconds.sum():.1f} %"
    )


def fit_single() -> dict[str, list[float]]:
    rates = {}
    for kind, chosen in sorted(by_kind().items()):
        tell_left_out(kind, chosen)
        rates[kind] = fitted(chosen)
    return rates | {GROUPED: fitted(grouped(), near=rates[ALIGNED])}


def main() -> None:
    path = HERE.parents[1] / "src/vramcast/forecast/timing/tables" / TABLE
    table = json.loads(path.read_text())
    others = {k: v for k, v in table["products"].items() if k.startswith((MANY, "vector"))}
    table["products"] = fit_single() | others
    path.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
