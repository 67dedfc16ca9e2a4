"""The worker's part of `vramcast plan`: the batch of every sequence length on one GPU."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from vramcast.errors import WorkloadError
from vramcast.forecast.forecast import forecast
from vramcast.forecast.largest import BatchSearch
from vramcast.forecast.search import accumulation
from vramcast.simulate.accumulating import accumulating
from vramcast.simulate.job import Job
from vramcast.tracing.trace import SimulatedRun
from vramcast.units import format_bytes


def plan_lengths(job: Job, tell: Callable[[Any], None]) -> dict[str, Any]:
    job.vary("batch_size", "plan")
    lengths = job.request["plan"]["seq_lens"]
    has_lengths = lengths is not None or isinstance(job.knobs.get("seq_len"), int)
    if lengths is None:
        # A sample of a model without lengths counts as one token.
        lengths = [job.knobs["seq_len"] if has_lengths else 1]
    else:
        job.vary("seq_len", "--seq-lens")
    planner, stages = LengthPlanner(job, has_lengths), []
    for seq_len in lengths:
        stages.append(planner.stage(seq_len))
        tell({"seq_len": seq_len})
    answer = {"stages": stages, "has_lengths": has_lengths, "limit_bytes": planner.limit_bytes}
    return {**answer, "knobs": job.shown_knobs(), **job.facts()}


class LengthPlanner:
    def __init__(self, job: Job, has_lengths: bool) -> None:
        self._job, self._has_lengths = job, has_lengths
        self._tokens_per_step = job.request["plan"]["tokens_per_step"]
        self._budget = job.budget.within(job.request["safety"])
        self.limit_bytes = self._budget.capacity_bytes or 0
        # At the length before this one: the tokens of the largest batch, and of the chosen one.
        self._last_num_tokens: tuple[int, int] | None = None

    def stage(self, seq_len: int) -> dict[str, Any]:
        wanted = None if self._tokens_per_step is None else self._tokens_per_step // seq_len
        if wanted is not None and wanted * seq_len != self._tokens_per_step:
            raise WorkloadError(
                f"{self._tokens_per_step} tokens a step do not make whole sequences of "
                f"length {seq_len}, which the workload has.",
                f"Give --tokens-per-step {max(1, wanted) * seq_len}, or --seq-lens.",
            )
        search = self._search(seq_len, self._job.function, wanted)
        guesses = [tokens // seq_len for tokens in self._last_num_tokens or ()]
        largest, failing = search.run(*guesses)
        batch_size, used = None, search
        if largest is not None:
            batch_size = search.without_retries(largest)
            self._last_num_tokens = largest * seq_len, batch_size * seq_len
            if wanted is not None and batch_size < wanted:
                used = self._search(seq_len, accumulating(self._job.function), wanted)
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
        def trace_at(batch_size: int) -> SimulatedRun:
            return self._simulate(seq_len, batch_size, function=function)

        return BatchSearch(trace_at, self._budget, maximum=maximum)

    def _simulate(self, seq_len: int, batch_size: int, **options: Any) -> SimulatedRun:
        advice = "Leave lengths that the model does not take out of --seq-lens."
        sizes = {"batch_size": batch_size}
        if self._has_lengths:
            sizes = {"seq_len": seq_len, **sizes}
        return self._job.simulate(sizes, advice=advice, **options)

    def _smallest(self, seq_len: int) -> dict[str, Any]:
        """What takes the memory of a single sample, where not even that fits."""
        trace, workload = self._simulate(seq_len, 1, locate=True), self._job.workload
        codes, words = trace.categories
        is_parameter = np.array([word == "parameters" for word in words], bool)[codes]
        parameters = int(trace.sizes[is_parameter].sum())
        if parameters > self.limit_bytes and self._job.request["plan"]["is_only_gpu"]:
            raise _too_small(parameters, self.limit_bytes, workload)
        found = forecast(trace, self._budget, workload=workload, knobs={})
        return {
            "peak_reserved_bytes": found.peak_reserved_bytes,
            "largest_tensors": [asdict(t) for t in found.largest_tensors[:3]],
        }


def _largest_part(wanted: int, largest: int, accumulating_search: BatchSearch) -> int | None:
    """The largest divisor of `wanted` that fits while gradients accumulate. This takes more memory
    than a plain step: gradients are there during the forward pass too."""
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
