"""All sequence lengths of one GPU in one process: for each its batch, and what was seen on the way. The worker's part of `vramcast plan`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from vramcast.errors import WorkloadError
from vramcast.forecast.forecast import Budget, forecast
from vramcast.forecast.lengths import LARGEST_BATCH, LengthSearch, TokenLaw
from vramcast.forecast.search import accumulation
from vramcast.simulate.accumulating import accumulating
from vramcast.tracing.simulated import Trace
from vramcast.units import format_bytes

STEPS = 3
MOVED = {"batch_size": "plan", "seq_len": "--seq-lens"}


class Planned:
    def __init__(
        self,
        request: dict[str, Any],
        session: Any,
        function: Callable[..., Any],
        knobs: dict[str, Any],
        budget: Budget,
    ) -> None:
        given = {**request["knobs"], **request["knobs_text"]}
        for knob, by in MOVED.items():
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
        self._session, self._function, self._knobs, self._budget = session, function, knobs, budget
        self._workload, self._asked = request["workload"], request["plan"]
        self._limit = int((1 - self._asked["safety"]) * budget.capacity_bytes)
        self._law: TokenLaw | None = None
        self.limits: set[str] = set(budget.limits())

    def run(self, tell: Callable[[Any], None]) -> list[dict[str, Any]]:
        stages = []
        for seq_len in self._asked["seq_lens"]:
            stages.append(self._stage(seq_len))
            tell({"seq_len": seq_len})
        return stages

    def _stage(self, seq_len: int) -> dict[str, Any]:
        wanted = (
            None
            if self._asked["tokens_per_step"] is None
            else self._asked["tokens_per_step"] // seq_len
        )
        plain = self._search(seq_len, self._function, wanted or LARGEST_BATCH)
        largest, failing = plain.run(seq_len, self._law, confirm=self._asked["confirm"])
        self._law = plain.law(seq_len) or self._law
        if not self._asked["confirm"]:
            return {"seq_len": seq_len, "largest_batch": largest}
        batch_size, used = largest, plain
        if wanted is not None and largest is not None and largest < wanted:
            used = self._search(seq_len, accumulating(self._function), wanted)
            batch_size = self._part(wanted, largest, used)
        return {
            "seq_len": seq_len,
            "batch_size": batch_size,
            "accumulation_steps": wanted // batch_size if wanted and batch_size else 1,
            "largest_batch": largest,
            "first_failing_batch": failing,
            "plain": None if batch_size is None else asdict(plain.simulate(batch_size)),
            "used": None
            if batch_size is None
            else asdict(used.simulate(batch_size)),  # gradients accumulate where they do
            "points": [asdict(point) for point in plain.points.values()],
            "smallest": self._smallest(seq_len) if batch_size is None else None,
            "also": [
                asdict(plain.simulate(size)) for size in self._asked["also"].get(str(seq_len), [])
            ],
        }

    def _part(self, wanted: int, largest: int, accumulated: LengthSearch) -> int | None:
        """The largest divisor that fits while gradients accumulate: they are there during the forward pass too, so it takes more."""
        while parts := accumulation(wanted, largest):
            if accumulated.simulate(parts[0]).peak_reserved_bytes <= self._limit:
                return parts[0]
            largest = parts[0] - 1
        return None

    def _search(self, seq_len: int, function: Callable[..., Any], most: int) -> LengthSearch:
        return LengthSearch(
            lambda size: self._trace(function, seq_len, size), self._budget, self._limit, most=most
        )

    def _trace(
        self, function: Callable[..., Any], seq_len: int, batch_size: int, **options: Any
    ) -> Trace:
        try:
            knobs = {**self._knobs, "seq_len": seq_len, "batch_size": batch_size}
            trace: Trace = self._session.run(
                function, knobs, **{"steps": STEPS, "locate": False, **options}
            )
        except WorkloadError as error:  # the sizes are ours, not the user's: say which they were
            where = f"This was seq_len={seq_len} with batch_size={batch_size}. Leave out of --seq-lens what the model does not take."
            raise WorkloadError(error.message, f"{error.advice} {where}".strip()) from None
        self.limits.update(trace.notes)
        return trace

    def _smallest(self, seq_len: int) -> dict[str, Any]:
        """What is in the way where not even one sample fits."""
        trace = self._trace(self._function, seq_len, 1, locate=True)
        parameters = sum(
            size
            for size, category in zip(trace.sizes, trace.categories, strict=True)
            if category == "parameters"
        )
        if parameters > self._limit:
            raise _too_small(parameters, self._limit, self._workload)
        found = forecast(trace, self._budget, workload=self._workload, knobs={}, seconds=0.0)
        return {
            "peak_reserved_bytes": found.peak_reserved_bytes,
            "largest_tensors": [asdict(t) for t in found.largest_tensors[:3]],
        }


def _too_small(parameters: int, limit: int, workload: str) -> WorkloadError:
    return WorkloadError(
        f"The parameters of {workload} alone take {format_bytes(parameters)}, and the plan may use {format_bytes(limit)}: "
        f"{format_bytes(parameters - limit)} are missing before the first activation.",
        "A GPU with more memory or a larger --memory, a smaller model, or weights of half the width (in the zoo precision=bf16) would help; "
        "gradients and optimizer state come on top.",
    )
