"""cuDNN's workspace of a convolution where cuDNN itself cannot be asked. No torch.

Its kernels take copies of the input, the weight and the result in another layout, one result for
each image, partial sums, and some bytes. Decision trees say which of these. The size of the partial
sums is that of the most similar recorded convolution (benchmarks/convolutions/fit.py).
"""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

from vramcast.allocator.blocks import round_up
from vramcast.hardware.calibration.table import SHIPPED
from vramcast.simulate.cudnn.convolution import WEIGHT_GRADIENT, Convolution
from vramcast.simulate.cudnn.gpu_only import is_for_winograd, winograd_bytes
from vramcast.simulate.cudnn.transforms import transform_bytes

MODEL = SHIPPED / "convolution-workspaces.json.gz"
# A larger tensor is processed in parts of the batch.
MAX_ELEMENTS = 1 << 31
# The weights of rows, columns and depth in the distance between two products.
NEARNESS = {"splits": (1, 1, 2), "sums": (4, 4, 1), "share": (1, 1, 1)}


@dataclass(frozen=True)
class Layer(Convolution):
    """A convolution, with what the model needs to know of it."""

    def copies_bytes(self, copies: str) -> int:
        """`copies` are letters: X, Y, W, and P if channels are padded to 16 bytes for them."""
        multiple = 16 // self.item_bytes if "P" in copies else 1
        images = max(math.prod(self.x[1:]), math.prod(self.y[1:]))
        batch = min(self.x[0], max(1, MAX_ELEMENTS // images))
        channels, features = round_up(self.x[1], multiple), round_up(self.y[1], multiple)
        elements = {
            "X": batch * channels * math.prod(self.x[2:]),
            "Y": batch * features * math.prod(self.y[2:]),
            "W": round_up(self.weight[0], multiple)
            * round_up(self.weight[1], multiple)
            * self.filter_area,
            "P": 0,
        }
        return self.item_bytes * sum(elements[letter] for letter in copies)

    @cached_property
    def features(self) -> list[float]:
        """The inputs of the decision trees."""
        rows, columns, depth = self.product
        (batch, channels), area = self.x[:2], math.prod(self.x[2:])
        multiple = 16 // self.item_bytes
        result_area = math.prod(self.y[2:])
        sizes = (
            *(batch, channels, rows, area, result_area, self.filter_area, columns, depth),
            *(batch * area, channels * area, rows * result_area, batch * channels * area),
            *(rows * depth, rows * columns, rows * columns * depth, channels * depth),
            *(min(self.x[2:]), max(self.x[2:]), min(self.weight[2:]), max(self.weight[2:])),
            -(-depth // 128) * -(-rows // 128),
            -(-batch * area // 128) * -(-channels // 128),
            -(-rows // 128) * -(-columns // 128),
            self.groups,
        )
        flags = (
            self.item_bytes == 2,
            self.dtype == "bf16",
            self.tf32,
            self.channels_last,
            self.filter_area == 1 and area == result_area,
            area == result_area,
            *(size % multiple == 0 for size in (channels, rows, area, result_area)),
            *(size % 4 == 0 for size in (channels, rows, area, result_area)),
            *(size % 32 == 0 for size in (channels, rows)),
            *(size % 64 == 0 for size in (channels, rows)),
            *(size % 2 == 0 for size in (channels, rows, area)),
        )
        small = (
            *(len(self.x) - 2, max(self.stride), min(self.stride), max(self.dilation)),
            *(max(self.padding), min(self.padding)),
        )
        ratios = (
            math.log2(rows / channels),
            math.log2(batch * area / self.filter_area / rows),
            math.log2(depth / columns),
        )
        logarithms = (math.log2(size) for size in sizes)
        return [*map(float, flags), *map(float, small), *logarithms, *ratios]


class Formula(NamedTuple):
    """Copies, `extra_bytes`, and what `extra` names.

    images: a weight gradient in fp32 for each image of the batch, added up at the end
    splits: some weight gradients in fp32, with channels padded to a multiple of `multiple`
    sums: the partial sums of a split product; only numbers of one `multiple` are alike
    share: what grows with the tensors, as a share of their bytes (in 2^20), likewise
    """

    copies: str
    extra: str
    multiple: int = 1
    extra_bytes: int = 0


@cache
def workspace_bytes(which: int, c: Layer) -> int:
    return Model.shipped().workspace_bytes(which, c)


def tried_bytes(which: int, c: Layer) -> list[int]:
    """Workspaces of well-known algorithms, which cuDNN may try before it chooses one."""
    found = [c.copies_bytes("XYWP")]
    if which == WEIGHT_GRADIENT:
        found.append(c.x[0] * math.prod(c.weight) * 4)
    if is_for_winograd(c):
        found.append(winograd_bytes(c))
    found += transform_bytes(which, c)
    return found


class Model:
    """The fitted trees and the recorded partial sums, for each of the three passes."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.formulas = [Formula(*each) for each in content["formulas"]]
        self.forests = content["forests"]
        # by pass and number of the formula: logarithms of the product's sizes, and the count
        self.counts = [
            {
                name: [(*map(math.log2, row[:3]), row[3]) for row in rows]
                for name, rows in each.items()
            }
            for each in content["counts"]
        ]

    @staticmethod
    @cache
    def shipped() -> Model:
        with gzip.open(MODEL, "rt") as file:
            return Model(json.load(file))

    def workspace_bytes(self, which: int, c: Layer) -> int:
        number, formula = self._formula(which, c)
        result_bytes = c.copies_bytes(formula.copies) + formula.extra_bytes
        if formula.extra:
            count = c.x[0] if formula.extra == "images" else self._nearest(which, number, c)
            result_bytes += extra_bytes(formula, count, c)
        return result_bytes

    def _formula(self, which: int, c: Layer) -> tuple[int, Formula]:
        votes = Counter(_leaf(tree, c.features) for tree in self.forests[which])
        number = votes.most_common(1)[0][0]
        return number, self.formulas[number]

    def _nearest(self, which: int, formula: int, c: Layer) -> int:
        """The count of the recorded convolution with the most similar matrix product."""
        sizes = [math.log2(size) for size in c.product]
        weights = NEARNESS[self.formulas[formula].extra]

        def distance(row: Sequence[float]) -> float:
            return sum(w * abs(a - b) for w, a, b in zip(weights, sizes, row[:3], strict=True))

        return int(min(self.counts[which][str(formula)], key=distance)[3])


def extra_bytes(formula: Formula, count: int, c: Layer) -> int:
    if formula.extra == "sums":
        return count
    if formula.extra == "share":
        return count * c.copies_bytes("XYWP") >> 20
    return count * c.weight[0] * round_up(c.weight[1], formula.multiple) * c.filter_area * 4


def _leaf(tree: Sequence[Sequence[float]], features: Sequence[float]) -> int:
    """A tree is three lists: the feature of a node (-1: a leaf), its threshold, the right child
    (or the leaf's formula). The left child is the next node."""
    asked, thresholds, rights = tree
    node = 0
    while asked[node] >= 0:
        is_left = features[int(asked[node])] <= thresholds[node]
        node = node + 1 if is_left else int(rights[node])
    return int(rights[node])
