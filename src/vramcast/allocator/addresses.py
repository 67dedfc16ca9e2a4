"""Where cudaMalloc puts a segment: the allocator breaks ties between equal blocks by address.

Read off recorded traces (H200, driver 580, CUDA 13.0): addresses come in units of 2 MiB. A process
starts with an arena of 512 MiB that fills upwards; after that the driver takes the lowest gap that
fits, or else reserves a new range, a multiple of 32 MiB, below all others. Segments of 32 MiB and
more begin at multiples of 32 MiB. The driver loads kernels when the first one is launched, which
takes ranges of its own: what is taken after that lies below what was taken before, as a model that
was copied from the host. NCCL, when it starts, fills the gaps that there are (seen under
DistributedDataParallel).
"""

from __future__ import annotations

from bisect import insort

UNIT_BYTES = 2 << 20
RANGE_UNITS = 16
ARENA_UNITS = 256
UNITS_BELOW_ARENA = 4  # what the context leaves of the range it took itself
ORIGIN = 1 << 20


class AddressSpace:
    def __init__(self) -> None:
        self._gaps: list[tuple[int, int]] = []  # sorted by address
        self._begin_at(ORIGIN)

    def begin_below(self) -> None:
        self._begin_at(self._lowest - 4 * ARENA_UNITS)

    def fill_gaps(self) -> None:
        self._gaps = []

    def _begin_at(self, origin: int) -> None:
        self._origin, self._lowest = origin, origin - RANGE_UNITS
        self._gaps = [
            (origin - UNITS_BELOW_ARENA, UNITS_BELOW_ARENA),
            (origin, ARENA_UNITS),
        ]

    def take(self, num_bytes: int) -> int:
        units = -(-num_bytes // UNIT_BYTES)
        alignment = RANGE_UNITS if units >= RANGE_UNITS else 1
        for index, (start, length) in enumerate(self._gaps):
            first = -(-start // alignment) * alignment
            if first + units <= start + length:
                rest = start + length - first - units
                around = ((start, first - start), (first + units, rest))
                self._gaps[index : index + 1] = [gap for gap in around if gap[1]]
                return first * UNIT_BYTES
        whole = -(-units // RANGE_UNITS) * RANGE_UNITS
        self._lowest -= whole
        if whole > units:
            self._add_gap(self._lowest + units, whole - units)
        return self._lowest * UNIT_BYTES

    def give_back(self, address: int, num_bytes: int) -> None:
        self._add_gap(address // UNIT_BYTES, -(-num_bytes // UNIT_BYTES))

    def _add_gap(self, start: int, units: int) -> None:
        """Neighbouring gaps become one, except across the beginning of the arena."""
        insort(self._gaps, (start, units))
        merged: list[tuple[int, int]] = []
        for gap in self._gaps:
            if merged and sum(merged[-1]) == gap[0] and gap[0] != self._origin:
                merged[-1] = (merged[-1][0], merged[-1][1] + gap[1])
            else:
                merged.append(gap)
        self._gaps = merged
