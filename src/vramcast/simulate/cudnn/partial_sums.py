"""Partial sums of Hopper's kernels, which spread what is left over of a product on all its units.

The result is made of tiles. As many tiles as blocks run at once are computed together; those that
remain at the end are split along the depth, so that no unit is idle. Every part writes its sums
into the workspace. This follows from recordings on an H200 (benchmarks/convolutions): it explains
four of five of them to the byte.
"""

from __future__ import annotations

from collections.abc import Mapping

from vramcast.hardware.gpus import Gpu
from vramcast.simulate.cudnn.convolution import Convolution

HOPPER = (9, 0)
# knobs: the tile by its number, and how many blocks work together in each direction
TILE, CLUSTER_ROWS, CLUSTER_COLUMNS = 2, 27, 28
# rows and columns of a tile by its number
TILES = {
    0: (128, 128),
    1: (128, 64),
    3: (256, 128),
    4: (256, 64),
    5: (64, 64),
    6: (128, 256),
    7: (64, 128),
    9: (64, 256),
    18: (64, 192),
}
# How many blocks run at once on an H200's 132 units, by the number that work together: units are
# wired in groups of 16 or 18, and what does not fit into a group stays idle.
BLOCKS_AT_ONCE = {1: 132, 2: 132, 3: 117, 4: 120, 5: 110, 6: 102, 8: 120, 16: 96}
UNITS_OF_H200 = 132
# A part is at least so many steps of so many elements deep.
MIN_STEPS = 8
STEP = {"fp32": 32, "bf16": 64, "fp16": 64}
SUM_BYTES = 4
# Parts wait for each other.
COUNTER_BYTES, MORE_BYTES = 4, 28


def partial_sums_bytes(
    convolution: Convolution, which: int, knobs: Mapping[int, int], gpu: Gpu
) -> int | None:
    """None for other kernels than those of Hopper's that are known, and for groups."""
    tile = TILES.get(knobs.get(TILE, -1))
    is_known = gpu.capability == HOPPER and CLUSTER_ROWS in knobs and convolution.groups == 1
    if tile is None or not is_known:
        return None
    rows, columns, depth = convolution.product_of(which)
    cluster_rows, cluster_columns = knobs[CLUSTER_ROWS], knobs[CLUSTER_COLUMNS]
    num_tiles = _padded(rows, tile[0], cluster_rows) * _padded(columns, tile[1], cluster_columns)
    at_once = _blocks_at_once(cluster_rows * cluster_columns, gpu)
    remaining = num_tiles if num_tiles < at_once else num_tiles % at_once
    if not remaining:
        return 0
    num_steps = -(-depth // STEP[convolution.dtype])
    num_parts = min(at_once // remaining, num_steps // MIN_STEPS)
    if num_parts < 2:
        return 0
    sums_bytes = num_parts * remaining * tile[0] * tile[1] * SUM_BYTES
    return sums_bytes + (num_parts - 1) * remaining * COUNTER_BYTES + MORE_BYTES


def _padded(size: int, tile: int, cluster: int) -> int:
    """Tiles in one direction, a multiple of the blocks that work together."""
    return -(-size // (tile * cluster)) * cluster


def _blocks_at_once(cluster: int, gpu: Gpu) -> int:
    blocks = BLOCKS_AT_ONCE.get(cluster, UNITS_OF_H200 // cluster * cluster)
    return max(1, blocks * gpu.num_multiprocessors // UNITS_OF_H200 // cluster) * cluster
