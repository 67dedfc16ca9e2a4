"""The allocator once more, slow and plain: lists of cells, linear scans, nothing kept that can be
recomputed.

Shares no code with the model but the settings and the exception, so that the two can check each
other.
"""

from __future__ import annotations

from dataclasses import dataclass

from vramcast.allocator.model import OutOfMemory
from vramcast.allocator.settings import AllocatorSettings

MIB = 2**20


UNIT, ORIGIN = 2 << 20, 1 << 20


@dataclass
class Cell:
    size: int
    block_id: int | None = None
    is_mapped: bool = True
    cached_at: int = 0

    @property
    def is_free(self) -> bool:
        return self.block_id is None and self.is_mapped


class Chain:
    """A segment: cells in address order that fill it without gaps."""

    def __init__(self, address: int, is_large: bool, cells: list[Cell]) -> None:
        self.address, self.is_large, self.cells = address, is_large, cells

    def address_of(self, index: int) -> int:
        return self.address + sum(cell.size for cell in self.cells[:index])

    def merge(self) -> None:
        merged: list[Cell] = []
        for cell in self.cells:
            last = merged[-1] if merged else None
            if (
                last
                and last.block_id is None
                and cell.block_id is None
                and last.is_mapped == cell.is_mapped
            ):
                last.size += cell.size
                last.cached_at = max(last.cached_at, cell.cached_at)
            else:
                merged.append(cell)
        self.cells = merged


class ReferenceAllocator:
    def __init__(self, settings: AllocatorSettings, capacity_bytes: int | None) -> None:
        self.settings, self.capacity = settings, capacity_bytes
        self.max_split = settings.max_split_size_bytes or 10**30
        self.chains: list[Chain] = []
        if settings.expandable_segments:
            self.granule = {False: 2 * MIB, True: settings.large_segment_bytes}
            # any address far above the small pool that is a multiple of the granule
            large_address = (
                -(-(2**50) // settings.large_segment_bytes) * settings.large_segment_bytes
            )
            for is_large, address in ((False, 0), (True, large_address)):
                self.chains.append(
                    Chain(
                        address, is_large, [Cell(2**24 * self.granule[is_large], is_mapped=False)]
                    )
                )
        self.lowest_unit = ORIGIN - 16  # everything from here up belongs to the process
        self.first_unit: int | None = None  # -1: the first segment was larger
        self.clock = 0
        self.peak_allocated_bytes = self.peak_reserved_bytes = self.num_alloc_retries = 0

    @property
    def allocated_bytes(self) -> int:
        return sum(
            cell.size for chain in self.chains for cell in chain.cells if cell.block_id is not None
        )

    @property
    def reserved_bytes(self) -> int:
        return sum(cell.size for chain in self.chains for cell in chain.cells if cell.is_mapped)

    def ranges(self) -> list[tuple[int, bool, list[tuple[int, int | None]]]]:
        """(address, is_large, [(size, block_id)]) of every contiguous mapped range."""
        found = []
        for chain in self.chains:
            blocks: list[tuple[int, int | None]] = []
            for index, cell in enumerate([*chain.cells, Cell(0, is_mapped=False)]):
                if cell.is_mapped:
                    blocks.append((cell.size, cell.block_id))
                elif blocks:
                    found.append(
                        (
                            chain.address_of(index) - sum(size for size, _ in blocks),
                            chain.is_large,
                            blocks,
                        )
                    )
                    blocks = []
        return sorted(found)

    def malloc(self, block_id: int, num_bytes: int) -> None:
        size = self.rounded(num_bytes)
        is_large = size > MIB
        self.clock += is_large
        chain, index = self.best_fit(size, is_large) or self.from_device(size, is_large, num_bytes)
        cell = chain.cells[index]
        rest = cell.size - size
        if not is_large or self.settings.expandable_segments:
            split = rest >= 512
        else:
            split = size < self.max_split and rest > MIB
        taken = Cell(size if split else cell.size, block_id)
        chain.cells[index : index + 1] = (
            [taken, Cell(rest, cached_at=self.clock)] if split else [taken]
        )
        self.peak_allocated_bytes = max(self.peak_allocated_bytes, self.allocated_bytes)

    def free(self, block_id: int) -> None:
        for chain in self.chains:
            for cell in chain.cells:
                if cell.block_id == block_id:
                    cell.block_id, cell.cached_at = None, self.clock
                    chain.merge()
                    return
        raise KeyError(block_id)

    def rounded(self, num_bytes: int) -> int:
        divisions = 0
        if self.settings.roundup_power2_divisions:
            interval = 0
            while interval < 15 and num_bytes >= MIB * 2 ** (interval + 1):
                interval += 1
            divisions = self.settings.roundup_power2_divisions[interval]
        if divisions > 1 and num_bytes > 512 * divisions:
            power = 1
            while power * 2 <= num_bytes:
                power *= 2
            return next(
                power + i * power // divisions
                for i in range(divisions + 1)
                if power + i * power // divisions >= num_bytes
            )
        return max(512, (num_bytes + 511) // 512 * 512)

    def free_cells(self, is_large: bool) -> list[tuple[int, int, Chain, int]]:
        """(size, address, chain, index), smallest first."""
        found = [
            (cell.size, chain.address_of(index), chain, index)
            for chain in self.chains
            if chain.is_large == is_large
            for index, cell in enumerate(chain.cells)
            if cell.is_free
        ]
        return sorted(found, key=lambda entry: entry[:2])

    def best_fit(self, size: int, is_large: bool) -> tuple[Chain, int] | None:
        fitting = [entry for entry in self.free_cells(is_large) if entry[0] >= size]
        if not fitting:
            return None
        choice = 0
        if self.settings.expandable_segments:
            growable = [
                cell_size + self.hole_behind(chain, index) for cell_size, _, chain, index in fitting
            ]
            while choice + 1 < len(fitting) and growable[choice + 1] < growable[choice]:
                choice += 1
        found, _, chain, index = fitting[choice]
        if size < self.max_split <= found:
            return None
        if size >= self.max_split and found >= size + self.settings.max_non_split_rounding_bytes:
            return None
        return chain, index

    def hole_behind(self, chain: Chain, index: int) -> int:
        behind = chain.cells[index + 1 : index + 2]
        return behind[0].size if behind and not behind[0].is_mapped else 0

    def from_device(self, size: int, is_large: bool, num_bytes: int) -> tuple[Chain, int]:
        segment = 2 * MIB if not is_large else self.settings.large_segment_bytes
        if size >= 10 * MIB:
            segment = (size + 2 * MIB - 1) // (2 * MIB) * 2 * MIB
        if self.capacity is not None and self.settings.garbage_collection_threshold > 0:
            self.collect_garbage(self.capacity)
        found = self.grow(size, is_large, segment)
        if not found and self.release_oversized(size, is_large):
            found = self.grow(size, is_large, segment)
        if not found:
            self.empty_cache()
            self.num_alloc_retries += 1
            found = self.grow(size, is_large, segment)
        if not found:
            raise OutOfMemory(
                requested_bytes=num_bytes,
                segment_bytes=segment,
                allocated_bytes=self.allocated_bytes,
                reserved_bytes=self.reserved_bytes,
            )
        return found

    def fits(self, num_bytes: int) -> bool:
        return self.capacity is None or self.reserved_bytes + num_bytes <= self.capacity

    def grow(self, size: int, is_large: bool, segment: int) -> tuple[Chain, int] | None:
        if not self.fits(segment):
            return None
        if self.settings.expandable_segments:
            return self.grow_expandable(self.chains[is_large], size)
        self.chains.append(Chain(self.address_for(segment), is_large, [Cell(segment)]))
        self.note_reserved()
        return self.chains[-1], 0

    def address_for(self, segment: int) -> int:
        """The lowest free place; else a new range of a multiple of 32 MiB below all others.

        In units of 2 MiB. The first segment, if it is one unit, gets the last of the arena.
        """
        units = segment // UNIT
        if self.first_unit is None:
            self.first_unit = ORIGIN + 207 if units == 1 else -1
            if units == 1:
                return self.first_unit * UNIT
        taken = {
            range(ORIGIN - 16, ORIGIN - 3),
            range(ORIGIN, ORIGIN + 5),
            range(ORIGIN + 207 + (self.first_unit > 0), ORIGIN + 244),
            *(
                range(c.address // UNIT, (c.address + sum(x.size for x in c.cells)) // UNIT)
                for c in self.chains
            ),
        }
        for start in range(self.lowest_unit, ORIGIN + 256 - units + 1):
            crosses_arena = start < ORIGIN < start + units
            if not crosses_arena and all(
                start >= t.stop or start + units <= t.start for t in taken
            ):
                return start * UNIT
        self.lowest_unit -= -(-units // 16) * 16
        return self.lowest_unit * UNIT

    def note_reserved(self) -> None:
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)

    def grow_expandable(self, chain: Chain, size: int) -> tuple[Chain, int] | None:
        granule = self.granule[chain.is_large]
        start = next(
            index
            for index in range(len(chain.cells))
            if self.may_start(chain, index) and self.room(chain, index) >= size
        )
        while True:
            cell = chain.cells[start]
            if cell.is_free and cell.size >= size:
                return chain, start
            hole = start + 1 if cell.is_free else start
            missing = min(size - (cell.size if cell.is_free else 0), chain.cells[hole].size)
            mapped = (missing + granule - 1) // granule * granule
            if not self.fits(mapped):
                return None
            rest = chain.cells[hole].size - mapped
            chain.cells[hole : hole + 1] = [
                Cell(mapped, cached_at=self.clock),
                Cell(rest, is_mapped=False),
            ]
            chain.cells = [cell for cell in chain.cells if cell.size]
            chain.merge()
            self.note_reserved()

    def may_start(self, chain: Chain, index: int) -> bool:
        """A hole, or the free cell in front of one."""
        cell = chain.cells[index]
        if not cell.is_mapped:
            return index == 0 or not chain.cells[index - 1].is_free
        return cell.is_free and self.hole_behind(chain, index) > 0

    def room(self, chain: Chain, index: int) -> int:
        total = 0
        while index < len(chain.cells) and chain.cells[index].block_id is None:
            total += chain.cells[index].size
            index += 1
        return total

    def empty_cache(self) -> None:
        if not self.settings.expandable_segments:
            self.chains = [
                chain
                for chain in self.chains
                if not (len(chain.cells) == 1 and chain.cells[0].is_free)
            ]
            return
        for chain in self.chains:
            chain.cells = [
                part
                for index, cell in enumerate(chain.cells)
                for part in self.unmapped(chain, index, cell)
            ]
            chain.merge()

    def unmapped(self, chain: Chain, index: int, cell: Cell) -> list[Cell]:
        """The cell in up to three parts, the whole granules in the middle without memory."""
        if not cell.is_free:
            return [cell]
        granule = self.granule[chain.is_large]
        offset = chain.address_of(index) - chain.address
        begin = (offset + granule - 1) // granule * granule
        end = (offset + cell.size) // granule * granule
        if begin >= end:
            return [cell]
        parts = [
            Cell(begin - offset),
            Cell(end - begin, is_mapped=False),
            Cell(offset + cell.size - end),
        ]
        return [part for part in parts if part.size]

    def release_oversized(self, size: int, is_large: bool) -> bool:
        if self.settings.max_split_size_bytes is None or self.settings.expandable_segments:
            return False
        wanted = max(size, self.max_split)
        oversized = [entry for entry in self.free_cells(is_large) if entry[0] >= self.max_split]
        for cell_size, _, chain, _ in oversized:
            if cell_size >= wanted:
                self.chains.remove(chain)
                return True
        released = 0
        for cell_size, _, chain, _ in reversed(oversized):
            if released < wanted:
                released += cell_size
                self.chains.remove(chain)
        return released >= wanted

    def collect_garbage(self, capacity: int) -> None:
        target = self.reserved_bytes - int(self.settings.garbage_collection_threshold * capacity)
        reclaimed = 0
        while reclaimed < target:
            cached = [
                chain
                for chain in self.chains
                if chain.is_large and len(chain.cells) == 1 and chain.cells[0].is_free
            ]
            if not cached:
                return
            ages = [self.clock - chain.cells[0].cached_at for chain in cached]
            for chain, age in zip(cached, ages, strict=True):
                if age * len(ages) >= sum(ages):
                    reclaimed += chain.cells[0].size
                    self.chains.remove(chain)
