"""The stages of a plan: batch, time and reasons at each length, and the curriculum they make."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vramcast.forecast.laws import Point, fit
from vramcast.records.base import convert
from vramcast.records.fit import MemoryFit
from vramcast.records.plan import Stage
from vramcast.records.prediction import BatchSizePoint, LargeTensor
from vramcast.units import format_bytes

# From this gain in throughput on, twice the batch would be worth having.
WORTH_IT = 1.05
# One more than the law has terms, to see whether it is right.
MIN_RUNS_FOR_LAW = 4
WHERE = "The worker's answer"
SPLIT = "every length gets the same number of tokens, in whole steps"
TIME_GOES_TO = {
    "compute": "arithmetic",
    "bandwidth": "the GPU's memory bandwidth",
    "launch": "launching kernels",
}


def make_stage(
    found: Mapping[str, Any],
    capacity_bytes: int,
    limit_bytes: int,
    tokens_per_step: int | None,
    tokens: int,
) -> Stage:
    """A stage of the plan, from the worker's answer for one length."""
    if found["batch_size"] is None:
        return _stage_that_does_not_fit(found, capacity_bytes, limit_bytes)
    seq_len, batch, passes = found["seq_len"], found["batch_size"], found["accumulation_steps"]
    plain, used, *points = convert(
        [found["plain"], found["used"], *found["points"]], list[BatchSizePoint], WHERE
    )
    seconds = step_seconds(plain, used, passes)
    low, high = _bounds(plain, seconds)
    per_step = batch * passes * seq_len
    rate = per_step / seconds if seconds else None
    limited = tokens_per_step is None and found["first_failing_batch"] is not None or passes > 1
    gain = gain_of_doubling(plain, points)
    why = [_why_this_batch(found, format_bytes(limit_bytes), tokens_per_step)]
    if used.num_alloc_retries:
        why.append("the allocator empties its cache to fit it")
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
        step_seconds_low=low,
        step_seconds_high=high,
        tokens_per_second=rate,
        samples_per_second=rate / seq_len if rate else None,
        hours_to_budget=tokens / rate / 3600 if rate else None,
        why="; ".join([*why, *_why_this_fast(plain, limited, gain)]),
    )


def in_sequence(stages: Sequence[Stage], tokens: int) -> list[Stage]:
    """The stages with their numbers of steps: after the n-th of N stages, at least n/N of the
    tokens are done, and less than one step more."""
    done, step, result = 0, 0, []
    for number, stage in enumerate(stages, 1):
        assert stage.tokens_per_step is not None
        due = -(-tokens * number // len(stages))
        steps = max(0, -(-(due - done) // stage.tokens_per_step))
        here, seconds = steps * stage.tokens_per_step, stage.step_seconds
        hours = None if seconds is None else steps * seconds / 3600
        result.append(replace(stage, start_step=step, steps=steps, tokens=here, hours=hours))
        step, done = step + steps, done + here
    return result


def totals(stages: Sequence[Stage]) -> dict[str, Any]:
    """Sums over the stages. None where a stage does not fit; hours are None also where a stage has
    no predicted time."""
    found: dict[str, Any] = {}
    for name in ("steps", "tokens", "hours"):
        values = [getattr(stage, name) for stage in stages]
        found[f"total_{name}"] = None if None in values else sum(values)
    for bound in ("low", "high"):
        values = [getattr(stage, f"step_seconds_{bound}") for stage in stages]
        hours = None if None in values else sum(_hours(stages, values))
        found[f"total_hours_{bound}"] = hours
    return found


def _hours(stages: Sequence[Stage], step_seconds: Sequence[float]) -> list[float]:
    return [s.steps * t / 3600 for s, t in zip(stages, step_seconds, strict=True) if s.steps]


def _bounds(
    plain: BatchSizePoint, seconds: float | None
) -> tuple[float, float] | tuple[None, None]:
    """The range of a step's seconds, relatively as wide as that of one pass."""
    low, middle, high = plain.step_seconds_low, plain.step_seconds, plain.step_seconds_high
    if not seconds or not middle or low is None or high is None:
        return None, None
    return seconds * low / middle, seconds * high / middle


def step_seconds(plain: BatchSizePoint, accumulating: BatchSizePoint, passes: int) -> float | None:
    """The seconds of a step of several passes. `accumulating` has two passes and one update: every
    further pass takes as long as its second."""
    if passes == 1:
        return plain.step_seconds
    if plain.step_seconds is None or accumulating.step_seconds is None:
        return None
    pass_seconds = max(0.0, accumulating.step_seconds - plain.step_seconds)
    return plain.step_seconds + (passes - 1) * pass_seconds


def gain_of_doubling(point: BatchSizePoint, points: Sequence[BatchSizePoint]) -> float | None:
    """How many times more samples a second twice the batch would give, by a line through two
    predicted times."""
    size, seconds = point.batch_size, point.step_seconds
    timed = {
        p.batch_size - size: p.step_seconds
        for p in points
        if p.batch_size != size and p.step_seconds is not None
    }
    if seconds is None or not timed:
        return None
    further = max(timed, key=abs)
    slope = max(0.0, (timed[further] - seconds) / further)
    return 2 * seconds / (seconds + slope * size)


def reserved_law(found: Sequence[Mapping[str, Any]]) -> MemoryFit | None:
    """A law fitted to every size that was simulated."""
    runs = [
        Point(
            name=f"batch {point['batch_size']}, length {stage['seq_len']}",
            knobs={"batch_size": point["batch_size"], "seq_len": stage["seq_len"]},
            # The law is fitted to reserved memory.
            allocated_bytes=point["peak_reserved_bytes"],
            reserved_bytes=point["peak_reserved_bytes"],
        )
        for stage in found
        for point in stage["points"]
        # Where the allocator empties its cache, it had reserved all the memory there is.
        if not (point["fits"] and point["num_alloc_retries"])
    ]
    return fit(runs)[0] if len(runs) >= MIN_RUNS_FOR_LAW else None


def what_binds(point: BatchSizePoint, limited_by_memory: bool, gain: float | None) -> str | None:
    """What limits the speed. Memory does where a larger batch would be faster."""
    if limited_by_memory and (gain is None or gain >= WORTH_IT):
        return "memory"
    return point.bound_by or None


def _why_this_batch(found: Mapping[str, Any], room: str, tokens_per_step: int | None) -> str:
    batch, largest, failing = (
        found[name] for name in ("batch_size", "largest_batch", "first_failing_batch")
    )
    if tokens_per_step is None:
        if failing is None:
            return (
                f"no larger batch than {batch} was looked at: "
                "does the memory depend on batch_size at all?"
            )
        if batch < largest:
            return (
                f"{batch} is the largest batch within {room} for which the allocator never empties "
                f"its cache, which is slow; up to {largest} fit"
            )
        return f"{batch} is the largest batch within {room}, {failing} is not"
    passes = found["accumulation_steps"]
    samples = f"{tokens_per_step} tokens a step are {batch * passes} samples"
    if passes == 1:
        return f"{samples}: they fit into {room} at once"
    why = f"the largest equal part within {room} while gradients accumulate"
    if batch == largest:
        why = f"no larger batch is within {room}"
    return f"{samples}, in {passes} passes of {batch}: {why}"


def _why_this_fast(point: BatchSizePoint, limited_by_memory: bool, gain: float | None) -> list[str]:
    reasons = []
    if goes_to := TIME_GOES_TO.get(point.bound_by):
        reasons.append(f"{goes_to} takes most of the time")
    if limited_by_memory and gain is not None:
        twice = f"twice the batch would give {100 * (gain - 1):.0f} % more tokens a second"
        hardly = "" if gain >= WORTH_IT else "more memory would hardly help: "
        reasons.append(f"{hardly}{twice}")
    return reasons


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
