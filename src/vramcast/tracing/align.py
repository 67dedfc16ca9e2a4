"""Lines up the allocations of two traces.

Equal allocations are paired in order. Where the traces differ, places where three sizes or six
operators in a row agree are candidates for going on. The one whose next allocations agree best is
taken.
"""

from bisect import bisect_left
from collections.abc import Iterator
from math import log2
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

HORIZON = 16  # how many allocations a candidate is judged by
# How many allocations ahead are searched: few where the traces already agree here.
SHORT_REACH, LONG_REACH = 64, 2048
SIZES_IN_A_ROW, OPS_IN_A_ROW = 3, 6
CANDIDATES = 6  # so many of each kind are judged
SLACK = 16  # candidates may leave out so many more, if they agree better
MIN_SCORE = 8.0
# up to so many pairs of items are compared to find equal ones between two meeting points
SMALL_STRETCH = 4096
# Items compared at once: more, the longer the traces have agreed.
FIRST_BLOCK, LARGEST_BLOCK = 64, 1 << 16
# special operators by number; larger numbers are the traces' own
UNKNOWN, EMPTIED, WORKSPACE = range(3)
SPECIAL_OPS = (
    "",
    "empty_cache",
    # the simulator's name; a measured trace names the product that took the workspace
    "cublas_workspace",
)
ABSENT = -1
HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, and its bits look random
Numbers = NDArray[np.int64]


class Items:
    """Allocations in order, and emptied caches, which have the op EMPTIED."""

    def __init__(self, ops: Numbers, num_bytes: Numbers) -> None:
        self.ops = np.ascontiguousarray(ops, np.int64)
        self.num_bytes = np.ascontiguousarray(num_bytes, np.int64)
        # to read single values: a memoryview is much faster than an array
        self.op_at, self.bytes_at = self.ops.data, self.num_bytes.data

    def __len__(self) -> int:
        return len(self.ops)


class Aligned(NamedTuple):
    """All items of both traces in order, as indices; ABSENT where one trace has none.

    A pair is equal, or differs in bytes or op, not in both.
    """

    a: Numbers
    b: Numbers


def same(a: Items, i: Numbers, b: Items, j: Numbers) -> NDArray[np.bool_]:
    """For each pair, whether both are the same."""
    x, y = a.ops[i], b.ops[j]
    is_other_name = (x == UNKNOWN) | (y == UNKNOWN) | (x == WORKSPACE) | (y == WORKSPACE)
    is_same_op = (x == y) | (is_other_name & (x != EMPTIED) & (y != EMPTIED))
    found: NDArray[np.bool_] = is_same_op & (a.num_bytes[i] == b.num_bytes[j])
    return found


def align(a: Items, b: Items) -> Aligned:
    walk = _Walk(a, b)
    i = j = 0
    while i < len(a) and j < len(b):
        num_same = walk.num_same(i, j)
        if num_same:
            walk.pair(i, j, num_same)
            i, j = i + num_same, j + num_same
            continue
        skip_a, skip_b = walk.meet_again(i, j)
        if skip_a == skip_b == 0:
            walk.pair(i, j, 1)
            skip_a = skip_b = 1
        else:
            walk.stretch(i, j, i + skip_a, j + skip_b)
        i, j = i + skip_a, j + skip_b
    walk.apart(i, len(a), j, len(b))
    return walk.aligned()


class _Walk:
    """Compares single items, and keeps what has been lined up so far."""

    def __init__(self, a: Items, b: Items) -> None:
        self._a, self._b = a, b
        self._search: _Search | None = None  # two equal traces need no search
        # the first index of a and of b (or ABSENT), and the number of items in the run
        self._runs: list[list[int]] = []

    def aligned(self) -> Aligned:
        starts_a, starts_b, lengths = np.array(self._runs or [[0, 0, 0]], np.int64).T
        ends = np.cumsum(lengths)
        place = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)
        columns = (
            np.where(first == ABSENT, ABSENT, first + place)
            for first in (np.repeat(starts_a, lengths), np.repeat(starts_b, lengths))
        )
        return Aligned(*columns)

    def pair(self, i: int, j: int, length: int) -> None:
        if self._runs:
            last = self._runs[-1]
            if ABSENT not in last and (last[0] + last[2], last[1] + last[2]) == (i, j):
                last[2] += length
                return
        self._runs.append([i, j, length])

    def apart(self, i: int, end_a: int, j: int, end_b: int) -> None:
        if i < end_a:
            self._runs.append([i, ABSENT, end_a - i])
        if j < end_b:
            self._runs.append([ABSENT, j, end_b - j])

    def num_same(self, i: int, j: int) -> int:
        """How many pairs from here on are the same."""
        a, b = self._a, self._b
        left = min(len(a) - i, len(b) - j)
        # one by one at first: where every size differs, runs of equal items are short
        for offset in range(min(left, HORIZON)):
            if not _same(a, i + offset, b, j + offset):
                return offset
        found, block = min(left, HORIZON), FIRST_BLOCK
        while found < left:
            end = min(found + block, left)
            places = np.arange(found, end)
            differs = ~same(a, i + places, b, j + places)
            if differs.any():
                return found + int(differs.argmax())
            found, block = end, min(2 * block, LARGEST_BLOCK)
        return found

    def meet_again(self, i: int, j: int) -> tuple[int, int]:
        self._search = self._search or _Search(self._a, self._b)
        return self._search.meet_again(i, j)

    def stretch(self, i: int, j: int, end_a: int, end_b: int) -> None:
        """Lines up a stretch. If it is equally long in both, items that are alike are paired;
        otherwise items that are the same."""
        a, b = self._a, self._b
        if end_a - i == end_b - j:
            for x, y in zip(range(i, end_a), range(j, end_b)):
                if _alike(a, x, b, y):
                    self.pair(x, y, 1)
                else:
                    self.apart(x, x + 1, y, y + 1)
            return
        if (end_a - i) * (end_b - j) <= SMALL_STRETCH:
            for y in range(j, end_b):
                partner = next((x for x in range(i, end_a) if _same(a, x, b, y)), None)
                if partner is not None:
                    self.apart(i, partner, j, y)
                    self.pair(partner, y, 1)
                    i, j = partner + 1, y + 1
        self.apart(i, end_a, j, end_b)


class _Search:
    def __init__(self, a: Items, b: Items) -> None:
        self._a, self._b = a, b
        self._trusted_shift = self._trusted_before = 0
        self._indices = [
            _Index(a.num_bytes, b.num_bytes, SIZES_IN_A_ROW),
            _Index(a.ops, b.ops, OPS_IN_A_ROW),
        ]

    def meet_again(self, i: int, j: int) -> tuple[int, int]:
        """How many items to leave out on each side. None are left out if both are one allocation
        that changed."""
        alike = _alike(self._a, i, self._b, j)
        if alike and i - j == self._trusted_shift and i < self._trusted_before:
            return 0, 0
        here = self._score(i, j) if alike else 0.0
        best, choice = max(here, MIN_SCORE), (0, 0) if alike else None
        reach = SHORT_REACH if here >= HORIZON else LONG_REACH
        for skip_a, skip_b in self._candidates(i, j, reach):
            if skip_a == skip_b == 0:
                continue  # judged above
            score = self._score(i + skip_a, j + skip_b) - log2(1 + skip_a + skip_b)
            if score > best:
                best, choice = score, (skip_a, skip_b)
        if choice is None:
            # nothing found in reach: go on after a stretch that is different
            return min(SHORT_REACH, len(self._a) - i), min(SHORT_REACH, len(self._b) - j)
        if choice == (0, 0) and here >= HORIZON:
            # only sizes changed, and the next search would find the same
            self._trusted_shift, self._trusted_before = i - j, i + HORIZON // 2
        return choice

    def _candidates(self, i: int, j: int, reach: int) -> Iterator[tuple[int, int]]:
        yield 1, 1
        if len(self._a) - i <= reach and len(self._b) - j <= reach:
            yield len(self._a) - i, len(self._b) - j
        for index in self._indices:
            yield from index.nearest(i, j, reach)

    def _score(self, i: int, j: int) -> float:
        """Over the next pairs, a point for equal bytes and one for an equal op. If both traces end,
        the ends count as equal."""
        a, b = self._a, self._b
        left = min(HORIZON, len(a) - i, len(b) - j)
        sizes = zip(a.bytes_at[i : i + left], b.bytes_at[j : j + left])
        ops = zip(a.op_at[i : i + left], b.op_at[j : j + left])
        points = 0
        for (size_a, size_b), (x, y) in zip(sizes, ops):
            is_same_size = size_a == size_b
            points += is_same_size + (x == y or _same_op(x, y, is_same_size))
        both_end = len(a) - i == len(b) - j == left
        return points + 2.0 * (HORIZON - left) * both_end


class _Index:
    """The places in b of runs of keys of a."""

    def __init__(self, a: Numbers, b: Numbers, length: int) -> None:
        both = np.concatenate((_hashed_runs(a, length), _hashed_runs(b, length)))
        _, numbers = np.unique(both, return_inverse=True)
        self._of_a = numbers[: len(a)].data
        of_b = numbers[len(a) :]
        counts = np.bincount(of_b, minlength=numbers.max(initial=0) + 1)
        # the places of run n in b, in order, are those from first[n] to first[n + 1]
        self._first = np.concatenate(([0], np.cumsum(counts))).data
        self._places = np.argsort(of_b, kind="stable").data

    def nearest(self, i: int, j: int, reach: int) -> list[tuple[int, int]]:
        """The few candidates that leave out least."""
        of_a, first, places = self._of_a, self._first, self._places
        found: list[tuple[int, int]] = []
        least = reach
        for skip_a in range(min(reach, len(of_a) - i)):
            if skip_a > least:
                break
            run = of_a[i + skip_a]
            end = first[run + 1]
            at = bisect_left(places, j, first[run], end)
            if at < end and skip_a + places[at] - j <= least:
                found.append((skip_a, places[at] - j))
                least = min(least, sum(found[-1]) + SLACK)
        return sorted(found, key=sum)[:CANDIDATES]


def _hashed_runs(keys: Numbers, length: int) -> NDArray[np.uint64]:
    """A hash of the run that begins at each key. Runs at the end are padded, so that ends match
    ends. A collision only costs time, because every candidate is judged."""
    padded = np.concatenate((keys, np.full(length - 1, ABSENT, np.int64))).view(np.uint64)
    found = np.zeros(len(keys), np.uint64)
    for offset in range(length):
        found = found * HASH_FACTOR + padded[offset : offset + len(keys)]
    return found


def _same(a: Items, i: int, b: Items, j: int) -> bool:
    if a.bytes_at[i] != b.bytes_at[j]:
        return False
    x, y = a.op_at[i], b.op_at[j]
    return x == y or _same_op(x, y, True)


def _same_op(x: int, y: int, is_same_size: bool) -> bool:
    """Whether two ops that are not equal count as the same."""
    if x == EMPTIED or y == EMPTIED:
        return False
    return UNKNOWN in (x, y) or (is_same_size and WORKSPACE in (x, y))


def _alike(a: Items, i: int, b: Items, j: int) -> bool:
    x, y = a.op_at[i], b.op_at[j]
    if x == y:
        return True
    is_same_size = a.bytes_at[i] == b.bytes_at[j]
    return EMPTIED not in (x, y) and (is_same_size or _same_op(x, y, is_same_size))
