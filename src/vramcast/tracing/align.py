"""Lines up the allocations of two traces.

Equal ones are paired in order. Where the traces part, they may meet again where three sizes or six
operators in a row agree; the place whose next allocations agree best wins. So neither a missing
allocation nor a change of every size makes everything behind it look different.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from math import log2
from typing import NamedTuple

HORIZON = 16  # allocations by which a candidate is judged
# Allocations ahead that are searched: few where the traces agree here already.
SHORT_REACH, LONG_REACH = 64, 2048
SIZES_IN_A_ROW, OPS_IN_A_ROW = 3, 6
CANDIDATES = 6  # judged, of each kind
SLACK = 16  # so much more may be left out where it agrees better
MIN_SCORE = 8.0
SMALL_STRETCH = 4096  # pairs of items compared to find what is the same in between
# The simulator's name, where a measured trace names the product that took it.
WORKSPACE = "cublas_workspace"
UNKNOWN = ""
EMPTIED = "empty_cache"
ABSENT = -1


class Item(NamedTuple):
    """An allocation, or, with op EMPTIED, the emptying of the cache."""

    op: str
    num_bytes: int


class Aligned(NamedTuple):
    """Indices; ABSENT where one trace has nothing."""

    a: int
    b: int


def same(x: Item, y: Item) -> bool:
    return x.num_bytes == y.num_bytes and same_op(x, y)


def same_op(x: Item, y: Item) -> bool:
    ops = x.op, y.op
    if x.op == y.op or EMPTIED in ops:
        return x.op == y.op
    return UNKNOWN in ops or (x.num_bytes == y.num_bytes and WORKSPACE in ops)


def align(a: Sequence[Item], b: Sequence[Item]) -> list[Aligned]:
    """Every item of both, in order; a pair is equal, or differs in bytes or op, not in both."""
    rows: list[Aligned] = []
    search: _Search | None = None  # two equal traces need none
    i = j = 0
    while i < len(a) and j < len(b):
        x, y = a[i], b[j]
        skip_a = skip_b = 0
        if x != y and not same(x, y):
            search = search or _Search(a, b)
            skip_a, skip_b = search.meet_again(i, j)
            rows += _stretch(a, b, i, j, skip_a, skip_b)
        if skip_a == skip_b == 0:
            rows.append(Aligned(i, j))
            skip_a = skip_b = 1
        i, j = i + skip_a, j + skip_b
    return [*rows, *_apart(i, len(a), j, len(b))]


def _stretch(
    a: Sequence[Item], b: Sequence[Item], i: int, j: int, length_a: int, length_b: int
) -> Iterator[Aligned]:
    """Equally long stretches pair what is alike, others what is the same."""
    end_a, end_b = i + length_a, j + length_b
    if length_a == length_b:
        for x, y in zip(range(i, end_a), range(j, end_b)):
            if _alike(a[x], b[y]):
                yield Aligned(x, y)
            else:
                yield from _apart(x, x + 1, y, y + 1)
        return
    if length_a * length_b <= SMALL_STRETCH:
        for y in range(j, end_b):
            partner = next((x for x in range(i, end_a) if same(a[x], b[y])), None)
            if partner is not None:
                yield from _apart(i, partner, j, y)
                yield Aligned(partner, y)
                i, j = partner + 1, y + 1
    yield from _apart(i, end_a, j, end_b)


def _apart(i: int, end_a: int, j: int, end_b: int) -> Iterator[Aligned]:
    for x in range(i, end_a):
        yield Aligned(x, ABSENT)
    for y in range(j, end_b):
        yield Aligned(ABSENT, y)


class _Search:
    def __init__(self, a: Sequence[Item], b: Sequence[Item]) -> None:
        self._a, self._b = a, b
        self._trusted_shift = self._trusted_before = 0
        self._indices = [
            _Index([item.num_bytes for item in a], [item.num_bytes for item in b], SIZES_IN_A_ROW),
            _Index([item.op for item in a], [item.op for item in b], OPS_IN_A_ROW),
        ]

    def meet_again(self, i: int, j: int) -> tuple[int, int]:
        """How many items to leave out on each side; none when both are one that changed."""
        alike = _alike(self._a[i], self._b[j])
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
            # nothing in reach: go on behind a stretch that is different
            return min(SHORT_REACH, len(self._a) - i), min(SHORT_REACH, len(self._b) - j)
        if choice == (0, 0) and here >= HORIZON:
            # only sizes changed: searching again at once would find the same
            self._trusted_shift, self._trusted_before = i - j, i + HORIZON // 2
        return choice

    def _candidates(self, i: int, j: int, reach: int) -> Iterator[tuple[int, int]]:
        yield 1, 1
        if len(self._a) - i <= reach and len(self._b) - j <= reach:
            yield len(self._a) - i, len(self._b) - j
        for index in self._indices:
            yield from index.nearest(i, j, reach)

    def _score(self, i: int, j: int) -> float:
        """Of each of the next pairs, a point for the bytes and one for the op. Ends agree."""
        left = min(HORIZON, len(self._a) - i, len(self._b) - j)
        points = 0
        for x, y in zip(self._a[i : i + left], self._b[j : j + left]):
            points += 2 if x == y else (x.num_bytes == y.num_bytes) + same_op(x, y)
        both_end = len(self._a) - i == len(self._b) - j == left
        return points + 2.0 * (HORIZON - left) * both_end


class _Index:
    """Where runs of keys of a occur in b."""

    def __init__(self, a: Sequence[Hashable], b: Sequence[Hashable], length: int) -> None:
        self._of_a = _runs(a, length)
        self._in_b: dict[tuple[Hashable, ...], list[int]] = defaultdict(list)
        for position, run in enumerate(_runs(b, length)):
            self._in_b[run].append(position)

    def nearest(self, i: int, j: int, reach: int) -> list[tuple[int, int]]:
        """The few candidates that leave out least."""
        found: list[tuple[int, int]] = []
        least = reach
        for skip_a in range(min(reach, len(self._of_a) - i)):
            if skip_a > least:
                break
            places = self._in_b.get(self._of_a[i + skip_a])
            if places is None:
                continue
            first = bisect_left(places, j)
            if first < len(places) and skip_a + places[first] - j <= least:
                found.append((skip_a, places[first] - j))
                least = min(least, sum(found[-1]) + SLACK)
        return sorted(found, key=sum)[:CANDIDATES]


def _runs(keys: Sequence[Hashable], length: int) -> list[tuple[Hashable, ...]]:
    """The run from each key on; those at the end are filled up, so that ends match ends."""
    padded = [*keys, *[None] * (length - 1)]
    return list(zip(*(padded[offset : offset + len(keys)] for offset in range(length))))


def _alike(x: Item, y: Item) -> bool:
    return same_op(x, y) or (x.num_bytes == y.num_bytes and EMPTIED not in (x.op, y.op))
