"""Adds convolutions that were recorded since to the table of convolutions, without fitting all of
it again, which takes a quarter of an hour.

    python benchmarks/step_time/more_convolutions.py FILE [--hold-out]

What the table leaves of theirs is fitted as convolutions.py fits what its sums leave, together with
those that the table was made from and that are most like them. FILE has the new ones, of which for
each direction so many are taken as can be fitted at once. With --hold-out a quarter of them is left
out, and the errors on those are told, before and after. Seconds are `spans`, those in which any of
their kernels ran, where these were recorded. So came shapes.py seldom and, in 16 bits, its settings
(which had been taken for TF32), then volumes.jsonl.gz.
"""

from __future__ import annotations

import json
import math
import sys
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from convolutions import DIRECTIONS, H200, NOISE, SHAPES, TABLES, recorded, work_of
from scipy import linalg

from vramcast.forecast.timing.convolutions import (
    COMMON,
    FIXED_SECONDS,
    LIKE,
    convolution_seconds,
    directions_of,
    features,
    kind_of,
    least_seconds,
)
from vramcast.forecast.timing.convolutions import TABLE as TABLE_OF_CONVOLUTIONS
from vramcast.forecast.timing.likeness import likeness, table
from vramcast.forecast.timing.rates import TABLE, shipped
from vramcast.tracing.work import Convolution, OperatorWork

NEAREST, MOST_NEW, FEWEST_NEW = 1500, 4000, 40
HELD_OUT = 4  # one of
LONGEST = 2e-3


class Timed(NamedTuple):
    record: dict[str, Any]
    work: OperatorWork
    seconds: float
    is_new: bool

    @property
    def is_held_out(self) -> bool:
        what = [self.record[name] for name in ("x", "weight", "batch", "dtype", "stride", "groups")]
        return self.is_new and zlib.crc32(repr(what).encode()) % HELD_OUT == 0


def timed(path: Path) -> dict[str, list[Timed]]:
    """By direction and kind, as the table has them."""
    found: dict[str, list[Timed]] = defaultdict(list)
    every = [(record, False) for record in recorded(SHAPES)]
    every += [(record, True) for record in recorded(path)]
    for record, is_new in every:
        if "weight" not in record:
            continue
        for direction in DIRECTIONS:
            work = work_of(record, direction)
            seconds = record.get("spans", record["seconds"])[direction]
            sizes = Convolution.unpacked(work.sizes)
            if seconds > FIXED_SECONDS:
                name = f"{directions_of(sizes)[0]} {kind_of(sizes)}"
                found[name].append(Timed(record, work, seconds, is_new))
    return {
        name: chosen
        for name, chosen in found.items()
        if sum(t.is_new for t in chosen) >= FEWEST_NEW
    }


def places_of(chosen: list[Timed]) -> np.ndarray:
    return np.array([features(Convolution.unpacked(t.work.sizes), t.work, H200) for t in chosen])


def wanted_of(chosen: list[Timed]) -> np.ndarray:
    least = [sum(least_seconds(t.work, H200)) for t in chosen]
    return np.log([(t.seconds - FIXED_SECONDS) / s for t, s in zip(chosen, least, strict=True)])


def left_by_table(name: str, inputs: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    known, like_them = shipped().convolutions[name], table(TABLE_OF_CONVOLUTIONS)
    found = inputs @ np.array(known[2:])
    for part in np.array_split(np.arange(len(inputs)), 1 + len(inputs) // 2000):
        near = likeness(inputs[part, COMMON:], like_them[f"{name} places"], LIKE)
        found[part] += near @ like_them[f"{name} weights"]
    left: np.ndarray = wanted - found
    return left


def fitted(name: str, chosen: list[Timed]) -> tuple[np.ndarray, np.ndarray]:
    """Places and weights: of the new, and of the old that are most like one of them."""
    inputs = places_of(chosen)
    is_new = np.array([t.is_new for t in chosen])
    places = inputs[:, COMMON:]
    new, old = np.where(is_new)[0][:MOST_NEW], np.where(~is_new)[0]
    parts = np.array_split(old, 1 + len(old) // 1000)
    alike = np.concatenate([likeness(places[p], places[new], LIKE).max(1) for p in parts])
    kept = np.concatenate([new, old[np.argsort(-alike)[:NEAREST]]])
    left = left_by_table(name, inputs[kept], wanted_of([chosen[i] for i in kept]))
    matrix = likeness(places[kept], places[kept], LIKE)
    matrix[np.diag_indices(len(matrix))] += NOISE
    return places[kept], linalg.solve(matrix, left, assume_a="pos", overwrite_a=True)


def tell(what: str, rows: list[tuple[float, float, float]]) -> None:
    measured, before, after = np.array(rows).T
    errors = [np.abs(found / measured - 1) for found in (before, after)]
    medians = [100 * np.median(error) for error in errors]
    by_time = [100 * np.average(e, weights=np.minimum(measured, LONGEST)) for e in errors]
    print(
        f"{what}, {len(rows)}: median {medians[0]:.1f} -> {medians[1]:.1f} %, "
        f"by time {by_time[0]:.1f} -> {by_time[1]:.1f} %"
    )


def hold_out(everything: dict[str, list[Timed]]) -> None:
    rates, all_of = shipped().convolutions, []
    for name, chosen in everything.items():
        out = [t for t in chosen if t.is_held_out]
        places, weights = fitted(name, [t for t in chosen if not t.is_held_out])
        inputs = places_of(out)
        more = likeness(inputs[:, COMMON:], places, LIKE) @ weights
        found = wanted_of(out) - left_by_table(name, inputs, wanted_of(out)) + more
        rows: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
        for each, logarithm in zip(out, found, strict=True):
            before = convolution_seconds(each.work, H200, rates)
            least = sum(least_seconds(each.work, H200))
            low, high = rates[name][:2]
            after = FIXED_SECONDS + least * math.exp(min(high, max(low, float(logarithm))))
            rows[kind_of_layer(each.record)].append((each.seconds, before, after))
        for kind in sorted(rows):
            tell(f"{name}, {kind}", rows[kind])
        all_of += [row for own in rows.values() for row in own]
    tell("all left out", all_of)


def kind_of_layer(record: dict[str, Any]) -> str:
    dims, groups = len(record["weight"]) - 2, record["groups"]
    kinds = {
        "a group for each sample": record["batch"] == 1 and groups > 1,
        "transposed": record["transposed"],
        "one filter a channel": groups > 1 and record["weight"][1] == 1,
        "groups": groups > 1,
        "dilated": max(record["dilation"]) > 1,
        "5 x 5 x 5": dims == 3 and record["weight"][-1] == 5,
        "in 16 bits": dims == 3 and record["dtype"] != "fp32",
        "of very many": dims == 2 and record["batch"] > 512,
    }
    return f"{dims}-d {next((kind for kind, is_one in kinds.items() if is_one), 'others')}"


def main() -> None:
    everything = timed(Path(sys.argv[1]))
    if sys.argv[2:] == ["--hold-out"]:
        hold_out(everything)
        return
    with np.load(TABLES / TABLE_OF_CONVOLUTIONS) as file:
        like_them = dict(file)
    path = TABLES / TABLE
    rates = json.loads(path.read_text())
    for name, chosen in everything.items():
        places, weights = fitted(name, chosen)
        for what, values in (("places", places), ("weights", weights)):
            key = f"{name} {what}"
            joined = np.concatenate([like_them[key], values.astype(like_them[key].dtype)])
            like_them[key] = joined
        limits = np.quantile(wanted_of(chosen), [0.002, 0.998])
        low, high = rates["convolutions"][name][:2]
        ends = min(low, limits[0]), max(high, limits[1])
        rates["convolutions"][name][:2] = [float(f"{end:.5g}") for end in ends]
    np.savez_compressed(TABLES / TABLE_OF_CONVOLUTIONS, **like_them)
    path.write_text(json.dumps(rates, indent=1) + "\n")


if __name__ == "__main__":
    main()
