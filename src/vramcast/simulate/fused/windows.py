"""Bytes of scattered reads, of which many blocks take a part each.

Blocks that run at once share what they read, and so do rounds of their loops that follow each
other, as long as the cache keeps it. Some of these blocks and rounds are run as a single block.
"""

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from vramcast.hardware.gpus import Gpu
from vramcast.simulate.fused.launch import Launch, axis_of
from vramcast.simulate.fused.values import LOADED, SECTOR_BYTES, Access, Tensor, distinct

SECTORS_READ = 2  # from memory at a time
# Elements of blocks that run at once, and of these with several rounds.
AT_ONCE, ELEMENTS = 1 << 15, 1 << 17
OF_CACHE = 0.5  # that reads of rounds may fill which share them
PLACES = (0.13, 0.53)  # of the grid


def bytes_of_reads(
    launch: Launch, tensors: Collection[Tensor], at_once: int, gpu: Gpu
) -> Mapping[Tensor, float]:
    """From memory, of each number that is asked for."""
    wide, num_blocks = _enlarged(launch, "xyz", min(AT_ONCE, at_once * _elements(launch)))
    reads = _reads(wide, tensors)
    in_round = sum(distinct_bytes([each]) / each.share for each in reads) / max(1, len(reads))
    rounds = OF_CACHE * gpu.l2_cache_bytes * num_blocks / max(1.0, in_round * at_once)
    window, _ = _enlarged(wide, "r", min(ELEMENTS, rounds * _elements(wide)))
    reads = _reads(window, tensors)
    return {
        tensor: _of_each([each for each in reads if each.tensor == tensor]) for tensor in tensors
    }


def distinct_bytes(accesses: Sequence[Access]) -> float:
    """Of a loop of which a part was gone through, as many as of the whole loop."""
    parts = [access.sectors for access in accesses]
    share = sum(p.size * access.share for p, access in zip(parts, accesses, strict=True))
    sectors, together = np.concatenate(parts), SECTORS_READ if accesses[0].way == LOADED else 1
    moved = distinct(sectors // together).size * together * SECTOR_BYTES
    return share / max(1, sectors.size) * moved


def _of_each(reads: list[Access]) -> float:
    asked = sum(access.share * float(access.is_asked.sum()) for access in reads)
    return distinct_bytes(reads) / asked if reads else math.inf


def _reads(launch: Launch, tensors: Collection[Tensor]) -> list[Access]:
    notes = [launch.run([int(share * (n - 1)) for n in launch.grid]) for share in PLACES]
    accesses = [access for note in notes for access in note.accesses if access.sectors.size]
    return [each for each in accesses if each.way == LOADED and each.tensor in tensors]


def _elements(launch: Launch) -> int:
    """Of a block."""
    sides = {axis_of(name): side for name, side in launch.given.items()}
    return math.prod(sides.get(axis, number) for axis, number in launch.elements.items())


def _enlarged(launch: Launch, axes: str, elements: float) -> tuple[Launch, int]:
    """With blocks of about so many elements, and of how many blocks each is made."""
    given, grid, all_of_them = dict(launch.given), list(launch.grid), 1
    for name in sorted(launch.given, key=axis_of):
        axis, side = axis_of(name), launch.given[name]
        if axis not in launch.elements or axis[0] not in axes:
            continue
        most = math.ceil(launch.elements[axis] / side)
        room = int(elements / (_elements(launch) * all_of_them))
        factor = max(1, min(most, room))
        given[name], all_of_them = side * factor, all_of_them * factor
        if axis in "xyz":
            place = "xyz".index(axis)
            grid[place] = max(1, grid[place] // factor)
    return launch._replace(given=given, grid=grid), all_of_them
