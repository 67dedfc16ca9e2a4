"""Workspaces of convolutions from a table, also between two measured batch sizes. No torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence


class KnownConvolutions:
    def __init__(self, table: Mapping[str, Sequence[int]]) -> None:
        self._table = table
        self._by_batch: dict[str, dict[int, Sequence[int]]] = defaultdict(dict)
        for key, workspaces in table.items():
            layer, batch = _layer_and_batch(key)
            self._by_batch[layer][batch] = workspaces

    def measured(self, key: str) -> Sequence[int] | None:
        return self._table.get(key)

    def between(self, key: str) -> list[int] | None:
        """An estimate: cuDNN may choose another kernel between."""
        layer, batch = _layer_and_batch(key)
        known = self._by_batch.get(layer, {})
        low = max((size for size in known if size < batch), default=None)
        high = min((size for size in known if size > batch), default=None)
        if low is None or high is None:
            return None
        ends = zip(known[low], known[high], strict=True)
        return [a + (b - a) * (batch - low) // (high - low) for a, b in ends]


def _layer_and_batch(key: str) -> tuple[str, int]:
    """`bf16 nhwc x64,3,...` -> (`bf16 nhwc x*,3,...`, 64)."""
    before, _, rest = key.partition(" x")
    batch, _, others = rest.partition(",")
    return f"{before} x*,{others}", int(batch)
