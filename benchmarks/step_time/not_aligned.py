"""Products whose rows are not aligned, and transposed copies, as unaligned.py recorded them.

Used by fit.py.
"""

from __future__ import annotations

import json
from pathlib import Path

from vramcast.hardware.gpus import find_gpu
from vramcast.tracing.work import STRIDED, OperatorWork

HERE = Path(__file__).parent
H200 = find_gpu("h200")
BF16 = 15
FILL_OF_BANDWIDTH = 0.7814  # of the bandwidth, as all plain kernels


def recorded_unaligned() -> tuple[list[tuple[OperatorWork, float, int]], list[float]]:
    """Products whose rows do not begin at multiples of 16 bytes, and for transposed copies
    the share of the bandwidth."""
    products, shares = [], []
    for line in (HERE / "unaligned.jsonl").read_text().splitlines():
        row = json.loads(line)
        tokens, width, words = row["tokens"], row["width"], row["words"]
        m, k, n = {
            "forward": (tokens, width, words),
            "of_hidden": (tokens, words, width),
            "of_weight": (words, tokens, width),
        }[row["kind"]]
        moved = 2.0 * (m * k + k * n + m * n)
        work = OperatorWork("aten::mm", BF16, 2.0 * m * k * n, moved, (1, m, n, k), 0, STRIDED)
        if words % 8:
            products.append((work, row["product_seconds"], 1))
        if words % 8 and row["kind"] == "of_weight":
            # to pad is to fill all of it and then to copy
            filling = 2.0 * m * k / (H200.bandwidth_bytes_per_second * FILL_OF_BANDWIDTH)
            copying = row["pad_first_seconds"] - filling
            shares.append(4.0 * m * k / copying / H200.bandwidth_bytes_per_second)
    return products, shares
