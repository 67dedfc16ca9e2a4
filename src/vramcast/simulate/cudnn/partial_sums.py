"""The workspace of Hopper's kernels, which spread the last tiles of a product over all units.

The GPU computes as many tiles of the result at once as it can run blocks. The tiles that remain for
the last round are split along the depth. Every part writes its sums into the workspace, where they
are added up in pairs.
"""

import math
from collections.abc import Iterator, Mapping

from vramcast.hardware.gpus import Gpu
from vramcast.simulate.cudnn.convolution import DATA_GRADIENT, WEIGHT_GRADIENT, Convolution

HOPPER = (9, 0)
# knobs: the tile by its number, whether sums may be kept, and how many blocks work together in each
# direction
TILE, WORKSPACE, CLUSTER_ROWS, CLUSTER_COLUMNS = 2, 25, 27, 28
WITH_SUMS, WITHOUT_SUMS = 0, 1
# rows and columns of a tile by its number
TILES = {
    0: (128, 128),
    1: (128, 64),
    2: (128, 32),
    3: (256, 128),
    4: (256, 64),
    5: (64, 64),
    6: (128, 256),
    7: (64, 128),
    8: (64, 32),
    9: (64, 256),
    16: (256, 32),
    18: (64, 192),
    19: (128, 192),
    20: (256, 96),
}
# How many blocks run at once on an H200's 132 units, by the number that work together: units are
# wired in groups of 16 or 18.
BLOCKS_AT_ONCE = {1: 132, 2: 132, 3: 117, 4: 120, 5: 110, 6: 102, 7: 105, 8: 120, 12: 96, 16: 112}
UNITS_OF_H200 = 132
SUM_BYTES = COUNTER_BYTES = 4
# to begin at a multiple of 128, and for the kernel's own notes
ALIGNMENT_BYTES, MORE_BYTES = 127, 32
# without a GPU, cuDNN adds this whether the kernel needs it or not
COUNTER_WITHOUT_GPU_BYTES = ALIGNMENT_BYTES + COUNTER_BYTES
# elements in depth of one step of a tile
STEP = {"fp32": 32, "bf16": 64, "fp16": 64}
MAX_PARTS = 128
# small groups of a convolution are put together up to so many channels
GROUP = 64
# Where all tiles run at once, they are split into MANY_PARTS or more if each part then has this
# many steps.
MANY_PARTS = 9
STEPS_OF_MANY_PARTS = {"fp32": 33, "bf16": 17, "fp16": 17}
# What one more round of adding up in pairs costs, in steps: a fixed part, and one by the tile. The
# first pair is for products that fit at once, the second for what remains of larger ones.
SQUARE_TILE = 128 * 128
COSTS = {
    "bf16": ((37.0, 15.6), (21.07, 5.62)),
    "fp16": ((4.9, 2.0), (2.83, 0.7)),
    "fp32": ((9.9, 3.9), (5.5, 1.45)),
}


def sums_bytes(c: Convolution, which: int, knobs: Mapping[int, int], gpu: Gpu) -> int | None:
    """The workspace without copies of tensors. None for kernels that are not Hopper's."""
    tile = TILES.get(knobs.get(TILE, -1))
    is_known = gpu.capability == HOPPER and CLUSTER_ROWS in knobs and WORKSPACE in knobs
    if tile is None or not is_known:
        return None
    cluster = knobs[CLUSTER_ROWS], knobs[CLUSTER_COLUMNS]
    num_tiles, num_steps = _tiles(c, which, tile, cluster)
    at_once = _blocks_at_once(math.prod(cluster), gpu)
    # tiles are handed out one by one where there are many
    counter_bytes = COUNTER_BYTES if num_tiles > 2 * at_once else 0
    remaining = num_tiles if num_tiles < at_once else num_tiles % at_once
    num_parts = 1
    if knobs[WORKSPACE] == WITH_SUMS and remaining:
        most = min(at_once // remaining, MAX_PARTS)
        num_parts = _num_parts(most, num_steps, tile, c.dtype, num_tiles < at_once)
    if num_parts == 1:
        return counter_bytes + ALIGNMENT_BYTES if counter_bytes else 0
    num_counters = remaining * sum(_rounds(num_parts))
    numbers = num_parts * remaining * math.prod(tile) * SUM_BYTES + num_counters * COUNTER_BYTES
    return numbers + counter_bytes + MORE_BYTES + ALIGNMENT_BYTES


def _tiles(
    c: Convolution, which: int, tile: tuple[int, int], cluster: tuple[int, int]
) -> tuple[int, int]:
    """How many tiles there are, and the steps of each. Small groups are put together."""
    features, channels, step = c.weight[0] // c.groups, c.weight[1], STEP[c.dtype]
    together = max(1, GROUP // max(features, channels)) if c.groups > 1 else 1
    groups, features, channels = (
        _parts(c.groups, together),
        features * together,
        channels * together,
    )
    positions = c.y[0] * math.prod(c.y[2:])
    if which == WEIGHT_GRADIENT:
        rows, columns = features, c.filter_area * _parts(channels, tile[1])
        num_steps = _parts(positions, step)
    else:
        if which == DATA_GRADIENT:
            positions = c.x[0] * math.prod(c.x[2:])
            features, channels = channels, features
        rows, columns = positions, _parts(features, tile[1])
        num_steps = c.filter_area * _parts(channels, step)
    num_rows = _parts(rows, tile[0] * cluster[0]) * cluster[0]
    return groups * num_rows * _parts(columns, cluster[1]) * cluster[1], num_steps


def _num_parts(most: int, num_steps: int, tile: tuple[int, int], dtype: str, fits: bool) -> int:
    """Into how many parts the tiles are split, so that steps and the cost of adding up are
    fewest."""
    enough = num_steps // STEPS_OF_MANY_PARTS[dtype]
    if fits and min(most, enough) >= MANY_PARTS:
        return _used(min(most, enough), num_steps)
    fixed, by_tile = COSTS[dtype][0 if fits else 1]
    cost = fixed + by_tile * SQUARE_TILE / math.prod(tile)
    powers = [1 << k for k in range(most.bit_length()) if 1 << k < most]

    def steps(num_parts: int) -> float:
        if fits:
            return _parts(num_steps, num_parts) + cost * len(list(_rounds(num_parts)))
        return _parts(num_steps, num_parts) + 4 * cost * (num_parts - 1) / (num_parts + 2)

    return _used(min(reversed([*powers, most]), key=steps), num_steps)


def _used(num_parts: int, num_steps: int) -> int:
    """The number of parts that have work: rounding up may leave the last ones empty."""
    return _parts(num_steps, _parts(num_steps, num_parts))


def _rounds(num_parts: int) -> Iterator[int]:
    """The number of sums after each round of adding up in pairs."""
    while num_parts > 1:
        num_parts = _parts(num_parts, 2)
        yield num_parts


def _parts(size: int, of: int) -> int:
    return -(-size // of)


def _blocks_at_once(cluster: int, gpu: Gpu) -> int:
    blocks = BLOCKS_AT_ONCE.get(cluster, UNITS_OF_H200 // cluster * cluster)
    return max(1, blocks * gpu.num_multiprocessors // UNITS_OF_H200 // cluster) * cluster
