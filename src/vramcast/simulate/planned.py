"""The worker's part of `vramcast plan`: the batch of every sequence length on one GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from vramcast.errors import WorkloadError
from vramcast.forecast.forecast import Budget, forecast
from vramcast.forecast.largest import BatchSearch
from vramcast.forecast.search import accumulation
from vramcast.simulate.accumulating import accumulating
from vramcast.tracing.trace import SimulatedRun
from vramcast.units import format_bytes
from vramcast.workload import together

STEPS = 3
# The knobs a plan sets itself, and what sets them.
PLANNED_KNOBS = {"batch_size": "plan", "seq_len": "--seq-lens"}


class LengthPlanner:
    def __init__(
        self,
        request: dict[str, Any],
        session: Any,
        function: Callable[..., Any],
        knobs: dict[str, Any],
        budget: Budget,
    ) -> None:
        given = together(request)
        for knob, by in PLANNED_KNOBS.items():
            if knob not in knobs:
                raise WorkloadError(
                    f"{request['workload']} has no knob {knob}.",
                    f"Give the function a keyword argument {knob}.",
                )
            if knob in given:
                raise WorkloadError(
                    f"{knob} was given, but it is what {by} moves.", "Leave it out."
                )
        assert budget.capacity_bytes is not None
        self._session, self._function, self._knobs = session, function, knobs
        self._workload, self._asked = request["workload"], request["plan"]
        self._limit_bytes = int((1 - self._asked["safety"]) * budget.capacity_bytes)
        self._budget = replace(budget, memory_bytes=self._limit_bytes)
        self._last_num_tokens: int | None = None  # of the largest batch at the length before
        self.limits: set[str] = set(budget.limits())

    def run(self, tell: Callable[[Any], None]) -> list[dict[str, Any]]:
        stages = []
        for seq_len in self._asked["seq_lens"]:
            stages.append(self._stage(seq_len))
            tell({"seq_len": seq_len})
        return stages

    def _stage(self, seq_len: int) -> dict[str, Any]:
        per_step = self._asked["tokens_per_step"]
        wanted = None if per_step is None else per_step // seq_len
        search = self._search(seq_len, self._function, wanted)
        guess = None if self._last_num_tokens is None else self._last_num_tokens // seq_len
        largest, failing = search.run(guess)
        batch_size, used = None, search
        if largest is not None:
            batch_size = search.without_retries(largest)
            self._last_num_tokens = batch_size * seq_len
            if wanted is not None and batch_size < wanted:
                used = self._search(seq_len, accumulating(self._function), wanted)
                batch_size = _largest_part(wanted, batch_size, used)
        stage = {
            "seq_len": seq_len,
            "batch_size": batch_size,
            "largest_batch": largest,
            "first_failing_batch": failing,
        }
        if batch_size is None:
            return {**stage, "smallest": self._smallest(seq_len), "points": []}
        return {
            **stage,
            "accumulation_steps": wanted // batch_size if wanted else 1,
            "plain": asdict(search.simulate(batch_size)),
            "used": asdict(used.simulate(batch_size)),
            "points": [asdict(point) for point in search.simulated_points()],
        }

    def _search(
        self, seq_len: int, function: Callable[..., Any], maximum: int | None
    ) -> BatchSearch:
        return BatchSearch(
            lambda size: self._trace(function, seq_len, size), self._budget, maximum=maximum
        )

    def _trace(
        self, function: Callable[..., Any], seq_len: int, batch_size: int, **options: Any
    ) -> SimulatedRun:
        knobs = {**self._knobs, "seq_len": seq_len, "batch_size": batch_size}
        options = {"steps": STEPS, "locate": False, **options}
        try:
            trace: SimulatedRun = self._session.run(function, knobs, **options)
        except WorkloadError as error:
            where = (
                f"This was seq_len={seq_len} with batch_size={batch_size}. "
                "Leave out of --seq-lens what the model does not take."
            )
            raise WorkloadError(error.message, f"{error.advice} {where}".strip()) from None
        self.limits.update(trace.notes)
        return trace

    def _smallest(self, seq_len: int) -> dict[str, Any]:
        """What takes the memory where not even one sample fits."""
        trace = self._trace(self._function, seq_len, 1, locate=True)
        parameters = sum(
            size
            for size, category in zip(trace.sizes, trace.categories, strict=True)
            if category == "parameters"
        )
        if parameters > self._limit_bytes:
            raise _too_small(parameters, self._limit_bytes, self._workload)
        found = forecast(trace, self._budget, workload=self._workload, knobs={}, seconds=0.0)
        return {
            "peak_reserved_bytes": found.peak_reserved_bytes,
            "largest_tensors": [asdict(t) for t in found.largest_tensors[:3]],
        }


def _largest_part(wanted: int, largest: int, accumulating_search: BatchSearch) -> int | None:
    """The largest divisor that fits while gradients accumulate, which takes more memory: they are
    there during the forward pass too."""
    while parts := accumulation(wanted, largest):
        point = accumulating_search.simulate(parts[0])
        if point.fits and not point.num_alloc_retries:
            return parts[0]
        largest = parts[0] - 1
    return None


def _too_small(parameter_bytes: int, limit_bytes: int, workload: str) -> WorkloadError:
    return WorkloadError(
        f"The parameters of {workload} alone take {format_bytes(parameter_bytes)}, and the plan "
        f"may use {format_bytes(limit_bytes)}: {format_bytes(parameter_bytes - limit_bytes)} are "
        "missing before the first activation.",
        "A GPU with more memory or a larger --memory, a smaller model, or weights of half the "
        "width (in the zoo precision=bf16) would help; gradients and optimizer state come on top.",
    )
