"""The addresses that cudaMalloc gives: the allocator breaks ties between equal blocks by address.

Deduced from traces of 54 processes (H200, driver 580, CUDA 13.0). Addresses come in units of 2 MiB.
The driver takes the lowest gap that fits, or else reserves a new range, a multiple of 32 MiB, below
all others. A process starts with an arena, whose last unit the first segment gets, and a range
above it. The arena is used from the first kernel launch on; segments from before are in the range
above, or below the arena. Some parts of CUDA take units for themselves: the first kernel, if no
copies came before it; cuBLAS, when it starts in a thread; and cuDNN, when the result of its first
convolution is allocated. NCCL fills all gaps when it starts.
"""

from bisect import insort
from typing import NamedTuple

UNIT_BYTES = 2 << 20
RANGE_UNITS = 16
ARENA_UNITS = 207
UNITS_BELOW_ARENA = 3  # free units that the context leaves of its own range
RANGE_ABOVE = 244, 12  # its distance from the beginning of the arena, and its free units
KERNEL_UNITS, CUDNN_UNITS = 5, 5
ORIGIN = 1 << 20


class Starts(NamedTuple):
    """The events at which parts of CUDA start; 0 if unknown, or never."""

    # allocates the first kernel's result; before it there are only copies from the host
    kernel: int = 0
    convolution: int = 0  # allocates the result of cuDNN's first convolution
    product: int = 0  # takes cuBLAS's first workspace
    backward_product: int = 0  # the same in the thread of the backward pass
    collective: int = 0
    cublas_bytes: int = 64 << 20  # what cuBLAS takes then, beside the workspace from torch


class AddressSpace:
    def __init__(self, *, has_kernels: bool = True) -> None:
        above, units = RANGE_ABOVE
        self._gaps = [(ORIGIN + above, units)]  # sorted by address
        self._lowest = ORIGIN - RANGE_UNITS
        self._is_empty = True
        if has_kernels:
            self.start_kernels(after_copies=False)

    def start_kernels(self, *, after_copies: bool) -> None:
        insort(self._gaps, (ORIGIN - UNITS_BELOW_ARENA, UNITS_BELOW_ARENA))
        insort(self._gaps, (ORIGIN, ARENA_UNITS))
        if not after_copies:
            self._take(KERNEL_UNITS)

    def start_cudnn(self) -> None:
        self._take(CUDNN_UNITS)

    def start_cublas(self, num_bytes: int) -> None:
        self._take(-(-num_bytes // UNIT_BYTES))

    def fill_gaps(self) -> None:
        self._gaps = []

    def take(self, num_bytes: int) -> int:
        units = -(-num_bytes // UNIT_BYTES)
        is_first, self._is_empty = self._is_empty, False
        first = ORIGIN + ARENA_UNITS if is_first and units == 1 else self._take(units)
        return first * UNIT_BYTES

    def _take(self, units: int) -> int:
        for index, (start, length) in enumerate(self._gaps):
            if units <= length:
                rest = (start + units, length - units)
                self._gaps[index : index + 1] = [rest] if rest[1] else []
                return start
        whole = -(-units // RANGE_UNITS) * RANGE_UNITS
        self._lowest -= whole
        if whole > units:
            self._add_gap(self._lowest + units, whole - units)
        return self._lowest

    def give_back(self, address: int, num_bytes: int) -> None:
        self._add_gap(address // UNIT_BYTES, -(-num_bytes // UNIT_BYTES))

    def _add_gap(self, start: int, units: int) -> None:
        """Adds a gap. Neighbouring gaps become one, except across the beginning of the arena."""
        insort(self._gaps, (start, units))
        merged: list[tuple[int, int]] = []
        for gap in self._gaps:
            if merged and sum(merged[-1]) == gap[0] and gap[0] != ORIGIN:
                merged[-1] = (merged[-1][0], merged[-1][1] + gap[1])
            else:
                merged.append(gap)
        self._gaps = merged
