"""The search for the largest batch size that fits, for max-batch and for every length of a plan.

Memory at a size comes from a simulation, or from interpolation between two simulated sizes with
the same events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from vramcast.errors import UsageError
from vramcast.forecast.budget import Budget
from vramcast.forecast.forecast import batch_size_point
from vramcast.forecast.interpolate import Interpolation
from vramcast.forecast.search import crossing, ladder, settle, spread
from vramcast.records.prediction import BatchSizePoint
from vramcast.tracing.trace import SimulatedRun

LARGEST_BATCH = 1 << 20
# Fractions of the memory for the recommended and the conservative batch.
COMFORTABLE_RATIOS = (0.92, 0.85)
# Without a guess, the second size simulated is so many times the smallest.
SECOND_SIZE_FACTOR = 256
# Another size looked at is this part of the first estimate: far enough from the answer to show how
# memory and time grow, and near enough to have the same events.
BELOW_GUESS = 0.9
MAX_ROUNDS = 8
# Sizes looked at on both sides of the edge: with fragmentation one may fail and a larger one fit.
NUM_BELOW, NUM_BEYOND = 8, 3
# Sizes simulated only for their time. Long traces take long: there are fewer sizes then.
MAX_SIZES_FOR_TIME, MAX_EVENTS_FOR_TIME = 4, 50_000


class Edge(NamedTuple):
    largest: int | None
    """None where not even the smallest size fits."""
    first_failing: int | None
    """The next size; None where the search ended at its maximum."""


class BatchSearch:
    """Finds the largest multiple of `step`, up to `maximum`, that fits within a budget."""

    def __init__(
        self,
        trace_at: Callable[[int], SimulatedRun],
        budget: Budget,
        *,
        step: int = 1,
        maximum: int | None = None,
    ) -> None:
        assert budget.capacity_bytes is not None
        self._budget, self._capacity_bytes = budget, budget.capacity_bytes
        self._step, self._maximum = step, _largest_multiple(step, maximum)
        self._interpolation = Interpolation(trace_at)
        self.points: dict[int, BatchSizePoint] = {}

    def run(self, guess: int | None = None, below: int | None = None) -> Edge:
        """The edge, with both its sides simulated.

        With a good guess few sizes are simulated. `below` is one that is wanted anyway.
        """
        if guess is None and not self.simulate(self._step).fits:
            return Edge(None, self._step)
        edge = self._estimate(guess, below)
        for _ in range(MAX_ROUNDS):
            edge = self._settled(edge)
            sizes = [size for size in edge if size is not None]
            if all(size in self._interpolation.traces for size in sizes):
                lower = self._below_failures(edge)
                if lower == edge:
                    return edge
                edge = lower
            for size in sizes:
                self.simulate(size)
        # Where memory depends on the data, interpolated and simulated sizes never agree.
        return self._settled(edge, simulated=True)

    def without_retries(self, largest: int) -> int:
        """The largest size up to this one for which the allocator never has to empty its cache.

        Where there is none, `largest` itself. The answer is simulated.
        """
        if not self._point(largest).num_alloc_retries:
            return self.simulate(largest).batch_size
        size = min(largest, self._size_at(self._capacity_bytes))
        found, _ = self._settle_within(size, largest, lambda p: p.fits and not p.num_alloc_retries)
        return self.simulate(found or largest).batch_size

    def simulate(self, size: int) -> BatchSizePoint:
        return self._point(size, simulated=True)

    def simulated_points(self) -> list[BatchSizePoint]:
        return [point for point in self.points.values() if point.simulated]

    def look_around(self, edge: Edge) -> list[int]:
        """Adds points for speed and for comfortable sizes; returns the sizes past the edge that
        fit."""
        if edge.largest is None:
            return []
        self._simulate_for_time(edge.largest)
        self.without_retries(edge.largest)
        for ratio in COMFORTABLE_RATIOS:
            self._look_within(int(ratio * self._capacity_bytes), edge.largest)
        failing = edge.first_failing
        if failing is None:
            return []
        for number in range(1, NUM_BEYOND + 1):
            if failing + number * self._step <= self._maximum:
                self._point(failing + number * self._step)
        return sorted(size for size, point in self.points.items() if size > failing and point.fits)

    def _estimate(self, guess: int | None, below: int | None) -> Edge:
        """By the line through the known sizes next to the edge."""
        if guess is None:
            self.simulate(self._bounded(SECOND_SIZE_FACTOR * self._step))
            guess = self._size_at(self._capacity_bytes)
        if below is None or below >= guess:
            below = int(BELOW_GUESS * guess)
        below = self._bounded(below)
        self._point(below)
        size = self._bounded(max(guess, below + self._step))
        for _ in range(MAX_ROUNDS):
            point = self._point(size)
            # Only just below the edge does the allocator empty its cache to fit a size.
            if point.fits and point.num_alloc_retries:
                break
            size = self._size_at(self._capacity_bytes)
            if size in self.points:
                break
        return self._edge_at(size)

    def _size_at(self, limit_bytes: int) -> int:
        """Where the line through the nearest known sizes reserves so much."""
        # Where the allocator empties its cache, what is reserved is not what the size needs.
        known = {
            size: point.peak_reserved_bytes
            for size, point in self.points.items()
            if not (point.fits and point.num_alloc_retries)
        }
        size = crossing(known, limit_bytes)
        return self._bounded(SECOND_SIZE_FACTOR * max(known) if size is None else size)

    def _bounded(self, size: float) -> int:
        """The multiple of the step at or below a size, within the range searched."""
        whole = int(max(0.0, min(size, self._maximum)))
        return max(self._step, whole // self._step * self._step)

    def _edge_at(self, size: int) -> Edge:
        return Edge(size, size + self._step if size < self._maximum else None)

    def _settled(self, edge: Edge, *, simulated: bool = False) -> Edge:
        """Moves the edge until its largest size fits and the next one does not."""
        if edge.largest is None:
            return edge

        def fits(size: int) -> bool:
            return self._point(size, simulated=simulated).fits

        return Edge(*settle(fits, *edge, step=self._step, limit=self._maximum))

    def _below_failures(self, edge: Edge) -> Edge:
        """The edge below every size seen to fail: larger ones that fit do so by chance."""
        if edge.largest is None:
            return edge
        for number in range(1, NUM_BELOW + 1):
            if edge.largest - number * self._step >= self._step:
                self._point(edge.largest - number * self._step)
        failing = [s for s, p in self.points.items() if s < edge.largest and not p.fits]
        if not failing:
            return edge
        fitting = [s for s, p in self.points.items() if s < min(failing) and p.fits]
        return Edge(max(fitting, default=None), min(failing))

    def _point(self, size: int, *, simulated: bool = False) -> BatchSizePoint:
        known = self.points.get(size)
        # It is never said of an interpolated size that not even the smallest fits.
        simulated = simulated or size == self._step
        if known is not None and (known.simulated or not simulated):
            return known
        if simulated:
            self._interpolation.simulate(size)
        trace, sizes, was_simulated = self._interpolation.at(size)
        if was_simulated:
            # What was interpolated before may be wrong: a new simulation tells more.
            self.points = {known: p for known, p in self.points.items() if p.simulated}
        point = batch_size_point(size, trace, sizes, self._budget, simulated=was_simulated)
        self.points[size] = point
        return point

    def _look_within(self, limit_bytes: int, largest: int) -> None:
        """Looks for the largest size that reserves at most so much."""
        size = min(largest, self._size_at(limit_bytes))
        self._settle_within(size, largest, lambda p: p.peak_reserved_bytes <= limit_bytes)

    def _settle_within(
        self, size: int, largest: int, accepts: Callable[[BatchSizePoint], bool]
    ) -> tuple[int | None, int | None]:
        return settle(
            lambda size: accepts(self._point(size)),
            size,
            size + self._step if size < largest else None,
            step=self._step,
            limit=largest,
        )

    def _simulate_for_time(self, largest: int) -> None:
        """A few smaller sizes, where times are predicted at all."""
        if self.points[largest].step_seconds is None:
            return
        known = [p.batch_size for p in self.simulated_points() if p.batch_size <= largest]
        num_events = len(self._interpolation.traces[largest].events)
        count = min(MAX_SIZES_FOR_TIME, MAX_EVENTS_FOR_TIME // max(1, num_events))
        for size in spread(ladder(largest, self._step), known, count):
            self.simulate(size)


def _largest_multiple(step: int, maximum: int | None) -> int:
    largest = (LARGEST_BATCH if maximum is None else maximum) // step * step
    if largest >= step:
        return largest
    if maximum is None:
        raise UsageError(
            f"--multiple-of {step} is above {LARGEST_BATCH}, the largest batch size looked at.",
            "Give a smaller --multiple-of.",
        )
    raise UsageError(
        f"--max {maximum} is below the smallest batch size, {step}.",
        "Give a larger --max, or a smaller --multiple-of.",
    )
