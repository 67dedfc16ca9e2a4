"""The stages of a plan: batch, time and reasons at each length, and the curriculum they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vramcast.forecast.laws import Point, fit
from vramcast.records.base import convert
from vramcast.records.fit import MemoryFit
from vramcast.records.plan import Stage
from vramcast.records.prediction import BatchSizePoint, LargeTensor
from vramcast.units import format_bytes

# From this gain in throughput on, memory for twice the batch would be worth having.
WORTH_IT = 1.05
SECONDS_PER_HOUR = 3600.0
# As many runs as the law can have terms, and one to tell whether they are right.
MIN_RUNS_FOR_LAW = 4
WHERE = "The worker's answer"
SPLIT = (
    "every length gets the same number of tokens, rounded up to whole steps; "
    "the surplus is taken from the next length"
)
TIME_GOES_TO = {
    "compute": "arithmetic",
    "bandwidth": "the GPU's memory bandwidth",
    "launch": "launching kernels",
}


def make_stage(
    found: Mapping[str, Any],
    *,
    capacity_bytes: int,
    limit_bytes: int,
    tokens_per_step: int | None,
    tokens: int,
) -> Stage:
    """A stage from what the worker found at one length."""
    if found["batch_size"] is None:
        return _stage_that_does_not_fit(found, capacity_bytes, limit_bytes)
    seq_len, batch, passes = found["seq_len"], found["batch_size"], found["accumulation_steps"]
    plain, used = (convert(found[name], BatchSizePoint, WHERE) for name in ("plain", "used"))
    points = convert(found["points"], list[BatchSizePoint], WHERE)
    seconds = step_seconds(plain, used, passes)
    per_step = batch * passes * seq_len
    rate = None if seconds is None else per_step / seconds
    limited = tokens_per_step is None and found["first_failing_batch"] is not None or passes > 1
    gain = gain_of_doubling(plain, points)
    return Stage(
        seq_len=seq_len,
        fits=True,
        batch_size=batch,
        accumulation_steps=passes,
        tokens_per_batch=batch * seq_len,
        tokens_per_step=per_step,
        largest_batch=found["largest_batch"],
        first_failing_batch=found["first_failing_batch"],
        peak_allocated_bytes=used.peak_allocated_bytes,
        peak_reserved_bytes=used.peak_reserved_bytes,
        share_of_memory=used.peak_reserved_bytes / capacity_bytes,
        binds=what_binds(plain, limited, gain),
        step_seconds=seconds,
        tokens_per_second=rate,
        samples_per_second=None if rate is None else rate / seq_len,
        hours_to_budget=None if rate is None else tokens / rate / SECONDS_PER_HOUR,
        why="; ".join(
            [
                _why_this_batch(found, limit_bytes, tokens_per_step),
                *(["the allocator empties its cache to fit it"] if used.num_alloc_retries else []),
                *_why_this_fast(plain, limited, gain),
            ]
        ),
    )


def in_sequence(stages: Sequence[Stage], tokens: int) -> list[Stage]:
    """The stages one after the other, with their steps.

    After the n-th of N, at least n/N of the tokens are done and less than a step more.
    """
    done, step, result = 0, 0, []
    for number, stage in enumerate(stages, 1):
        assert stage.tokens_per_step is not None
        due = -(-tokens * number // len(stages))
        steps = max(0, -(-(due - done) // stage.tokens_per_step))
        seconds = None if stage.step_seconds is None else steps * stage.step_seconds
        result.append(
            replace(
                stage,
                start_step=step,
                steps=steps,
                tokens=steps * stage.tokens_per_step,
                hours=None if seconds is None else seconds / SECONDS_PER_HOUR,
            )
        )
        step, done = step + steps, done + steps * stage.tokens_per_step
    return result


def totals(stages: Sequence[Stage]) -> dict[str, Any]:
    """None where a stage does not fit, hours also where one has no predicted time."""
    if not all(stage.fits for stage in stages):
        return {"total_steps": None, "total_tokens": None, "total_hours": None}
    hours = [stage.hours for stage in stages if stage.hours is not None]
    return {
        "total_steps": sum(stage.steps or 0 for stage in stages),
        "total_tokens": sum(stage.tokens or 0 for stage in stages),
        "total_hours": sum(hours) if len(hours) == len(stages) else None,
    }


def step_seconds(plain: BatchSizePoint, accumulating: BatchSizePoint, passes: int) -> float | None:
    """Of one optimizer step. `accumulating` has two passes and one update: what it takes longer
    than `plain` is the time of every further pass."""
    if passes == 1 or plain.step_seconds is None or accumulating.step_seconds is None:
        return plain.step_seconds if passes == 1 else None
    return plain.step_seconds + (passes - 1) * max(
        0.0, accumulating.step_seconds - plain.step_seconds
    )


def gain_of_doubling(point: BatchSizePoint, points: Sequence[BatchSizePoint]) -> float | None:
    """By which factor twice the batch gives more samples a second, by a line through two times."""
    others = [p for p in points if p.step_seconds is not None and p.batch_size != point.batch_size]
    if point.step_seconds is None or not others:
        return None
    other = max(others, key=lambda p: abs(p.batch_size - point.batch_size))
    assert other.step_seconds is not None
    slope = max(
        0.0, (point.step_seconds - other.step_seconds) / (point.batch_size - other.batch_size)
    )
    return 2 * point.step_seconds / (point.step_seconds + slope * point.batch_size)


def reserved_law(found: Sequence[Mapping[str, Any]]) -> MemoryFit | None:
    """Reserved memory by batch size and length, fitted to every size that was simulated."""
    runs = [
        Point(
            name=f"batch {point['batch_size']}, length {stage['seq_len']}",
            knobs={"batch_size": point["batch_size"], "seq_len": stage["seq_len"]},
            # The law is of what is reserved: there is nothing on top of it.
            allocated_bytes=point["peak_reserved_bytes"],
            reserved_bytes=point["peak_reserved_bytes"],
        )
        for stage in found
        for point in stage["points"]
        # Where the allocator empties its cache, what is reserved is what there is.
        if not (point["fits"] and point["num_alloc_retries"])
    ]
    return fit(runs)[0] if len(runs) >= MIN_RUNS_FOR_LAW else None


def what_binds(point: BatchSizePoint, limited_by_memory: bool, gain: float | None) -> str | None:
    """Memory, where it limits the batch and a larger one would be faster; else the step's bound."""
    if limited_by_memory and (gain is None or gain >= WORTH_IT):
        return "memory"
    return point.bound_by or None


def _why_this_batch(found: Mapping[str, Any], limit_bytes: int, tokens_per_step: int | None) -> str:
    batch, passes, failing = (
        found[name] for name in ("batch_size", "accumulation_steps", "first_failing_batch")
    )
    room = format_bytes(limit_bytes)
    if tokens_per_step is None:
        if failing is None:
            return (
                f"no larger batch than {batch} was looked at: "
                "does the memory depend on batch_size at all?"
            )
        if batch < found["largest_batch"]:
            return (
                f"{batch} is the largest batch within {room} for which the allocator never empties "
                f"its cache, which is slow; up to {found['largest_batch']} fit"
            )
        return f"{batch} is the largest batch within {room}, {failing} is not"
    samples = f"{tokens_per_step} tokens a step are {batch * passes} samples"
    if passes == 1:
        return f"{samples}: they fit into {room} at once"
    parts = f"{samples}, in {passes} passes of {batch}"
    if batch == found["largest_batch"]:
        return f"{parts}: no larger batch is within {room}"
    return f"{parts}: the largest equal part within {room} while gradients accumulate"


def _why_this_fast(point: BatchSizePoint, limited_by_memory: bool, gain: float | None) -> list[str]:
    if point.step_seconds is None:
        return []
    goes_to = TIME_GOES_TO.get(point.bound_by)
    reasons = [f"most of the time is {goes_to}"] if goes_to else []
    if not limited_by_memory or gain is None:
        return reasons
    more = f"{100 * (gain - 1):.0f} % more tokens a second"
    if gain >= WORTH_IT:
        return [*reasons, f"with the memory for twice the batch, {more}"]
    return [*reasons, f"more memory would hardly help: twice the batch, {more}"]


def _stage_that_does_not_fit(
    found: Mapping[str, Any], capacity_bytes: int, limit_bytes: int
) -> Stage:
    smallest = found["smallest"]
    needs = smallest["peak_reserved_bytes"]
    accumulating = " while gradients accumulate" if needs <= limit_bytes else ""
    way_out = ": a smaller --safety would let it" if limit_bytes < needs <= capacity_bytes else ""
    return Stage(
        seq_len=found["seq_len"],
        fits=False,
        first_failing_batch=1,
        why=f"not even one sample fits{accumulating}: needs {format_bytes(needs)}, "
        f"the plan may use {format_bytes(limit_bytes)}{way_out}",
        missing_bytes=max(0, needs - limit_bytes),
        largest_tensors=convert(smallest["largest_tensors"], list[LargeTensor], WHERE),
    )
