"""Additions of a fused kernel that wait for each other, because many go to one place."""

import math

import numpy as np

from vramcast.hardware.gpus import Gpu
from vramcast.simulate.fused.costs import resident_of
from vramcast.simulate.fused.launch import Launch
from vramcast.simulate.fused.values import ADDED, Notes, Numbers
from vramcast.simulate.fused.widths import WARP

TIMES = 4  # that blocks are looked at which run at once
# How many of their additions, at least so many blocks, and at most.
ADDITIONS, FEWEST_BLOCKS, MOST_BLOCKS = 256, 4, 32
FULL = 8  # additions to a place: fewer may be chance


def crowd_of(launch: Launch, gpu: Gpu) -> float:
    """The share of the fullest place, of the additions of blocks that run at once. 0 where no place
    is full, or where nothing is known of the places."""
    if not launch.tables:
        return 0.0
    first = launch.run([0] * len(launch.grid))
    by_block = max(1, _places(first).size)
    number = math.prod(launch.grid)
    span = min(
        number,
        gpu.num_multiprocessors * resident_of(first, WARP * launch.num_warps, launch.kernel.rules),
    )
    num_run = min(max(FEWEST_BLOCKS, math.ceil(ADDITIONS / by_block)), MOST_BLOCKS)
    begins = np.linspace(0, number - span, TIMES).astype(int)
    chosen = (begin + np.arange(0, span, math.ceil(span / num_run)) for begin in begins)
    return float(np.mean([_share(launch, blocks) for blocks in chosen]))


def _share(launch: Launch, blocks: Numbers) -> float:
    axes = reversed(np.unravel_index(blocks, tuple(reversed(launch.grid))))
    runs = [launch.run([int(at) for at in block]) for block in zip(*axes, strict=True)]
    places = np.concatenate([_places(notes) for notes in runs])
    most = int(np.unique(places, return_counts=True)[1].max(initial=0))
    return most / places.size if most >= FULL else 0.0


def _places(notes: Notes) -> Numbers:
    added = [each for each in notes.accesses if each.way == ADDED]
    return np.concatenate([np.empty(0, int), *(each.places[each.is_asked] for each in added)])
