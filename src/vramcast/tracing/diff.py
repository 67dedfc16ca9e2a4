"""What differs between two memory traces: the allocations in order, and what is alive at each.

Frees are compared only through what is alive when something is allocated: in between, their order
means nothing to the allocator. Only steps that both traces have are compared. Sums of bytes are
rounded up to 512 a tensor, as the allocator does.
"""

import os
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from heapq import nlargest
from itertools import accumulate
from operator import attrgetter
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
from vramcast.tracing.trace import Trace

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
    kinds_at = comparison.kinds_at
    in_memory = [row for row, kinds in kinds_at.items() if set(kinds) != {DifferenceKind.NAME}]
    counts = Counter(kind for kinds in kinds_at.values() for kind in kinds)
    return TraceDiff(
        same=not kinds_at,
        a=_side(a, one),
        b=_side(b, other),
        num_steps_compared=num_steps,
        num_differences={kind: counts[kind] for kind in DifferenceKind},
        first=comparison.first_of(kinds_at),
        first_in_memory=comparison.first_of(in_memory),
        ops=_ops(one.items, other.items, rows),
    )


class _Events:
    """One trace up to the end of a step, as items to compare."""

    def __init__(self, trace: Trace, num_steps: int) -> None:
        self.allocations = trace.allocations
        self.items: list[Item] = []
        self.numbers: list[int] = []  # of the allocation each item is, or 0
        self.allocated_bytes: list[int] = []  # after each item
        self.freed_after: list[int] = []  # how many items came before each free
        self.steps_after: list[int] = []  # how many items came before each step
        index_of: dict[int, int] = {}
        live_bytes = 0
        for event in trace.events:
            if event == 0:
                if len(self.steps_after) == num_steps:
                    break
                self.steps_after.append(len(self.items))
            elif EMPTY_CACHE < event < 0:
                live_bytes -= ROUNDING.rounded(self.allocations[-event - 1].num_bytes)
                self.freed_after[index_of[-event]] = len(self.items)
            else:
                item, number = Item(EMPTIED, 0), 0
                if event > 0:
                    allocation = self.allocations[event - 1]
                    item, number = Item(allocation.op, allocation.num_bytes), event
                    live_bytes += ROUNDING.rounded(item.num_bytes)
                    index_of[event] = len(self.items)
                self.items.append(item)
                self.numbers.append(number)
                self.allocated_bytes.append(live_bytes)
                self.freed_after.append(NEVER)

    def line(self, index: int) -> ShownAllocation | None:
        return None if index == ABSENT else self.shown(index)

    def shown(self, index: int) -> ShownAllocation:
        number = self.numbers[index]
        return ShownAllocation(
            number=number,
            allocated_bytes=self.allocated_bytes[index],
            facts=self.allocations[number - 1].facts if number else {},
            **self.items[index]._asdict(),
        )


def _side(trace: Trace, events: _Events) -> TraceSummary:
    return TraceSummary(
        source=trace.source,
        workload=trace.workload,
        torch_version=trace.torch_version,
        num_steps=len(trace.steps),
        num_allocations=sum(map(bool, events.numbers)),
        peak_allocated_bytes=max(events.allocated_bytes, default=0),
    )


class _Comparison:
    """Two traces lined up. Times are counted in pairs, rows with both sides."""

    def __init__(self, a: _Events, b: _Events, rows: Sequence[Aligned]) -> None:
        self._a, self._b, self._rows = a, b, rows
        self._row_of_pair = [index for index, row in enumerate(rows) if ABSENT not in row]
        pairs = [rows[index] for index in self._row_of_pair]
        time_a = _times(len(a.items), {pair.a for pair in pairs})
        time_b = _times(len(b.items), {pair.b for pair in pairs})
        # per pair: the first later pair before which each side has freed it
        self._deaths = [
            (time_a[a.freed_after[pair.a]], time_b[b.freed_after[pair.b]]) for pair in pairs
        ]
        self._steps = [(time_a[x], time_b[y]) for x, y in zip(a.steps_after, b.steps_after)]
        self.kinds_at = self._differences()

    def _differences(self) -> dict[int, list[DifferenceKind]]:
        found: dict[int, list[DifferenceKind]] = defaultdict(list)
        for index, row in enumerate(self._rows):
            if kind := self._kind(row):
                found[index].append(kind)
        times = {DifferenceKind.ALIVE: self._deaths, DifferenceKind.STEP: self._steps}
        for kind, pairs in times.items():
            for time_a, time_b in pairs:
                if time_a != time_b:
                    found[self._row_of_pair[min(time_a, time_b)]].append(kind)
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

    def first_of(self, rows: Collection[int]) -> Difference | None:
        if not rows:
            return None
        index = min(rows)
        first = max(0, index - NUM_CONTEXT)
        shown = self._rows[first : index + NUM_CONTEXT + 1]
        only_a, only_b = self._alive_on_one_side(index)
        return Difference(
            kinds=[kind for kind in DifferenceKind if kind in self.kinds_at[index]],
            step=self._step(self._rows[index]),
            position=index - first,
            lines=[(self._a.line(row.a), self._b.line(row.b)) for row in shown],
            alive_only_a=nlargest(MAX_ALIVE, only_a, key=attrgetter("num_bytes")),
            alive_only_b=nlargest(MAX_ALIVE, only_b, key=attrgetter("num_bytes")),
            num_alive_only_a=len(only_a),
            num_alive_only_b=len(only_b),
        )

    def _alive_on_one_side(self, index: int) -> tuple[list[ShownAllocation], list[ShownAllocation]]:
        """Of what both traces allocated before this row: what only one of them has freed."""
        only_a, only_b = [], []
        for own_row, deaths in zip(self._row_of_pair, self._deaths):
            if own_row >= index:
                break
            freed_a, freed_b = (
                death != NEVER and self._row_of_pair[death] <= index for death in deaths
            )
            row = self._rows[own_row]
            if freed_a < freed_b:
                only_a.append(self._a.shown(row.a))
            elif freed_b < freed_a:
                only_b.append(self._b.shown(row.b))
        return only_a, only_b

    def _step(self, row: Aligned) -> int:
        events, index = (self._a, row.a) if row.a != ABSENT else (self._b, row.b)
        return bisect(events.steps_after, index)


def _times(num_items: int, paired: set[int]) -> dict[int, int]:
    """How many pairs each number of items of one side holds; behind the last pair is never."""
    counts = accumulate((index in paired for index in range(num_items)), initial=0)
    times = {items: n if n < len(paired) else NEVER for items, n in enumerate(counts)}
    return {**times, NEVER: NEVER}


def _ops(a: Sequence[Item], b: Sequence[Item], rows: Sequence[Aligned]) -> list[OpDifference]:
    """Operators whose allocations or bytes differ, largest difference first. Pairs that are the
    same count under one name."""
    names = ("count_a", "count_b", "bytes_a", "bytes_b")
    sums: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(names, 0))
    for row in rows:
        x = a[row.a] if row.a != ABSENT else None
        y = b[row.b] if row.b != ABSENT else None
        if x and y and same(x, y):
            name = WORKSPACE if WORKSPACE in (x.op, y.op) else x.op or y.op
            x, y = Item(name, x.num_bytes), Item(name, y.num_bytes)
        for side, item in (("a", x), ("b", y)):
            if item:
                sums[item.op][f"count_{side}"] += 1
                sums[item.op][f"bytes_{side}"] += item.num_bytes
    ops = [OpDifference(op=op, **found) for op, found in sums.items()]
    return sorted(
        (o for o in ops if (o.count_a, o.bytes_a) != (o.count_b, o.bytes_b)),
        key=lambda o: (-abs(o.bytes_a - o.bytes_b), -abs(o.count_a - o.count_b), o.op),
    )
