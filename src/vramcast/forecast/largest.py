"""The predicted largest batch size: guessed from two sizes, found on interpolated traces, its answer and the next size simulated. No torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from vramcast.errors import UsageError
from vramcast.forecast.forecast import Budget, batch_size_point
from vramcast.forecast.interpolate import Interpolated, between, line_up
from vramcast.forecast.search import Found, crossing, ladder, settle, spread
from vramcast.records.prediction import BatchSizePoint
from vramcast.tracing.simulated import Trace

LARGEST_BATCH = 1 << 20
COMFORTABLE_RATIOS = (0.92, 0.85)  # of the memory there is: recommended, conservative
FAR = 256  # how many times the smallest the second size is that is simulated
NEAR = 0.25  # of a simulated size: how far the line through two of them is trusted outside of them
LOOK_BEYOND = 3  # sizes past the first that fails: fragmentation can let one of them fit
# sizes simulated only for their time; a search is to take no longer than three predictions, and a long trace takes long
MOST_FOR_TIME, EVENTS_FOR_TIME = 4, 50_000


class Search:
    def __init__(
        self, trace_at: Callable[[int], Trace], budget: Budget, *, step: int, maximum: int | None
    ) -> None:
        if budget.capacity_bytes is None:
            raise UsageError(
                "How much memory there is, is not known.", "Give --gpu NAME or --memory SIZE."
            )
        self._curve = Interpolated(trace_at)
        self._budget, self._capacity, self._step = budget, budget.capacity_bytes, step
        self._limit = (
            maximum // step * step if maximum is not None else LARGEST_BATCH // step * step
        )
        if maximum is None and self._limit < step:
            raise UsageError(
                f"--multiple-of {step} is above {LARGEST_BATCH}, the largest batch size looked at.",
                "Give a smaller --multiple-of.",
            )
        if self._limit < step:
            raise UsageError(
                f"--max {maximum} is below the smallest batch size, {step}.",
                "Give a larger --max, or a smaller --multiple-of.",
            )
        self._points: dict[
            int, BatchSizePoint
        ] = {}  # in the order they were asked for; what was interpolated may be simulated later

    def run(self) -> dict[str, Any]:
        if not self._point(self._step, simulated=True).fits:
            return self._result(Found(None, self._step))
        self._point(
            min(self._limit, self._step * FAR), simulated=True
        )  # a large size takes no longer to simulate than a small one
        self._point(self._size_at(self._capacity))  # nearer to the edge the line is truer
        good = self._size_at(self._capacity)
        good, bad = self._settle(
            good, good + self._step if good < self._limit else None, simulated=False
        )
        good, bad = self._settle(*self._lowest_edge(good, bad), simulated=False)
        good, bad = self._settle(good, bad, simulated=True)
        self._look_for_the_fastest(good)
        for ratio in COMFORTABLE_RATIOS:
            self._within(ratio, good)
        return self._result(Found(good, bad, self._beyond(bad)))

    def _size_at(self, limit_bytes: float) -> int:
        """Where the line through the nearest known sizes reserves so much."""
        size = crossing(
            {size: point.peak_reserved_bytes for size, point in self._points.items()},
            int(limit_bytes),
        )
        whole = self._limit if size is None else int(max(0.0, min(size, self._limit)))
        return max(self._step, whole // self._step * self._step)

    def _settle(self, good: int, bad: int | None, *, simulated: bool) -> tuple[int, int | None]:
        """Where the guess is wrong the edge moves until it holds."""
        largest, failing = settle(
            lambda size: self._point(size, simulated=simulated).fits,
            good,
            bad,
            step=self._step,
            limit=self._limit,
        )
        return self._step if largest is None else largest, failing  # the smallest does fit

    def _lowest_edge(self, good: int, bad: int | None) -> tuple[int, int | None]:
        """Where sizes below the edge were seen to fail, the answer is below them: what fits above fits by the luck of fragmentation."""
        failing = min(
            (size for size, point in self._points.items() if size < good and not point.fits),
            default=None,
        )
        if failing is None:
            return good, bad
        return max(
            size for size, point in self._points.items() if size < failing and point.fits
        ), failing

    def _beyond(self, failing: int | None) -> list[int]:
        """Sizes past the edge that fit."""
        if failing is None:
            return []
        for size in range(
            failing + self._step,
            min(failing + LOOK_BEYOND * self._step, self._limit) + 1,
            self._step,
        ):
            self._point(size)
        return sorted(size for size, point in self._points.items() if size > failing and point.fits)

    def _point(self, size: int, *, simulated: bool = False) -> BatchSizePoint:
        known = self._points.get(size)
        if known is not None and (known.simulated or not simulated):
            return known
        if simulated:
            self._curve.simulate(size)
        trace, sizes, was_simulated = self._near(size) or self._curve.at(size)
        point = batch_size_point(size, trace, sizes, self._budget, simulated=was_simulated)
        self._points[size] = point
        return point

    def _near(self, size: int) -> tuple[Trace, list[int], bool] | None:
        """By the line through two simulated sizes that line up, also a little outside of them."""
        traces = self._curve.traces
        nearest = min(traces, key=lambda other: abs(other - size), default=None)
        if nearest is None or size in traces or abs(size - nearest) > NEAR * nearest:
            return None
        partners = [
            other
            for other in traces
            if other != nearest and line_up(traces[other], traces[nearest])
        ]
        if not partners:
            return None
        low, high = sorted((nearest, max(partners, key=lambda other: abs(other - nearest))))
        return traces[low], between(low, traces[low], high, traces[high], size), False

    def _within(self, ratio: float, largest: int) -> None:
        """Look for the largest size that takes at most this fraction of what there is."""
        most = ratio * self._capacity
        size = min(largest, self._size_at(most))
        following = size + self._step if size < largest else None
        settle(
            lambda size: self._point(size).peak_reserved_bytes <= most,
            size,
            following,
            step=self._step,
            limit=largest,
        )

    def _look_for_the_fastest(self, largest: int) -> None:
        """A few smaller sizes are simulated for their time alone; only where it is predicted at all."""
        if self._points[largest].step_seconds is None:
            return
        known = [
            size for size, point in self._points.items() if point.simulated and size <= largest
        ]
        count = min(
            MOST_FOR_TIME, EVENTS_FOR_TIME // max(1, len(self._curve.traces[largest].events))
        )
        for size in spread(ladder(largest, self._step), known, count):
            self._point(size, simulated=True)

    def _result(self, found: Found) -> dict[str, Any]:
        return {
            "largest": found.largest,
            "first_failing": found.first_failing,
            "fits_beyond": found.fits_beyond,
            "attempts": [asdict(point) for point in self._points.values()],
        }
