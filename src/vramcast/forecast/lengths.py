"""The largest batch at one sequence length after the other, each found with two or three simulations. No torch.

What one length shows about bytes a token is where the search at the next one begins. Between and a little beyond two simulated sizes whose
traces line up, memory is known by interpolation; the answer itself is always simulated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from vramcast.forecast.forecast import Budget, batch_size_point
from vramcast.forecast.interpolate import between, line_up
from vramcast.forecast.search import settle
from vramcast.records.prediction import BatchSizePoint
from vramcast.tracing.simulated import Trace

LARGEST_BATCH = 1 << 20
FIRST_TOKENS = 4096  # where the search begins at the first length
BEFORE_THE_GUESS = 0.8  # the first size simulated lies below the guess: far enough from the answer for a slope, of memory and of time
FARTHEST = 8  # times larger or smaller than the last size that was looked at
APART = (
    0.1  # the logarithm of the factor between two sizes from which their difference shows a slope
)
NEAR = 0.02  # of a size: from here on the search goes on with interpolated sizes
ROUNDS = 8
ENOUGH = 1 << 62  # bytes: a capacity that is never reached


@dataclass(frozen=True)
class TokenLaw:
    """bytes = intercept + slope x tokens: what one length teaches the next."""

    intercept_bytes: float
    bytes_per_token: float

    def tokens_within(self, limit_bytes: int) -> float:
        return max(0.0, (limit_bytes - self.intercept_bytes) / self.bytes_per_token)


class LengthSearch:
    """The largest batch size at one length whose reserved memory stays within a limit, the allocator's cache never emptied."""

    def __init__(
        self,
        trace_at: Callable[[int], Trace],
        budget: Budget,
        limit_bytes: int,
        *,
        most: int = LARGEST_BATCH,
    ) -> None:
        self._trace_at, self._limit, self._most = trace_at, limit_bytes, most
        # with enough memory the replay shows what is reserved where nothing has to be given back: sizes that need that are not planned
        self._budget = replace(budget, memory_bytes=ENOUGH)
        self._traces: dict[int, Trace] = {}
        self.points: dict[int, BatchSizePoint] = {}  # simulated ones
        self._interpolated: dict[int, int] = {}

    def run(
        self, seq_len: int, law: TokenLaw | None, *, confirm: bool = True
    ) -> tuple[int | None, int | None]:
        """(largest that fits, next that does not); None where there is none. Not confirmed, the answer may be an interpolated one."""
        size = self._approach(seq_len, law)
        failing: int | None = size + 1 if size < self._most else None
        for _ in range(ROUNDS):
            self._interpolated.clear()  # what was simulated since tells more
            largest, failing = settle(self._fits, size, failing, step=1, limit=self._most)
            if largest is None or largest in self.points or not confirm:
                return largest, failing
            self.simulate(largest)
            size = largest
            failing = size + 1 if size < self._most else None
        # sizes that depend on data do not settle: the largest that was itself seen to fit
        return max(
            (s for s, p in self.points.items() if p.peak_reserved_bytes <= self._limit),
            default=None,
        ), failing

    def law(self, seq_len: int) -> TokenLaw | None:
        near = min(self.points.values(), key=lambda p: abs(p.peak_reserved_bytes - self._limit))
        slope = self._slope_at(near)
        if slope is None or slope <= 0:
            return None
        return TokenLaw(near.peak_reserved_bytes - slope * near.batch_size, slope / seq_len)

    def simulate(self, size: int) -> BatchSizePoint:
        if size not in self.points:
            self._traces[size] = trace = self._trace_at(size)
            self.points[size] = batch_size_point(
                size, trace, trace.sizes, self._budget, simulated=True
            )
        return self.points[size]

    def _approach(self, seq_len: int, law: TokenLaw | None) -> int:
        """A size near the edge, by steps along the slope."""
        tokens = FIRST_TOKENS if law is None else BEFORE_THE_GUESS * law.tokens_within(self._limit)
        size = self._bounded(int(tokens // seq_len))
        for _ in range(ROUNDS):
            point = self.simulate(size)
            slope = self._slope_at(point)
            following = self._following(
                point, law.bytes_per_token * seq_len if slope is None and law is not None else slope
            )
            if following in self.points or abs(following - size) <= NEAR * size:
                return following
            size = following
        return size

    def _slope_at(self, point: BatchSizePoint) -> float | None:
        """Bytes a sample, from the nearest simulated size that is far enough away: nearer ones differ by what the allocator rounds."""
        others = [p for p in self.points.values() if p.batch_size != point.batch_size]
        if not others:
            return None
        distances = {p.batch_size: abs(math.log(p.batch_size / point.batch_size)) for p in others}
        far = [p for p in others if distances[p.batch_size] >= APART]
        other = (
            min(far, key=lambda p: distances[p.batch_size])
            if far
            else max(others, key=lambda p: distances[p.batch_size])
        )
        return (point.peak_reserved_bytes - other.peak_reserved_bytes) / (
            point.batch_size - other.batch_size
        )

    def _following(self, point: BatchSizePoint, slope: float | None) -> int:
        size, reserved = point.batch_size, point.peak_reserved_bytes
        if (
            slope is None and reserved <= self._limit
        ):  # as if nothing were constant: that never overshoots
            return self._bounded(max(2 * size, size * self._limit // reserved))
        if slope is None or slope <= 0:  # or a peak that does not move with the batch
            return self._bounded(FARTHEST * size if reserved <= self._limit else size // FARTHEST)
        return self._bounded(
            max(
                size // FARTHEST,
                min(FARTHEST * size, size + int((self._limit - reserved) // slope)),
            )
        )

    def _fits(self, size: int) -> bool:
        return self._reserved(size) <= self._limit

    def _reserved(self, size: int) -> int:
        if (
            size in self.points or size == 1
        ):  # that not even one fits is never said of an interpolated one
            return self.simulate(size).peak_reserved_bytes
        if size not in self._interpolated:
            pair = self._pair_for(size)
            if pair is None:
                return self.simulate(size).peak_reserved_bytes
            low, high = pair
            sizes = between(low, self._traces[low], high, self._traces[high], size)
            point = batch_size_point(size, self._traces[low], sizes, self._budget, simulated=False)
            self._interpolated[size] = point.peak_reserved_bytes
        return self._interpolated[size]

    def _pair_for(self, size: int) -> tuple[int, int] | None:
        """Two simulated sizes that say what this one takes: around it, or next to it and at least as far apart as it is away."""
        below, above = (
            sorted(s for s in self._traces if s < size)[-2:],
            sorted(s for s in self._traces if s > size)[:2],
        )
        pairs = (
            [(below[-1], above[0])]
            if below and above
            else [(p[0], p[1]) for p in (below, above) if len(p) == 2]
        )
        for low, high in pairs:
            beyond = max(size - high, low - size, 0)
            if beyond <= high - low and line_up(self._traces[low], self._traces[high]):
                return low, high
        return None

    def _bounded(self, size: int) -> int:
        return max(1, min(size, self._most))
