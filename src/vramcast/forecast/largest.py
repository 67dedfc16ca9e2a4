"""The search for the largest batch size that fits, for max-batch and for every length of a plan."""

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
# The fractions of memory that the recommended and the conservative batch may take.
COMFORTABLE_RATIOS = (0.92, 0.85)
# Without a guess, the second size tried is so many times the smallest. Where memory does not grow,
# the next is so many times the largest known: a smaller factor, because a huge batch may take
# minutes.
SECOND_SIZE_FACTOR, NEXT_SIZE_FACTOR = 256, 16
# A second size tried, as a fraction of the first estimate: near enough to have the same events.
BELOW_GUESS = 0.8
MAX_ROUNDS = 8
# How many sizes near the edge are tried: with fragmentation one may fail and a larger one fit.
NUM_BELOW, NUM_BEYOND = 8, 3
# Sizes simulated only for their time; fewer where traces are long.
MAX_SIZES_FOR_TIME, MAX_EVENTS_FOR_TIME = 4, 50_000


class Edge(NamedTuple):
    largest: int | None  # None where not even the smallest size fits
    first_failing: int | None  # the next size; None where the search ended at its maximum


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
        """The edge, with the sizes on both sides of it simulated. `below` is a size that is needed
        anyway."""
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
        """The largest size up to this one for which the allocator never empties its cache,
        simulated. If there is none, `largest` itself."""
        found: int | None = largest
        if self._point(largest).num_alloc_retries:
            found = self._largest_that(
                lambda point, _: point.fits and not point.num_alloc_retries,
                self._capacity_bytes,
                largest,
            )
        return self.simulate(found or largest).batch_size

    def simulate(self, size: int) -> BatchSizePoint:
        return self._point(size, simulated=True)

    def simulated_points(self) -> list[BatchSizePoint]:
        return [point for point in self.points.values() if point.simulated]

    def look_around(self, edge: Edge) -> list[int]:
        """Adds points for speed and for comfortable sizes. Returns the sizes past the edge that
        fit."""
        if edge.largest is None:
            return []
        self._simulate_for_time(edge.largest)
        self.without_retries(edge.largest)
        for ratio in COMFORTABLE_RATIOS:
            self._largest_that(
                lambda point, limit_bytes: point.peak_reserved_bytes <= limit_bytes,
                int(ratio * self._capacity_bytes),
                edge.largest,
            )
        failing = edge.first_failing or self._maximum
        beyond = range(failing + self._step, self._maximum + 1, self._step)[:NUM_BEYOND]
        return [size for size in beyond if self._point(size).fits]

    def _estimate(self, guess: int | None, below: int | None) -> Edge:
        if guess is None:
            self.simulate(self._bounded(SECOND_SIZE_FACTOR * self._step))
            guess = self._size_at(self._capacity_bytes)
        guess = self._bounded(guess)
        if below is None or below >= guess:
            below = int(BELOW_GUESS * guess)
        below = self._bounded(below)
        self._point(below)
        size = self._bounded(max(guess, below + self._step))
        for _ in range(MAX_ROUNDS):
            self._point(size)
            size = self._size_at(self._capacity_bytes)
            if size in self.points:
                break
        return Edge(size, size + self._step if size < self._maximum else None)

    def _size_at(self, limit_bytes: int) -> int:
        """The size at which the line through the nearest known sizes reaches this much reserved
        memory."""
        # Where the allocator empties its cache, the reserved memory does not show what the size
        # needs.
        known = {
            size: point.peak_reserved_bytes
            for size, point in self.points.items()
            if not (point.fits and point.num_alloc_retries)
        }
        if len(known) < 2:
            return max((s for s, point in self.points.items() if point.fits), default=self._step)
        size = crossing(known, limit_bytes)
        return self._bounded(NEXT_SIZE_FACTOR * max(known) if size is None else size)

    def _bounded(self, size: float) -> int:
        """The largest multiple of the step up to this size, within the range of the search."""
        whole = int(max(0.0, min(size, self._maximum)))
        return max(self._step, whole // self._step * self._step)

    def _settled(self, edge: Edge, *, simulated: bool = False) -> Edge:
        largest, failing = edge
        if largest is None:
            return edge

        def fits(size: int) -> bool:
            return self._point(size, simulated=simulated).fits

        return Edge(*settle(fits, largest, failing, step=self._step, limit=self._maximum))

    def _below_failures(self, edge: Edge) -> Edge:
        """The edge below every size that fails: larger ones that fit do so by chance."""
        if edge.largest is None:
            return edge
        for size in range(edge.largest - self._step, 0, -self._step)[:NUM_BELOW]:
            self._point(size)
        failing = [s for s, p in self.points.items() if s < edge.largest and not p.fits]
        if not failing:
            return edge
        next_lower = min(failing) - self._step or None
        fitting = [s for s, p in self.points.items() if s < min(failing) and p.fits]
        return Edge(max(fitting, default=next_lower), min(failing))

    def _point(self, size: int, *, simulated: bool = False) -> BatchSizePoint:
        known = self.points.get(size)
        # The smallest size is always simulated: only then can we say that nothing fits.
        simulated = simulated or size == self._step
        if known is not None and (known.simulated or not simulated):
            return known
        if simulated:
            self._interpolation.simulate(size)
        trace, sizes, was_simulated = self._interpolation.at(size)
        if was_simulated:
            # Points that were interpolated before may be wrong.
            self.points = {known: p for known, p in self.points.items() if p.simulated}
        point = batch_size_point(size, trace, sizes, self._budget, simulated=was_simulated)
        self.points[size] = point
        return point

    def _largest_that(
        self, accepts: Callable[[BatchSizePoint, int], bool], limit_bytes: int, largest: int
    ) -> int | None:
        size = min(largest, self._size_at(limit_bytes))
        return settle(
            lambda size: accepts(self._point(size), limit_bytes),
            size,
            size + self._step if size < largest else None,
            step=self._step,
            limit=largest,
        )[0]

    def _simulate_for_time(self, largest: int) -> None:
        if self.points[largest].step_seconds is None:
            return  # times are not predicted
        known = [p.batch_size for p in self.simulated_points() if p.batch_size <= largest]
        num_events = len(self._interpolation.traces[largest].events)
        count = min(MAX_SIZES_FOR_TIME, MAX_EVENTS_FOR_TIME // max(1, num_events))
        for size in spread(ladder(largest, self._step), known, count):
            self.simulate(size)


def _largest_multiple(step: int, maximum: int | None) -> int:
    if largest := (maximum or LARGEST_BATCH) // step * step:
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
