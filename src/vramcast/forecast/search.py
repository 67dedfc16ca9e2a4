"""The rules of a search for the largest size that fits, with few sizes tried."""

import math
from collections.abc import Callable, Collection, Mapping


def crossing(known: Mapping[int, int], limit_bytes: int) -> float | None:
    """The size at which memory reaches a limit, by the line through the two nearest known sizes.
    These must differ in memory, which grows by whole segments. None where it does not grow."""
    sizes = sorted(known)
    high = next((size for size in sizes[1:] if known[size] > limit_bytes), sizes[-1])
    low = max((size for size in sizes if size < high and known[size] < known[high]), default=None)
    if low is None:
        return None
    return low + (limit_bytes - known[low]) * (high - low) / (known[high] - known[low])


def settle(
    fits: Callable[[int], bool], largest: int, failing: int | None, *, step: int, limit: int | None
) -> tuple[int | None, int | None]:
    """The largest size that fits and the next that fails, starting from a guess of both. Where the
    guess is wrong the edge moves by ever larger steps, then by bisection."""
    good, bad, jump = largest, failing, step
    while not fits(good):
        if good <= step:
            return None, good
        good, bad, jump = max(step, good - jump), good, 2 * jump
    # If the edge has moved below the guess, `bad` is known to fail.
    while good >= largest and bad is not None and fits(bad):
        above = bad + jump if limit is None else min(bad + jump, limit)
        good, bad, jump = bad, (above if above > bad else None), 2 * jump
    while bad is not None and bad - good > step:
        middle = good + (bad - good) // step // 2 * step
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good, bad


def ladder(largest: int, step: int) -> list[int]:
    """step, twice that, four times that, ... below the largest."""
    return [step << power for power in range(largest.bit_length()) if step << power < largest]


def spread(candidates: Collection[int], known: Collection[int], count: int) -> list[int]:
    """`count` candidates. Each is the farthest, as a factor, from all sizes known or chosen by
    then."""
    chosen: list[int] = []

    def distance(size: int) -> float:
        return min((abs(math.log(size / other)) for other in (*known, *chosen)), default=0.0)

    while len(chosen) < count and (left := sorted({*candidates} - {*known, *chosen})):
        chosen.append(max(left, key=distance))
    return chosen


def accumulation(global_batch: int, largest: int, step: int = 1) -> tuple[int, int] | None:
    """The micro-batch and the number of passes. The micro-batch is the largest divisor of the
    global batch up to `largest` that is a multiple of `step`."""
    for size in range(min(largest, global_batch) // step * step, 0, -step):
        if global_batch % size == 0:
            return size, global_batch // size
    return None
