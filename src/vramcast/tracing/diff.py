"""What differs between two memory traces: the allocations in order, and what is alive at each of
them.

Frees are compared only through what is alive when something is allocated: in between, their order
means nothing to the allocator. Traces of different length are compared over the steps they have in
common. Sums of bytes are rounded up to 512 a tensor, as the allocator does.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from vramcast.allocator import EMPTY_CACHE, AllocatorSettings
from vramcast.records.trace_diff import (
    Difference,
    DifferenceKind,
    OpDifference,
    ShownAllocation,
    TraceDiff,
    TraceSummary,
)
from vramcast.tracing.align import ABSENT, EMPTIED, WORKSPACE, Aligned, Item, align, same
from vramcast.tracing.files import read_trace
from vramcast.tracing.trace import Allocation, Trace

NEVER = 2**62
ROUNDING = AllocatorSettings()
NUM_CONTEXT = 4
MAX_ALIVE = 8  # shown of the tensors alive on one side only


def diff(a: str | os.PathLike[str], b: str | os.PathLike[str]) -> TraceDiff:
    """Where two memory traces differ; each is a trace.json or a folder with one."""
    return diff_traces(read_trace(Path(a)), read_trace(Path(b)))


def diff_traces(a: Trace, b: Trace) -> TraceDiff:
    num_steps = min(len(a.steps), len(b.steps))
    one, other = _Events(a, num_steps), _Events(b, num_steps)
    rows = align(one.items, other.items)
    comparison = _Comparison(one, other, rows)
    kinds_at = comparison.differences()
    in_memory = [row for row, kinds in kinds_at.items() if set(kinds) != {DifferenceKind.NAME}]
    counts = Counter(kind for kinds in kinds_at.values() for kind in kinds)
    return TraceDiff(
        same=not kinds_at,
        a=_side(a, one),
        b=_side(b, other),
        num_steps_compared=num_steps,
        num_differences={kind: counts[kind] for kind in DifferenceKind},
        first=comparison.difference(min(kinds_at), kinds_at[min(kinds_at)]) if kinds_at else None,
        first_in_memory=comparison.difference(min(in_memory), kinds_at[min(in_memory)])
        if in_memory
        else None,
        ops=_ops(one.items, other.items, rows),
    )


def _side(trace: Trace, events: _Events) -> TraceSummary:
    return TraceSummary(
        source=trace.source,
        workload=trace.workload,
        torch_version=trace.torch_version,
        num_steps=len(trace.steps),
        num_allocations=sum(1 for number in events.numbers if number),
        peak_allocated_bytes=max(events.allocated_bytes, default=0),
    )


class _Events:
    """One trace up to the end of a step, as the items that are compared."""

    def __init__(self, trace: Trace, num_steps: int) -> None:
        self.allocations: Sequence[Allocation] = trace.allocations
        self.items: list[Item] = []
        self.numbers: list[int] = []  # of the allocation each item is, or 0
        self.allocated_bytes: list[int] = []  # after each item
        self.freed_after: list[int] = []  # how many items came before each item's free
        self.steps_after: list[int] = []  # how many items came before each step
        self._index_of: dict[int, int] = {}
        self._live_bytes = 0
        for event in trace.events:
            if event == 0 and len(self.steps_after) == num_steps:
                break
            self._add(event)

    def _add(self, event: int) -> None:
        if event > 0:
            allocation = self.allocations[event - 1]
            self._live_bytes += ROUNDING.rounded(allocation.num_bytes)
            self._index_of[event] = len(self.items)
            self._add_item(Item(allocation.op, allocation.num_bytes), event)
        elif event == 0:
            self.steps_after.append(len(self.items))
        elif event == EMPTY_CACHE:
            self._add_item(Item(EMPTIED, 0), 0)
        else:
            self._live_bytes -= ROUNDING.rounded(self.allocations[-event - 1].num_bytes)
            self.freed_after[self._index_of[-event]] = len(self.items)

    def _add_item(self, item: Item, number: int) -> None:
        self.items.append(item)
        self.numbers.append(number)
        self.allocated_bytes.append(self._live_bytes)
        self.freed_after.append(NEVER)

    def line(self, index: int) -> ShownAllocation | None:
        if index == ABSENT:
            return None
        item, number = self.items[index], self.numbers[index]
        facts = self.allocations[number - 1].facts if number else {}
        return ShownAllocation(
            number=number,
            op=item.op,
            num_bytes=item.num_bytes,
            allocated_bytes=self.allocated_bytes[index],
            facts=facts,
        )


class _Comparison:
    """Two traces lined up.

    A pair is a row with both sides; times are counted in pairs, so that they mean the same on both
    sides.
    """

    def __init__(self, a: _Events, b: _Events, rows: Sequence[Aligned]) -> None:
        self._a, self._b, self._rows = a, b, rows
        self._row_of_pair = [index for index, row in enumerate(rows) if ABSENT not in row]
        self._pairs_before_a = _pairs_before(
            len(a.items), [rows[index].a for index in self._row_of_pair]
        )
        self._pairs_before_b = _pairs_before(
            len(b.items), [rows[index].b for index in self._row_of_pair]
        )
        # per pair: the first later pair before which each side has freed it
        self._deaths = [
            (
                self._time(self._pairs_before_a, a.freed_after[rows[index].a]),
                self._time(self._pairs_before_b, b.freed_after[rows[index].b]),
            )
            for index in self._row_of_pair
        ]

    def differences(self) -> dict[int, list[DifferenceKind]]:
        """Aligned -> what differs there, one entry for each difference."""
        found: dict[int, list[DifferenceKind]] = {}
        for index, row in enumerate(self._rows):
            kind = self._kind(row)
            if kind:
                found.setdefault(index, []).append(kind)
        for death_a, death_b in self._deaths:
            if death_a != death_b:
                found.setdefault(self._row_of_pair[min(death_a, death_b)], []).append(
                    DifferenceKind.ALIVE
                )
        for after_a, after_b in zip(self._a.steps_after, self._b.steps_after):
            time_a, time_b = (
                self._time(self._pairs_before_a, after_a),
                self._time(self._pairs_before_b, after_b),
            )
            if time_a != time_b:
                found.setdefault(self._row_of_pair[min(time_a, time_b)], []).append(
                    DifferenceKind.STEP
                )
        return found

    def _kind(self, row: Aligned) -> DifferenceKind | None:
        if row.b == ABSENT:
            return DifferenceKind.ONLY_A
        if row.a == ABSENT:
            return DifferenceKind.ONLY_B
        x, y = self._a.items[row.a], self._b.items[row.b]
        if x == y or same(x, y):
            return None
        return DifferenceKind.NAME if x.num_bytes == y.num_bytes else DifferenceKind.BYTES

    def difference(self, index: int, kinds: list[DifferenceKind]) -> Difference:
        first = max(0, index - NUM_CONTEXT)
        shown = self._rows[first : index + NUM_CONTEXT + 1]
        only_a, only_b = self._alive_on_one_side(index)
        return Difference(
            kinds=sorted(set(kinds), key=list(DifferenceKind).index),
            step=self._step(self._rows[index]),
            position=index - first,
            lines=[(self._a.line(row.a), self._b.line(row.b)) for row in shown],
            alive_only_a=_largest(only_a),
            alive_only_b=_largest(only_b),
            num_alive_only_a=len(only_a),
            num_alive_only_b=len(only_b),
        )

    def _alive_on_one_side(self, index: int) -> tuple[list[ShownAllocation], list[ShownAllocation]]:
        """Of what both traces allocated before this row: what only one of them has freed."""
        only_a: list[ShownAllocation] = []
        only_b: list[ShownAllocation] = []
        for own_row, deaths in zip(self._row_of_pair, self._deaths):
            freed_a, freed_b = (
                death != NEVER and self._row_of_pair[death] <= index for death in deaths
            )
            if own_row >= index or freed_a == freed_b:
                continue
            row = self._rows[own_row]
            line = self._a.line(row.a) if freed_b else self._b.line(row.b)
            assert line is not None
            (only_a if freed_b else only_b).append(line)
        return only_a, only_b

    def _step(self, row: Aligned) -> int:
        events, index = (self._a, row.a) if row.a != ABSENT else (self._b, row.b)
        return sum(1 for after in events.steps_after if after <= index)

    def _time(self, pairs_before: Sequence[int], num_items: int) -> int:
        """In pairs; what happens behind the last pair is as good as never."""
        if num_items == NEVER:
            return NEVER
        return (
            pairs_before[num_items] if pairs_before[num_items] < len(self._row_of_pair) else NEVER
        )


def _pairs_before(num_items: int, paired: Sequence[int]) -> list[int]:
    """For each number of items of one side: how many pairs they hold."""
    is_paired = [0] * num_items
    for index in paired:
        is_paired[index] = 1
    counts = [0]
    for one in is_paired:
        counts.append(counts[-1] + one)
    return counts


def _ops(a: Sequence[Item], b: Sequence[Item], rows: Sequence[Aligned]) -> list[OpDifference]:
    """Operators whose number of allocations or bytes differ, largest difference first.

    Pairs that are the same count under one name.
    """
    counts_a, counts_b, bytes_a, bytes_b = (
        Counter[str](),
        Counter[str](),
        Counter[str](),
        Counter[str](),
    )
    for row in rows:
        x = a[row.a] if row.a != ABSENT else None
        y = b[row.b] if row.b != ABSENT else None
        if x and y and same(x, y):
            name = WORKSPACE if WORKSPACE in (x.op, y.op) else x.op or y.op
            x, y = Item(name, x.num_bytes), Item(name, y.num_bytes)
        if x:
            counts_a[x.op] += 1
            bytes_a[x.op] += x.num_bytes
        if y:
            counts_b[y.op] += 1
            bytes_b[y.op] += y.num_bytes
    ops = [
        OpDifference(
            op=op,
            count_a=counts_a[op],
            count_b=counts_b[op],
            bytes_a=bytes_a[op],
            bytes_b=bytes_b[op],
        )
        for op in {*counts_a, *counts_b}
        if (counts_a[op], bytes_a[op]) != (counts_b[op], bytes_b[op])
    ]
    return sorted(
        ops, key=lambda o: (-abs(o.bytes_a - o.bytes_b), -abs(o.count_a - o.count_b), o.op)
    )


def _largest(lines: list[ShownAllocation]) -> list[ShownAllocation]:
    return sorted(lines, key=lambda line: -line.num_bytes)[:MAX_ALIVE]
