"""Makes the model of cuDNN's workspaces from recorded convolutions, and says how good it is.

    PYTHONPATH=src python benchmarks/convolutions/fit.py

It reads the recordings beside this file and the calibration table that comes with vramcast, and
writes src/vramcast/hardware/calibration/tables/convolution-workspaces.json.gz and held_out.md. The
errors in held_out.md are those of a model that has not seen a fifth of the layers: all convolutions
with one of these weights, whatever their batch, image, precision and layout.

Every workspace is written as a formula that gives it to the byte (`explanations`). Of several the
one that explains most others is taken. Extremely randomised trees learn from a convolution's sizes
which formula cuDNN's kernel has. Partial sums of split products have no exact formula: they are
kept as recorded.
"""

from __future__ import annotations

import gzip
import json
import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vramcast.allocator.blocks import round_up
from vramcast.hardware.calibration.table import SHIPPED, parse_convolution_key
from vramcast.simulate.cudnn.convolution import (
    DATA_GRADIENT,
    FORWARD,
    WEIGHT_GRADIENT,
)
from vramcast.simulate.kernels.convolution_workspace import (
    MODEL,
    NEARNESS,
    Formula,
    Layer,
    Model,
    extra_bytes,
)

HERE = Path(__file__).parent
RECORDINGS = sorted(HERE.glob("h200-*.jsonl.gz"))
TABLE = SHIPPED / "sm_90-torch-2.11.json"
PASSES = ("forward", "data gradient", "weight gradient")
# the largest workspace of an algorithm that cudnn.benchmark tries has the number of its pass and 3
PASSES += tuple(f"{name}, tried" for name in PASSES)
COPIES = (
    "",
    *(f"{kind}{pad}" for kind in ("XYW", "XY", "XW", "YW", "X", "Y", "W") for pad in "P "),
)
COPIES = tuple(copies.strip() for copies in COPIES)
EXTRA_BYTES = (0, 16, 128, 131, 144, 147, 256, 259, 272, 275, 288, 384, 400, 403, 416)
CHANNEL_MULTIPLES = (1, 8, 16, 32)
# where a dimension is put in, and its number
IN_TWO_DIMENSIONS = (
    *(("x", 2, 1), ("weight", 2, 1), ("y", 2, 1)),
    *(("stride", 0, 1), ("padding", 0, 0), ("dilation", 0, 1)),
)
MAX_SUMS_BYTES = 32 << 20  # a tile for each multiprocessor, some times over
MAX_SPLITS = 528  # four for each multiprocessor
NUM_TREES = 10
HELD_OUT = 0.2
BLOCK_BYTES = 512


class Recorded(NamedTuple):
    which: int
    convolution: Layer
    workspace_bytes: int
    layer: str  # what is held out together
    class_name: str


def recorded() -> Iterator[Recorded]:
    for path in RECORDINGS:
        with gzip.open(path, "rt") as file:
            lines = [json.loads(line) for line in file][1:]
        for line in lines:
            if "error" not in line:
                yield from _of_line(line)
    for key, workspaces in json.loads(TABLE.read_text())["convolutions"].items():
        sizes = parse_convolution_key(key)
        y = [sizes["x"][0], sizes["weight"][0], *_result_sizes(**sizes)]
        convolution = Layer(tf32=sizes["dtype"] == "fp32", y=y, **sizes)
        for which, num_bytes in enumerate(workspaces):
            yield Recorded(which, convolution, num_bytes, _layer(sizes, False), "2-d")


def _of_line(line: dict[str, Any]) -> Iterator[Recorded]:
    """Three passes, where cuDNN ran them and nothing else was allocated."""
    line = {**line, "x": [line["batch"], *line["x"]]}
    if len(line["x"]) == 3:  # torch computes it in two dimensions
        for name, place, one in IN_TWO_DIMENSIONS:
            line[name] = [*line[name][:place], one, *line[name][place:]]
    sizes = {name: line[name] for name in ("weight", "stride", "padding", "dilation", "groups")}
    x, y, transposed = line["x"], line["y"], line["transposed"]
    if transposed:
        x, y = y, x
    # a tensor with one channel or one pixel has both layouts, and torch calls it channels first
    is_told_apart = any(
        size[1] > 1 and math.prod(size[2:]) > 1 for size in (line["x"], line["weight"])
    )
    convolution = Layer(
        line["dtype"], line["tf32"], line["channels_last"] and is_told_apart, x=x, y=y, **sizes
    )
    weight_bytes = math.prod(line["weight"]) * convolution.item_bytes
    is_depthwise = line["groups"] == line["x"][1] > 1 and not transposed
    if is_depthwise and (line["backward"][1][0] == weight_bytes or len(x) == 5):
        return  # torch's own kernel, which takes nothing
    order = (DATA_GRADIENT, FORWARD) if transposed else (FORWARD, DATA_GRADIENT)
    passes = ("forward", "data_gradient", "weight_gradient")
    layer, name = _layer(line, transposed), _class_name(line, is_depthwise)
    for which, call in zip((*order, WEIGHT_GRADIENT), passes, strict=True):
        events = line[call][1]
        result = (y, x, line["weight"])[which]
        is_plain = len(events) in (1, 3) and events[0] == math.prod(result) * convolution.item_bytes
        if is_plain:
            num_bytes = events[1] if len(events) == 3 else 0
            yield Recorded(which, convolution, num_bytes, layer, name)
    # in older recordings nothing was tried: torch had kept the plans of the calls before
    if "deterministic" in line:
        tried = [*_tried(line["benchmark"]["forward"]), *_tried(line["benchmark"]["backward"])]
        if len(tried) == len(PASSES) // 2:
            for which, num_bytes in zip((*order, WEIGHT_GRADIENT), tried, strict=True):
                yield Recorded(which + 3, convolution, num_bytes, layer, name)


def _tried(benchmark: dict[str, Any]) -> list[int]:
    """For each result: what the first call took and gave back before the kernel's workspace."""
    first, second = (_workspaces(benchmark[call]) for call in ("first", "second"))
    pairs = zip(first, second, strict=False)
    return [tried[0] if len(tried) > len(kernel) else 0 for tried, kernel in pairs]


def _workspaces(events: Sequence[int]) -> list[list[int]]:
    """For each result, the sizes that were taken and at once given back after it."""
    events = [event for event in events if event]
    found: list[list[int]] = []
    for event, following in zip(events, [*events[1:], 0], strict=True):
        if event > 0 and following == -event and found:
            found[-1].append(event)
        elif event > 0:
            found.append([])
    return found


def _class_name(line: dict[str, Any], is_depthwise: bool) -> str:
    dimensions = 1 if line["x"][2] == line["weight"][2] == 1 else len(line["x"]) - 2
    kinds = {
        "transposed": line["transposed"],
        "depthwise": is_depthwise,
        "grouped": line["groups"] > 1 and not is_depthwise,
        "dilated": max(line["dilation"]) > 1,
    }
    return " ".join([f"{dimensions}-d", *(name for name, holds in kinds.items() if holds)])


def _result_sizes(
    x: Sequence[int],
    weight: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    **_: Any,
) -> list[int]:
    numbers = zip(x[2:], weight[2:], stride, padding, dilation, strict=True)
    return [(size + 2 * p - d * (k - 1) - 1) // s + 1 for size, k, s, p, d in numbers]


def _layer(sizes: dict[str, Any], transposed: bool) -> str:
    return json.dumps(
        [transposed, *(sizes[name] for name in ("weight", "stride", "dilation", "groups"))]
    )


def explanations(item: Recorded) -> set[Formula]:
    """The formulas that give the recorded workspace to the byte."""
    c, found = item.convolution, set()
    for copies in COPIES:
        rest = item.workspace_bytes - c.copies_bytes(copies)
        if rest in EXTRA_BYTES:
            found.add(Formula(copies, "", 1, rest))
        if item.which % 3 == WEIGHT_GRADIENT and rest > 0:
            found.update(_with_gradients(copies, rest, c))
    for extra in ("", "images"):  # any number is some count of splits
        if simple := {formula for formula in found if formula.extra == extra}:
            return simple
    return found


def _with_gradients(copies: str, rest_bytes: int, c: Layer) -> Iterator[Formula]:
    for multiple in CHANNEL_MULTIPLES:
        for some_bytes in EXTRA_BYTES:
            for extra in ("images", "splits"):
                formula = Formula(copies, extra, multiple, some_bytes)
                count, left = divmod(rest_bytes - some_bytes, extra_bytes(formula, 1, c))
                is_split = extra == "splits" and 1 <= count <= MAX_SPLITS
                if left == 0 and (is_split or (extra == "images" and count == c.x[0])):
                    yield formula


def with_sums(item: Recorded) -> Formula:
    """Partial sums beside the copies that this layout needs."""
    c = item.convolution
    is_fast = c.item_bytes == 2 or c.tf32
    candidates: tuple[str, ...] = ("XYWP", "XYP")
    if c.channels_last and is_fast:
        is_aligned = c.x[1] % (16 // c.item_bytes) == 0
        candidates = () if is_aligned else ("XWP",)
    for copies in candidates:
        if c.copies_bytes(copies) <= item.workspace_bytes:
            return _sums(item, copies)
    return _sums(item, "")


def _sums(item: Recorded, copies: str) -> Formula:
    """Kinds of partial sums: precision, layout, and an odd number where blocks share the work."""
    c = item.convolution
    rest = item.workspace_bytes - c.copies_bytes(copies)
    is_exact = c.dtype == "fp32" and not c.tf32
    kinds = (is_exact, c.item_bytes == 2, c.channels_last, rest % 2, c.groups > 1)
    multiple = sum(1 << place for place, kind in enumerate(kinds) if kind)
    if rest > MAX_SUMS_BYTES:
        return Formula("", "share", multiple)
    return Formula(copies, "sums", multiple)


def label(items: Sequence[Recorded]) -> list[Formula]:
    """Of each, the formula that explains most of the others of its pass."""
    options = [explanations(item) or {with_sums(item)} for item in items]
    labels: list[Formula | None] = [None] * len(items)
    for which in range(len(PASSES)):
        left = {i for i, item in enumerate(items) if item.which == which}
        while left:
            counts = Counter(formula for i in left for formula in options[i])
            best = max(counts, key=lambda formula: (counts[formula], formula))
            explained = {i for i in left if best in options[i]}
            for i in explained:
                labels[i] = best
            left -= explained
    return [formula for formula in labels if formula is not None]


class Tree:
    """An extremely randomised tree: the best of one random threshold for each feature."""

    def __init__(self, features: np.ndarray, wanted: np.ndarray, seed: int) -> None:
        self._chance = np.random.default_rng(seed)
        self.asked: list[int] = []
        self.thresholds: list[float] = []
        self.rights: list[int] = []
        self._grow(features, wanted)

    def _grow(self, features: np.ndarray, wanted: np.ndarray) -> None:
        node = len(self.asked)
        counts = wanted.sum(axis=0)
        self.asked.append(-1)
        self.thresholds.append(0)
        self.rights.append(int(counts.argmax()))
        low, high = features.min(axis=0), features.max(axis=0)
        if counts.max() == len(wanted) or (low == high).all():
            return
        thresholds = np.round(low + (high - low) * self._chance.random(len(low)), 3)
        thresholds = np.where(thresholds >= high, low, thresholds)
        is_left = features <= thresholds
        left_counts = is_left.T.astype(np.float32) @ wanted
        right_counts = counts - left_counts
        score = np.zeros(len(low))
        for side in (left_counts, right_counts):
            total = side.sum(axis=1)
            score += (side**2).sum(axis=1) / np.maximum(total, 1)
        score[low == high] = -1
        best = int(score.argmax())
        mask = is_left[:, best]
        if mask.all() or not mask.any():
            return
        self.asked[node], self.thresholds[node] = best, float(thresholds[best])
        self._grow(features[mask], wanted[mask])
        self.rights[node] = len(self.asked)
        self._grow(features[~mask], wanted[~mask])


def fit(items: Sequence[Recorded], labels: Sequence[Formula]) -> dict[str, Any]:
    """The content of the model's file."""
    formulas = sorted(set(labels))
    numbers = {formula: number for number, formula in enumerate(formulas)}
    forests, counts = [], []
    for which in sorted({item.which for item in items}):
        chosen = [i for i, item in enumerate(items) if item.which == which]
        features = np.array([items[i].convolution.features for i in chosen])
        wanted = np.zeros((len(chosen), len(formulas)), np.float32)
        wanted[range(len(chosen)), [numbers[labels[i]] for i in chosen]] = 1
        trees = [Tree(features, wanted, seed) for seed in range(NUM_TREES)]
        forests.append([[tree.asked, tree.thresholds, tree.rights] for tree in trees])
        kept: dict[str, dict[tuple[int, ...], int]] = defaultdict(dict)
        for i in chosen:
            c, formula = items[i].convolution, labels[i]
            rest = items[i].workspace_bytes - c.copies_bytes(formula.copies) - formula.extra_bytes
            if formula.extra in NEARNESS:
                kept[str(numbers[formula])][c.product] = _count(formula, rest, c)
        counts.append(
            {name: [[*size, n] for size, n in sizes.items()] for name, sizes in kept.items()}
        )
    return {"formulas": formulas, "forests": forests, "counts": counts}


def _count(formula: Formula, rest_bytes: int, c: Layer) -> int:
    """The count whose `extra_bytes` are these."""
    if formula.extra == "share":
        return (rest_bytes << 20) // c.copies_bytes("XYWP")
    return rest_bytes // extra_bytes(formula, 1, c)


class Score:
    """How near predictions come to recorded workspaces."""

    def __init__(self) -> None:
        self.num = self.num_exact = self.num_blocks = self.num_near = 0
        self.error_bytes = self.call_bytes = 0

    def add(self, item: Recorded, predicted_bytes: int) -> None:
        error = abs(predicted_bytes - item.workspace_bytes)
        call_bytes = item.convolution.copies_bytes("XYW") + item.workspace_bytes
        self.num += 1
        self.num_exact += error == 0
        blocks = (round_up(size, BLOCK_BYTES) for size in (predicted_bytes, item.workspace_bytes))
        self.num_blocks += len(set(blocks)) == 1
        self.num_near += error <= call_bytes / 100
        self.error_bytes += error
        self.call_bytes += call_bytes

    def row(self, *names: str) -> str:
        shares = (self.num_exact, self.num_blocks, self.num_near)
        cells = [*names, f"{self.num:,}", *(f"{100 * share / self.num:.0f} %" for share in shares)]
        share = self.error_bytes / self.call_bytes
        return "| " + " | ".join([*cells, f"{100 * share:.1f} %"]) + " |"


def held_out(items: Sequence[Recorded], labels: Sequence[Formula]) -> str:
    """The errors of a model that has not seen a fifth of the layers, as a page."""
    layers = sorted({item.layer for item in items})
    random.Random(0).shuffle(layers)
    unseen = set(layers[: int(len(layers) * HELD_OUT)])
    seen = [i for i, item in enumerate(items) if item.layer not in unseen]
    model = Model(fit([items[i] for i in seen], [labels[i] for i in seen]))
    scores: dict[tuple[str, int], Score] = defaultdict(Score)
    for item in items:
        if item.layer in unseen:
            predicted = model.workspace_bytes(item.which, item.convolution)
            c = item.convolution
            precision = "fp32 with TF32" if c.tf32 else c.dtype
            layout = "channels last" if c.channels_last else "channels first"
            for name in ("all", item.class_name, precision, layout):
                scores[name, item.which].add(item, predicted)
    names = sorted({name for name, _ in scores}, key=lambda name: (name != "all", name))
    rows = [
        scores[name, which].row(name, PASSES[which])
        for name in names
        for which in range(len(PASSES))
        if (name, which) in scores
    ]
    return "\n".join([HEADING.format(unseen=len(unseen), layers=len(layers)), *rows, ""])


HEADING = """\
<!-- made by benchmarks/convolutions/fit.py -->
# Workspaces of convolutions that the model has not seen

{unseen} of {layers} layers were held out, in every batch size, precision and layout they were
recorded in. *Exact*: to the byte. *Same block*: to the 512 bytes that the allocator rounds to.
*Within 1 %*: of the memory of the call, which is its input, weight, result and workspace. *Error*:
all errors together as a share of the memory of all calls together.

| convolutions | pass | recorded | exact | same block | within 1 % | error |
|---|---|---:|---:|---:|---:|---:|"""


def main() -> None:
    items = list(recorded())
    labels = label(items)
    page = held_out(items, labels)
    (HERE / "held_out.md").write_text(page)
    content = json.dumps(fit(items, labels), separators=(",", ":"))
    # without the time in the header: the same recordings give the same file
    MODEL.write_bytes(gzip.compress(content.encode(), mtime=0))
    print(page)
    print(f"{len(items)} workspaces, {MODEL.stat().st_size:,} bytes in {MODEL.name}")


if __name__ == "__main__":
    main()
