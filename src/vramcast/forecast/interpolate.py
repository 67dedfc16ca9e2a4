"""Many batch sizes from few simulations, by interpolating between traces with the same events.

Sizes are affine in the batch size, up to rounding. A kernel that takes another path from some batch
size on changes the events; there, a size in the middle is simulated too.
"""

from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vramcast.tracing.trace import SimulatedRun

MAX_TRACES = 12
# How far outside two simulated sizes their line may be used, as a fraction of the size.
MAX_OUTSIDE = 0.25
MAX_PRODUCT = 1 << 62
Sizes = NDArray[np.int64]


class Interpolation:
    def __init__(self, trace_at: Callable[[int], SimulatedRun]) -> None:
        self._trace_at = trace_at
        self.traces: dict[int, SimulatedRun] = {}

    def simulate(self, size: int) -> SimulatedRun:
        if size not in self.traces:
            self.traces[size] = self._trace_at(size)
        return self.traces[size]

    def at(self, size: int) -> tuple[SimulatedRun, Sizes, bool]:
        """A trace with the events of this size, the sizes of its allocations, and whether it was
        itself simulated."""
        pair = None if size in self.traces else self._pair_for(size)
        if pair is None:
            trace = self.simulate(size)
            return trace, trace.sizes, True
        return self.traces[pair[0]], self._between(*pair, size), False

    def refine(self, wanted: Sequence[int]) -> None:
        """Simulates sizes between these until neighbours have the same events."""
        first, last = self.simulate(wanted[0]), self.simulate(wanted[-1])
        if len(wanted) < 3 or len(self.traces) >= MAX_TRACES or _same_events(first, last):
            return
        middle = (len(wanted) - 1) // 2
        self.simulate(wanted[middle])
        self.refine(wanted[: middle + 1])
        self.refine(wanted[middle:])

    def _pair_for(self, size: int) -> tuple[int, int] | None:
        """Two simulated sizes with the same events: one on each side of this size, or both near it
        on one side."""
        sizes = sorted(self.traces)
        index = bisect(sizes, size)
        below, above = sizes[:index][::-1], sizes[index:]
        pairs = list(zip(below[:1], above[:1]))
        pairs += [(other, below[0]) for other in below[1:]]
        pairs += [(above[0], other) for other in above[1:]]
        return next((pair for pair in pairs if self._tells(*pair, size)), None)

    def _tells(self, low: int, high: int, size: int) -> bool:
        outside = max(size - high, low - size, 0)
        near = min(high - low, MAX_OUTSIDE * min(size, high))
        return outside <= near and _same_events(self.traces[low], self.traces[high])

    def _between(self, low: int, high: int, size: int) -> Sizes:
        part, whole = size - low, high - low
        first = self.traces[low].sizes
        more: NDArray[Any] = self.traces[high].sizes - first
        if int(np.abs(more).max(initial=0)) * abs(part) >= MAX_PRODUCT:
            more = more.astype(object)  # Python's integers have no limit
        return first + (-(-more * part // whole)).astype(np.int64)


def _same_events(one: SimulatedRun, other: SimulatedRun) -> bool:
    return np.array_equal(one.events, other.events)


def over_sizes(
    sizes: Sequence[int], trace_at: Callable[[int], SimulatedRun]
) -> Iterator[tuple[int, SimulatedRun, Sizes, bool]]:
    """Every size, with the results of `Interpolation.at`."""
    wanted = sorted(set(sizes))
    interpolation = Interpolation(trace_at)
    interpolation.refine(wanted)
    for size in wanted:
        yield size, *interpolation.at(size)
