"""Long series made short enough to draw, with their extremes kept."""

import itertools
from collections.abc import Iterable
from typing import Any


def downsample(values: Any, most: int, keep: Iterable[int] = ()) -> list[int]:
    """Indices of at most `most` values: the lowest and highest of every stretch, both ends, and
    `keep`.

    A mean would hide the peaks. The values are a list of numbers, or an array.
    """
    if len(values) <= most:
        return list(range(len(values)))
    kept = {0, len(values) - 1, *keep}
    num_stretches = max(1, (most - len(kept)) // 2)
    bounds = [len(values) * number // num_stretches for number in range(num_stretches + 1)]
    for begin, end in itertools.pairwise(bounds):
        kept |= _extremes(values, begin, end)
    return sorted(kept)


def _extremes(values: Any, begin: int, end: int) -> set[int]:
    if hasattr(values, "argmin"):  # millions of values are arrays
        part = values[begin:end]
        return {begin + int(part.argmin()), begin + int(part.argmax())}
    return {find(range(begin, end), key=values.__getitem__) for find in (min, max)}
