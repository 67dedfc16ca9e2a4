"""What a fused kernel costs a GPU, from a few of its blocks that were run on the host.

Memory is written in sectors of 32 bytes and read two sectors at a time. A block asks the cache for
lines of four sectors. Warps of 32 threads write sectors, now and then only a part. A thread asks
for up to 16 bytes at once, where these are neighbours and begin at a multiple.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from vramcast.forecast.timing.rates import peak_flops
from vramcast.hardware.gpus import Gpu
from vramcast.simulate.fused.launch import Launch
from vramcast.simulate.fused.rules import DOT, Rules
from vramcast.simulate.fused.shared_memory import shared_cycles
from vramcast.simulate.fused.values import (
    ADDED,
    LOADED,
    SECTOR_BYTES,
    Access,
    Notes,
    Tensor,
    distinct,
)
from vramcast.simulate.fused.widths import WARP, fastest, width_along
from vramcast.simulate.fused.windows import bytes_of_reads, distinct_bytes

SECTORS_OF_LINE = 4
LANES = 128  # of a multiprocessor, for additions
REGISTERS, MOST_REGISTERS, FEWEST_REGISTERS = 24, 255, 32  # of a thread; some are always needed
REGISTER_BYTES = 4
REGISTERS_OF_MULTIPROCESSOR, MOST_WARPS, MOST_BLOCKS = 1 << 16, 64, 32
# The share of the cache that a tensor has which several blocks read. All else streams through it.
OF_CACHE = 0.25
PLACES = (0.13, 0.53, 0.83)  # of the grid, where blocks are run
# How often a tensor is read, in bytes, for its reads to be looked at more closely.
SCATTERED = 1.5
TOGETHER = 2  # blocks at a place, that share what they read


class Cost(NamedTuple):
    operations: float  # of lanes
    num_bytes: float  # from memory and to it
    asked_bytes: float  # by blocks, of the cache
    num_blocks: int
    waiting_seconds: float  # for what blocks do in turn, and for other blocks to end
    num_additions: int = 0  # to numbers that other blocks add to as well
    num_places: int = 0  # that these go to
    num_rows: int = 0  # of neighbours among them


class Sample(NamedTuple):
    """Of all blocks, from those that were run."""

    operations: Mapping[str, float]
    loads: float
    num_bytes: float
    asked_bytes: float
    part_written_bytes: float
    num_blocks: int
    rounds: float
    reductions: float
    resident: int  # blocks that a multiprocessor has at once
    num_additions: float
    num_places: int
    num_rows: float
    shared_cycles: float  # of multiprocessors
    pipelined: float  # of the rounds
    depth: int  # of reads that wait for each other
    passes: float  # of lines of the cache, to warps
    spilled: float  # registers
    rules: Rules

    def cost(self, gpu: Gpu) -> Cost:
        rules, lanes = self.rules, peak_flops(gpu, "fp32") / 2
        turns = max(1.0, self.num_blocks / (gpu.num_multiprocessors * self.resident))
        idle = max(1.0, gpu.num_multiprocessors / self.num_blocks)
        reading = turns * rules.read_seconds * self.depth
        in_turn = (
            rules.round_seconds * (self.rounds - self.pipelined)
            + rules.pipelined_seconds * self.pipelined
            + rules.reduction_seconds * self.reductions
        )
        spilled_bytes = 2 * REGISTER_BYTES * rules.spilled * self.spilled
        asked_bytes = self.asked_bytes + spilled_bytes
        asked_bytes += rules.part_written * self.part_written_bytes
        return Cost(
            max(self._operations, reading * lanes / idle),
            self.num_bytes,
            max(asked_bytes, rules.pass_bytes * self.passes),
            self.num_blocks,
            turns * in_turn + self.shared_cycles * LANES / lanes,
            round(self.num_additions),
            self.num_places,
            round(self.num_rows),
        )

    @property
    def _operations(self) -> float:
        costs = self.rules.operations
        parts = {kind: costs.get(kind, 1.0) * n for kind, n in self.operations.items()}
        products = parts.pop(DOT, 0.0)
        return math.hypot(sum(parts.values()) + self.rules.asked * self.loads, products)


def sample_of(launch: Launch, gpu: Gpu) -> Sample:
    grid, elements = launch.grid, launch.elements
    rules, threads = launch.kernel.rules, WARP * launch.num_warps
    places = [_blocks_at(share, grid) for share in PLACES]
    runs = [[launch.run(block) for block in run] for run in places]
    notes = [note for run in runs for note in run]
    more = math.prod(grid) / len(notes)
    operations, sums = defaultdict[str, float](float), defaultdict[str, float](float)
    for note in notes:
        for kind, number in note.operations.items():
            operations[kind] += more * number
        for access in note.accesses:
            for name, number in _of_access(access, elements, threads):
                sums[name] += more * access.share * number
    needed = registers_of(notes[0], threads, rules)
    resident = resident_of(notes[0], threads, rules)
    return Sample(
        operations,
        sums["loads"],
        _moved_bytes(runs, more, launch, gpu, resident),
        sums["asked"],
        sums["part_written"],
        math.prod(grid),
        max(note.rounds for note in notes),
        max(n.repeated_reductions if rules.is_repeated else n.reductions for n in notes),
        resident,
        sums["additions"],
        next((a.tensor.elements for a in notes[0].accesses if a.way == ADDED), 0),
        sums["rows"],
        more * sum(shared_cycles(note, launch.num_warps, elements) for note in notes),
        max(note.pipelined for note in notes),
        max(note.depth for note in notes),
        sums["passes"],
        max(0.0, needed - MOST_REGISTERS) * threads * math.prod(grid),
        rules,
    )


def _of_access(
    access: Access, elements: Mapping[str, int], threads: int
) -> list[tuple[str, float]]:
    number = float(access.is_asked.sum())
    if access.way == ADDED:
        return [("additions", number), ("rows", _num_rows(access))]
    axis = fastest(access.places)
    places, is_asked = (np.moveaxis(each, axis, -1) for each in (access.places, access.is_asked))
    width = width_along(axis, access, elements)
    passes = "passes", _passes(access, width, threads)
    if access.way == LOADED:
        lines = distinct(access.sectors // SECTORS_OF_LINE).size
        asked = lines * SECTORS_OF_LINE * SECTOR_BYTES
        return [("loads", number / width), ("asked", asked), passes]
    warps = np.arange(places.size).reshape(places.shape) // (WARP * width)
    written = (warps << 40) + places * access.tensor.item_bytes // SECTOR_BYTES
    by_warps = distinct(written[is_asked]).size * SECTOR_BYTES
    return [("part_written", by_warps - number * access.tensor.item_bytes), passes]


def _passes(access: Access, width: int, threads: int) -> float:
    """How many lines of the cache warps get. Where a thread asks for its neighbouring elements one
    after the other, a line is asked for again each time."""
    of_thread = max(1, access.places.size // threads)
    width, own = min(width, of_thread), min(max(width, access.own_width), of_thread)
    line_bytes = SECTORS_OF_LINE * SECTOR_BYTES
    lines = max(1.0, WARP * own * access.tensor.item_bytes / line_bytes)
    return access.places.size / (WARP * width) * lines


def _num_rows(access: Access) -> float:
    places = access.places[access.is_asked]
    return float(places.size and 1 + (np.diff(places) != 1).sum())


def _blocks_at(share: float, grid: Sequence[int]) -> list[list[int]]:
    """Some that follow each other along the first axis that has several."""
    first = [int(share * (number - 1)) for number in grid]
    axis = next((axis for axis, number in enumerate(grid) if number > 1), None)
    if axis is None:
        return [first]
    last = grid[axis] - 1
    return [
        [min(at + more, last) if place == axis else at for place, at in enumerate(first)]
        for more in range(TOGETHER)
    ]


def _moved_bytes(
    runs: list[list[Notes]], more: float, launch: Launch, gpu: Gpu, resident: int
) -> float:
    """What a block uses several times, or the next block too, comes from memory once; what a later
    loop of a block uses again does where the cache has not room for all blocks until then."""
    moved, again = defaultdict[tuple[Tensor, str], float](float), 0.0
    asked = defaultdict[Tensor, float](float)
    for run in runs:
        by_tensor = _grouped(
            (access.tensor, access.way, access) for note in run for access in note.accesses
        )
        for (tensor, way), accesses in by_tensor.items():
            once = more * distinct_bytes(accesses)
            by_loop = _grouped((access.loop, 0, access) for access in accesses).values()
            moved[tensor, way] += once
            again += max(0.0, more * sum(map(distinct_bytes, by_loop)) - once)
            if way == LOADED:
                asked[tensor] += more * sum(a.share * float(a.is_asked.sum()) for a in accesses)
    tensors = {each for each in launch.given.values() if isinstance(each, Tensor)}
    if launch.kernel.uses_all_tensors and tensors - {
        tensor for run in runs for note in run for tensor in note.tensors
    }:
        return launch.bytes_of_tensors  # several kernels that are one
    at_once = min(math.prod(launch.grid), gpu.num_multiprocessors * resident)
    scattered = [
        tensor
        for tensor in asked
        if OF_CACHE * gpu.l2_cache_bytes < tensor.num_bytes < moved[tensor, LOADED] / SCATTERED
    ]
    if scattered:
        for tensor, of_each in bytes_of_reads(launch, scattered, at_once, gpu).items():
            moved[tensor, LOADED] = min(moved[tensor, LOADED], of_each * asked[tensor])
    turns = math.ceil(math.prod(launch.grid) / at_once)
    for tensor in asked if launch.kernel.rules.reads_once else ():
        moved[tensor, LOADED] = min(moved[tensor, LOADED], float(turns * tensor.num_bytes))
    in_use = at_once / math.prod(launch.grid) * sum(moved.values())
    missed = max(0.0, 1 - gpu.l2_cache_bytes / max(1.0, in_use))
    return missed * again + sum(
        (1 + (way == ADDED)) * _missed_bytes(num_bytes, tensor.num_bytes, gpu)
        for (tensor, way), num_bytes in moved.items()
    )


def _grouped(accesses: Iterable[tuple[Any, Any, Access]]) -> dict[tuple[Any, Any], list[Access]]:
    """Those that ask for something, by the two that are given first."""
    groups = defaultdict[tuple[Any, Any], list[Access]](list)
    for one, other, access in accesses:
        if access.sectors.size:
            groups[one, other].append(access)
    return groups


def _missed_bytes(num_bytes: float, whole_bytes: int, gpu: Gpu) -> float:
    again = max(0.0, num_bytes - whole_bytes)
    return num_bytes - again * min(1.0, OF_CACHE * gpu.l2_cache_bytes / max(1, whole_bytes))


def registers_of(note: Notes, threads: int, rules: Rules) -> float:
    """That a thread would need."""
    loads = [access.places.size for access in note.accesses if access.way == LOADED]
    of_element = rules.registers[note.rounds > 0]
    of_thread = max(loads, default=1) / threads
    return REGISTERS + of_element * of_thread * min(len(loads), rules.most_reads)


def resident_of(note: Notes, threads: int, rules: Rules) -> int:
    """Blocks that a multiprocessor has at once."""
    registers = registers_of(note, threads, rules)
    in_use = min(MOST_REGISTERS, max(FEWEST_REGISTERS, registers)) * threads
    blocks = REGISTERS_OF_MULTIPROCESSOR / in_use
    return max(1, int(min(blocks, MOST_WARPS * WARP / threads, MOST_BLOCKS)))
