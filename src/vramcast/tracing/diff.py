"""The differences between two memory traces: in the allocations, and in what is alive at each.

Frees are compared only by what is alive when something is allocated: between two allocations their
order does not matter to the allocator. In sums, every tensor is rounded up to 512 bytes, as the
allocator does.
"""

import os
from bisect import bisect
from pathlib import Path

import numpy as np

from vramcast.allocator.compiled import rounded_bytes
from vramcast.allocator.replay import EMPTY_CACHE
from vramcast.records.trace_diff import (
    Difference,
    DifferenceKind,
    OpDifference,
    ShownAllocation,
    TraceDiff,
    TraceSummary,
)
from vramcast.tracing.align import (
    ABSENT,
    EMPTIED,
    SPECIAL_OPS,
    UNKNOWN,
    WORKSPACE,
    Aligned,
    Items,
    Numbers,
    align,
    same,
)
from vramcast.tracing.files import read_trace
from vramcast.tracing.trace import Trace, bytes_by_event

NEVER = 2**62
NUM_CONTEXT = 4
MAX_ALIVE = 8  # so many of the tensors that are alive on one side only are shown


def diff(a: str | os.PathLike[str], b: str | os.PathLike[str]) -> TraceDiff:
    """Where two memory traces differ; each is a trace.json or a folder with one."""
    return diff_traces(read_trace(Path(a)), read_trace(Path(b)))


def diff_traces(a: Trace, b: Trace) -> TraceDiff:
    num_steps = min(len(a.steps), len(b.steps))
    numbers_of_ops = {op: number for number, op in enumerate(SPECIAL_OPS)}
    one, other = (_Events(trace, num_steps, numbers_of_ops) for trace in (a, b))
    rows = align(one.items, other.items)
    comparison = _Comparison(one, other, rows)
    found = comparison.rows_of
    in_memory = [rows for kind, rows in found.items() if kind != DifferenceKind.NAME]
    return TraceDiff(
        same=not any(map(len, found.values())),
        a=_side(a, one),
        b=_side(b, other),
        num_steps_compared=num_steps,
        num_differences={kind: len(found[kind]) for kind in DifferenceKind},
        first=comparison.first_of([*found.values()]),
        first_in_memory=comparison.first_of(in_memory),
        ops=_ops(one.items, other.items, rows, [*numbers_of_ops]),
    )


class _Events:
    """One trace up to the end of a step, as items to compare."""

    def __init__(self, trace: Trace, num_steps: int, numbers_of_ops: dict[str, int]) -> None:
        """New operators are added to `numbers_of_ops`."""
        self._allocations = trace.allocations
        starts = np.flatnonzero(trace.events == 0)
        events = trace.events if len(starts) == num_steps else trace.events[: starts[num_steps]]
        is_item = (events > 0) | (events == EMPTY_CACHE)
        num_items = np.cumsum(is_item)
        items = events[is_item]
        self.numbers = np.maximum(items, 0)  # the number of each item's allocation, or 0
        is_allocation = items > 0
        made = items[is_allocation] - 1
        labels = trace.allocations.labels("op")
        own_numbers = [numbers_of_ops.setdefault(op, len(numbers_of_ops)) for op in labels.words]
        ops, num_bytes = np.full(len(items), EMPTIED), np.zeros(len(items), np.int64)
        ops[is_allocation] = np.array(own_numbers, np.int64)[labels.codes[made]]
        num_bytes[is_allocation] = trace.sizes[made]
        self.items = Items(ops, num_bytes)
        rounded = rounded_bytes(trace.sizes)
        # after each item
        self.allocated_bytes = np.cumsum(bytes_by_event(events, rounded))[is_item]
        # how many items came before each free, and before each step
        self.freed_after = np.full(len(items), NEVER)
        is_free = (events < 0) & ~is_item
        index_of = np.zeros(len(trace.allocations), np.int64)
        index_of[made] = np.flatnonzero(is_allocation)
        self.freed_after[index_of[-events[is_free] - 1]] = num_items[is_free]
        self.steps_after = num_items[events == 0].tolist()

    def line(self, index: int) -> ShownAllocation | None:
        return None if index == ABSENT else self.shown(index)

    def largest(self, indices: Numbers) -> list[ShownAllocation]:
        ranked = np.argsort(-self.items.num_bytes[indices], kind="stable")[:MAX_ALIVE]
        return [self.shown(index) for index in indices[ranked].tolist()]

    def shown(self, index: int) -> ShownAllocation:
        number = int(self.numbers[index])
        made = self._allocations[number - 1] if number else None
        return ShownAllocation(
            number=number,
            op=made.op if made else SPECIAL_OPS[EMPTIED],
            num_bytes=made.num_bytes if made else 0,
            allocated_bytes=int(self.allocated_bytes[index]),
            facts=made.facts if made else {},
        )


def _side(trace: Trace, events: _Events) -> TraceSummary:
    return TraceSummary(
        source=trace.source,
        workload=trace.workload,
        torch_version=trace.torch_version,
        num_steps=len(trace.steps),
        num_allocations=int(np.count_nonzero(events.numbers)),
        peak_allocated_bytes=int(events.allocated_bytes.max(initial=0)),
    )


class _Comparison:
    """Two traces lined up. Times are counted in pairs, which are rows with both sides."""

    def __init__(self, a: _Events, b: _Events, rows: Aligned) -> None:
        self._a, self._b, self._rows = a, b, rows
        self._row_of_pair = np.flatnonzero((rows.a != ABSENT) & (rows.b != ABSENT))
        self._pairs = Aligned(rows.a[self._row_of_pair], rows.b[self._row_of_pair])
        time_a, time_b = _Times(len(a.items), self._pairs.a), _Times(len(b.items), self._pairs.b)
        # for each pair, the first later pair before which each side has freed it
        self._deaths = Aligned(
            time_a.at(a.freed_after[self._pairs.a]), time_b.at(b.freed_after[self._pairs.b])
        )
        steps = Aligned(
            time_a.at(np.array(a.steps_after, np.int64)),
            time_b.at(np.array(b.steps_after, np.int64)),
        )
        # for every kind, the rows with such a difference; a row may occur several times
        self.rows_of = {
            **self._differences_in_pairs(),
            DifferenceKind.ONLY_A: np.flatnonzero(rows.b == ABSENT),
            DifferenceKind.ONLY_B: np.flatnonzero(rows.a == ABSENT),
            DifferenceKind.ALIVE: self._where_first(self._deaths),
            DifferenceKind.STEP: self._where_first(steps),
        }

    def _differences_in_pairs(self) -> dict[DifferenceKind, Numbers]:
        a, b = self._a.items, self._b.items
        differs = ~same(a, self._pairs.a, b, self._pairs.b)
        same_bytes = a.num_bytes[self._pairs.a] == b.num_bytes[self._pairs.b]
        return {
            DifferenceKind.NAME: self._row_of_pair[differs & same_bytes],
            DifferenceKind.BYTES: self._row_of_pair[differs & ~same_bytes],
        }

    def _where_first(self, times: Aligned) -> Numbers:
        """The rows at which one side has got there and the other has not."""
        differs = times.a != times.b
        found: Numbers = self._row_of_pair[np.minimum(times.a, times.b)[differs]]
        return found

    def first_of(self, rows_of_kinds: list[Numbers]) -> Difference | None:
        rows = np.concatenate(rows_of_kinds)
        if not len(rows):
            return None
        index = int(rows.min())
        first = max(0, index - NUM_CONTEXT)
        shown = slice(first, index + NUM_CONTEXT + 1)
        lines = zip(self._rows.a[shown].tolist(), self._rows.b[shown].tolist())
        only_a, only_b = self._alive_on_one_side(index)
        return Difference(
            kinds=[kind for kind in DifferenceKind if index in self.rows_of[kind]],
            step=self._step(index),
            position=index - first,
            lines=[(self._a.line(x), self._b.line(y)) for x, y in lines],
            alive_only_a=self._a.largest(only_a),
            alive_only_b=self._b.largest(only_b),
            num_alive_only_a=len(only_a),
            num_alive_only_b=len(only_b),
        )

    def _alive_on_one_side(self, index: int) -> tuple[Numbers, Numbers]:
        """The tensors that both traces allocated before this row and only one of them has freed."""
        before = self._row_of_pair < index
        row_at = np.append(self._row_of_pair, NEVER)
        freed_a, freed_b = (
            row_at[np.minimum(deaths[before], len(row_at) - 1)] <= index for deaths in self._deaths
        )
        pairs = Aligned(self._pairs.a[before], self._pairs.b[before])
        return pairs.a[freed_b & ~freed_a], pairs.b[freed_a & ~freed_b]

    def _step(self, row: int) -> int:
        index = int(self._rows.a[row])
        if index != ABSENT:
            return bisect(self._a.steps_after, index)
        return bisect(self._b.steps_after, int(self._rows.b[row]))


class _Times:
    """How many pairs there are among the first n items of one side. After the last pair it is
    NEVER."""

    def __init__(self, num_items: int, paired: Numbers) -> None:
        is_paired = np.zeros(num_items + 1, np.int64)
        is_paired[paired + 1] = 1
        counts = np.cumsum(is_paired)
        self._times = np.append(np.where(counts < len(paired), counts, NEVER), NEVER)

    def at(self, num_items: Numbers) -> Numbers:
        return self._times[np.minimum(num_items, len(self._times) - 1)]


def _ops(a: Items, b: Items, rows: Aligned, op_names: list[str]) -> list[OpDifference]:
    """Operators whose allocations or bytes differ, largest difference first. Pairs that are the
    same count under one name."""
    ops_a, ops_b = a.ops.copy(), b.ops.copy()
    is_pair = (rows.a != ABSENT) & (rows.b != ABSENT)
    i, j = rows.a[is_pair], rows.b[is_pair]
    is_same = same(a, i, b, j)
    i, j = i[is_same], j[is_same]
    x, y = a.ops[i], b.ops[j]
    is_workspace = (x == WORKSPACE) | (y == WORKSPACE)
    ops_a[i] = ops_b[j] = np.where(is_workspace, WORKSPACE, np.where(x == UNKNOWN, y, x))
    sums = [_sums(ops, items.num_bytes, len(op_names)) for ops, items in ((ops_a, a), (ops_b, b))]
    found = [
        OpDifference(op=op, count_a=count_a, bytes_a=bytes_a, count_b=count_b, bytes_b=bytes_b)
        for op, (count_a, bytes_a), (count_b, bytes_b) in zip(op_names, *sums, strict=True)
        if (count_a, bytes_a) != (count_b, bytes_b)
    ]
    return sorted(
        found, key=lambda o: (-abs(o.bytes_a - o.bytes_b), -abs(o.count_a - o.count_b), o.op)
    )


def _sums(ops: Numbers, num_bytes: Numbers, num_ops: int) -> list[tuple[int, int]]:
    """How many allocations each operator has, and their bytes."""
    total_bytes = np.zeros(num_ops, np.int64)
    np.add.at(total_bytes, ops, num_bytes)
    counts = np.bincount(ops, minlength=num_ops)
    return list(zip(counts.tolist(), total_bytes.tolist()))
