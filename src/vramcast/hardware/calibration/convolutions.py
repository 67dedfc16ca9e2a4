"""Workspaces of convolutions from a table, also between two measured batch sizes. No torch."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence


class KnownConvolutions:
    def __init__(self, table: Mapping[str, Sequence[int]]) -> None:
        self._table = table
        self._batches: dict[str, list[int]] = defaultdict(list)
        for key in table:
            layer, batch = _layer_and_batch(key)
            self._batches[layer].append(batch)
        for batches in self._batches.values():
            batches.sort()

    def measured(self, key: str) -> Sequence[int] | None:
        return self._table.get(key)

    def between(self, key: str) -> list[int] | None:
        """Mostly they grow in proportion to the batch; cuDNN may choose another kernel between."""
        layer, batch = _layer_and_batch(key)
        batches = self._batches.get(layer, [])
        index = bisect_left(batches, batch)
        if index == 0 or index == len(batches):
            return None
        low, high = batches[index - 1], batches[index]
        first, last = (self._table[_key(layer, n)] for n in (low, high))
        return [
            a + (b - a) * (batch - low) // (high - low) for a, b in zip(first, last, strict=True)
        ]


def _layer_and_batch(key: str) -> tuple[str, int]:
    """`bf16 nhwc x64,3,...` -> (`bf16 nhwc x*,3,...`, 64)."""
    before, _, rest = key.partition(" x")
    batch, _, others = rest.partition(",")
    return f"{before} x*,{others}", int(batch)


def _key(layer: str, batch: int) -> str:
    return layer.replace(" x*,", f" x{batch},", 1)
