"""Long series made short enough to draw, with their extremes kept."""

import itertools
from collections.abc import Iterable, Sequence


def downsample(values: Sequence[float], most: int, keep: Iterable[int] = ()) -> list[int]:
    """Indices of at most `most` values: the lowest and highest of every stretch, both ends, `keep`.

    A mean would hide the peaks.
    """
    if len(values) <= most:
        return list(range(len(values)))
    kept = {0, len(values) - 1, *keep}
    num_stretches = max(1, (most - len(kept)) // 2)
    bounds = [len(values) * number // num_stretches for number in range(num_stretches + 1)]
    for stretch in itertools.starmap(range, itertools.pairwise(bounds)):
        kept |= {find(stretch, key=values.__getitem__) for find in (min, max)}
    return sorted(kept)
