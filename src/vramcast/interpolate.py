"""Many sizes from few traces: where two traces have the same events, every size in between is known by interpolation.

The sizes in a trace are affine in the batch size, up to rounding; what is not (a kernel that takes another path from some size on) changes
the events, and there the trace is made again in the middle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from vramcast.simulate.trace import Trace

MAX_TRACES = 12


def line_up(a: Trace, b: Trace) -> bool:
    return a.events == b.events and len(a.sizes) == len(b.sizes)


def between(low: int, a: Trace, high: int, b: Trace, size: int) -> list[int]:
    """Allocation sizes at `size`, from the traces at `low` and `high`."""
    part, whole = size - low, high - low
    return [x + -(-(y - x) * part // whole) for x, y in zip(a.sizes, b.sizes, strict=True)]


def over_sizes(sizes: Sequence[int], trace_at: Callable[[int], Trace]) -> Iterator[tuple[int, Trace, list[int], bool]]:
    """For every size: (size, a trace with its events, its allocation sizes, whether it was itself simulated)."""
    wanted = sorted(set(sizes))
    traces = {wanted[0]: trace_at(wanted[0]), wanted[-1]: trace_at(wanted[-1])}
    _refine(wanted, 0, len(wanted) - 1, traces, trace_at)
    anchors = sorted(traces)
    for size in wanted:
        if size in traces:
            yield size, traces[size], traces[size].sizes, True
            continue
        high = next(a for a in anchors if a > size)
        low = anchors[anchors.index(high) - 1]
        if line_up(traces[low], traces[high]):
            yield size, traces[low], between(low, traces[low], high, traces[high], size), False
        else:
            trace = trace_at(size)
            yield size, trace, trace.sizes, True


def _refine(wanted: list[int], i: int, j: int, traces: dict[int, Trace], trace_at: Callable[[int], Trace]) -> None:
    """Halve the range until its ends line up."""
    if j - i < 2 or len(traces) >= MAX_TRACES or line_up(traces[wanted[i]], traces[wanted[j]]):
        return
    middle = (i + j) // 2
    traces[wanted[middle]] = trace_at(wanted[middle])
    _refine(wanted, i, middle, traces, trace_at)
    _refine(wanted, middle, j, traces, trace_at)
