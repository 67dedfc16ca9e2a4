"""What the threads of a block hand to each other through shared memory.

It has 32 banks: a thread of a warp waits while another one is at the same bank.
"""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from vramcast.simulate.fused.values import COLUMN_SUM, LOADED, Access, Done, Notes
from vramcast.simulate.fused.widths import WARP, fastest, width_along

BANKS, BYTES_OF_CYCLE = 32, 128
PASSES = 4  # sums are written and read, and so is their total
ADDRESS_BYTES = 8
# Operations of an address: of recorded kernels those with 40 were handed on, with 34 not.
LONG_ADDRESS = 36


def shared_cycles(note: Notes, num_warps: int, elements: Mapping[str, int]) -> float:
    """In which the block's multiprocessor does nothing else."""
    reads = [access for access in note.accesses if access.way == LOADED]
    return _of_column_sums(note, reads, num_warps, elements) + _of_addresses(reads, elements)


def _of_column_sums(
    note: Notes, reads: list[Access], num_warps: int, elements: Mapping[str, int]
) -> float:
    """Where warps have some of the rows each. A thread has as many neighbours of a row as it reads
    of the smallest type: the 16 bytes of a mask's make 16 threads of a warp wait for each other."""
    shapes = [read.places.shape for read in reads if read.places.ndim == 2]
    rows, columns = np.max([(1, 1), *shapes], axis=0).tolist()
    whole = [read for read in reads if read.places.shape == (rows, columns)]
    width = max((width_along(1, read, elements) for read in whole), default=1)
    warps_of_row = min(num_warps, max(1, columns // (WARP * width)))
    parts = min(rows, num_warps // warps_of_row)
    if parts == 1:
        return 0.0
    return note.operations[COLUMN_SUM] * parts / rows * PASSES * width / BANKS


def _of_addresses(reads: list[Access], elements: Mapping[str, int]) -> float:
    """Threads compute a long address of each element once. They hand it on to the threads that read
    several neighbours at once, if more than one read uses it: Triton's compiler finds that cheaper
    than to compute it anew."""
    uses = Counter(read.address for read in reads)
    handed_on = [
        read
        for read in reads
        if uses[read.address] > 1
        and _num_operations(read.address) > LONG_ADDRESS
        and width_along(fastest(read.places), read, elements) > 1
    ]
    number = sum(read.share * read.places.size for read in handed_on)
    return number * 2 * ADDRESS_BYTES / BYTES_OF_CYCLE


def _num_operations(address: tuple[Done, ...]) -> int:
    """On a block's elements, after the last read."""
    found, left = set[Done](), list(address)
    while left:
        done = left.pop()
        if done not in found and not done.access:
            found.add(done)
            left.extend(done.causes)
    return sum(done.number > 0 for done in found)
