"""Products whose rows are not aligned, as unaligned.py recorded them.

Used by fit.py.
"""

from __future__ import annotations

import json

from steps import RECORDED

from vramcast.tracing.work import STRIDED, OperatorWork

BF16 = 15


def recorded_unaligned() -> list[tuple[OperatorWork, float, int]]:
    """Products whose rows do not begin at multiples of 16 bytes."""
    products = []
    for line in (RECORDED / "unaligned.jsonl").read_text().splitlines():
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
    return products
