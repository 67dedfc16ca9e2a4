"""Many sizes from few traces: where two traces have the same events, every size in between is known by interpolation.

The sizes in a trace are affine in the batch size, up to rounding; what is not (a kernel that takes another path from some size on) changes
the events, and there the trace is made again in the middle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from vramcast.tracing.simulated import Trace

MAX_TRACES = 12


def line_up(a: Trace, b: Trace) -> bool:
    return a.events == b.events and len(a.sizes) == len(b.sizes)


def between(low: int, a: Trace, high: int, b: Trace, size: int) -> list[int]:
    """Allocation sizes at `size`, from the traces at `low` and `high`."""
    part, whole = size - low, high - low
    return [x + -(-(y - x) * part // whole) for x, y in zip(a.sizes, b.sizes, strict=True)]


class Interpolated:
    """Traces at some sizes, and at any size between two that line up; simulates where they do not."""

    def __init__(self, trace_at: Callable[[int], Trace]) -> None:
        self._trace_at = trace_at
        self.traces: dict[int, Trace] = {}

    def simulate(self, size: int) -> Trace:
        if size not in self.traces:
            self.traces[size] = self._trace_at(size)
        return self.traces[size]

    def at(self, size: int) -> tuple[Trace, list[int], bool]:
        """(a trace with its events, its allocation sizes, whether it was itself simulated)."""
        low = max((s for s in self.traces if s < size), default=None)
        high = min((s for s in self.traces if s > size), default=None)
        if (
            size not in self.traces
            and low is not None
            and high is not None
            and line_up(self.traces[low], self.traces[high])
        ):
            return (
                self.traces[low],
                between(low, self.traces[low], high, self.traces[high], size),
                False,
            )
        trace = self.simulate(size)
        return trace, trace.sizes, True

    def refine(self, wanted: Sequence[int]) -> None:
        """Halve the range of these sorted sizes until its ends line up."""
        first, last = self.simulate(wanted[0]), self.simulate(wanted[-1])
        if len(wanted) < 3 or len(self.traces) >= MAX_TRACES or line_up(first, last):
            return
        middle = (len(wanted) - 1) // 2
        self.simulate(wanted[middle])
        self.refine(wanted[: middle + 1])
        self.refine(wanted[middle:])


def over_sizes(
    sizes: Sequence[int], trace_at: Callable[[int], Trace]
) -> Iterator[tuple[int, Trace, list[int], bool]]:
    """For every size: (size, a trace with its events, its allocation sizes, whether it was itself simulated)."""
    wanted = sorted(set(sizes))
    curve = Interpolated(trace_at)
    curve.refine(wanted)
    for size in wanted:
        yield size, *curve.at(size)
