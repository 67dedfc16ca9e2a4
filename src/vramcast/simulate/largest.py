"""The predicted largest batch size: bisection over interpolated traces, its answer and the next size simulated themselves. No torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from vramcast.errors import UsageError
from vramcast.forecast import Budget, batch_size_point
from vramcast.interpolate import Interpolated
from vramcast.records import BatchSizePoint
from vramcast.search import Found, largest_fitting, memory_law, settle
from vramcast.simulate.trace import Trace

LARGEST_BATCH = 1 << 20
COMFORTABLE_RATIOS = (0.92, 0.85)  # of the memory there is: recommended, conservative
FAR = 256  # how many times the smallest the second size is that is simulated
LOOKS = 4


class Search:
    def __init__(self, trace_at: Callable[[int], Trace], budget: Budget, *, step: int, maximum: int | None) -> None:
        if budget.capacity_bytes is None:
            raise UsageError("How much memory there is, is not known.", "Give --gpu NAME or --memory SIZE.")
        self._curve = Interpolated(trace_at)
        self._budget, self._step = budget, step
        self._limit = maximum // step * step if maximum is not None else LARGEST_BATCH // step * step
        if maximum is None and self._limit < step:
            raise UsageError(f"--multiple-of {step} is above {LARGEST_BATCH}, the largest batch size looked at.", "Give a smaller --multiple-of.")
        if self._limit < step:
            raise UsageError(f"--max {maximum} is below the smallest batch size, {step}.", "Give a larger --max, or a smaller --multiple-of.")
        self._points: dict[int, BatchSizePoint] = {}  # in the order they were asked for; what was interpolated may be simulated later

    def run(self) -> dict[str, Any]:
        low = self._step
        if not self._point(low, simulated=True).fits:
            return self._result(Found(None, low))
        found = largest_fitting(lambda size: self._point(size).fits, low=low, high=self._upper(), step=self._step)
        return self._result(self._confirm(found))

    def _upper(self) -> int:
        """A size that does not fit, or the limit. A large size takes no longer to simulate than a small one."""
        bound = min(self._limit, self._step * FAR)
        while bound < self._limit and self._point(bound, simulated=True).fits:
            bound = min(FAR * bound, self._limit)
        return bound

    def _confirm(self, found: Found) -> Found:
        """What was interpolated is simulated; where that says otherwise the edge moves until it holds."""
        if found.largest is None:
            return found

        def fits(size: int) -> bool:
            return self._point(size, simulated=True).fits

        largest, failing = settle(fits, found.largest, found.first_failing, step=self._step, limit=self._limit)
        return Found(largest, failing, [size for size in found.fits_beyond if failing is not None and size > failing])

    def _point(self, size: int, *, simulated: bool = False) -> BatchSizePoint:
        known = self._points.get(size)
        if known is not None and (known.simulated or not simulated):
            return known
        if simulated:
            self._curve.simulate(size)
        trace, sizes, was_simulated = self._curve.at(size)
        point = batch_size_point(size, trace.events, sizes, self._budget, simulated=was_simulated)
        self._points[size] = point
        return point

    def _within(self, ratio: float, largest: int) -> None:
        """Look for the largest size that takes at most this fraction of what there is: where the law says, and just below."""
        assert self._budget.capacity_bytes is not None
        most = ratio * self._budget.capacity_bytes
        law = memory_law([(size, point.peak_reserved_bytes) for size, point in self._points.items() if point.fits])
        size = largest if law is None or law.bytes_per_sample <= 0 else int((most - law.intercept_bytes) / law.bytes_per_sample)
        size = max(self._step, min(largest, size) // self._step * self._step)
        for _ in range(LOOKS):
            if size <= self._step or self._point(size).peak_reserved_bytes <= most:
                return
            size -= self._step
        # reserved memory moves in steps of 2 MiB and more: with small samples the law is off by many sizes
        low = max((s for s, point in self._points.items() if s < size and point.peak_reserved_bytes <= most), default=self._step)
        largest_fitting(lambda size: self._point(size).peak_reserved_bytes <= most, low=low, high=size, step=self._step)

    def _result(self, found: Found) -> dict[str, Any]:
        if found.largest is not None:
            for ratio in COMFORTABLE_RATIOS:
                self._within(ratio, found.largest)
        return {
            "largest": found.largest,
            "first_failing": found.first_failing,
            "fits_beyond": found.fits_beyond,
            "attempts": [asdict(point) for point in self._points.values()],
        }
