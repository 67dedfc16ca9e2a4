"""From what the simulation found at one length to a stage: its time, what binds, and why it is what it is. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vramcast.forecast.laws import Point, fit
from vramcast.records.fit import MemoryFit
from vramcast.records.plan import Stage
from vramcast.records.prediction import BatchSizePoint, LargeTensor
from vramcast.units import format_bytes

WORTH_IT = 1.05  # times the throughput: from here on twice the batch would be worth having
SECONDS_PER_HOUR = 3600.0
FEWEST_FOR_A_LAW = 4  # as many terms as there can be, and one to tell whether they are right


def make_stage(
    found: Mapping[str, Any],
    *,
    capacity_bytes: int,
    limit_bytes: int,
    tokens_per_step: int | None,
    tokens: int,
) -> Stage:
    if found["batch_size"] is None:
        return _that_does_not_fit(found, capacity_bytes, limit_bytes)
    seq_len, batch, passes = found["seq_len"], found["batch_size"], found["accumulation_steps"]
    plain, used = BatchSizePoint(**found["plain"]), BatchSizePoint(**found["used"])
    points = [BatchSizePoint(**point) for point in found["points"]]
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
        why=f"{_why_this_batch(found, limit_bytes, tokens_per_step)}{_why_this_fast(plain, limited, gain)}",
    )


def step_seconds(plain: BatchSizePoint, accumulating: BatchSizePoint, passes: int) -> float | None:
    """Of one optimizer step. Two passes with one update take a pass longer than one with one: so much for every further pass."""
    if passes == 1 or plain.step_seconds is None or accumulating.step_seconds is None:
        return plain.step_seconds if passes == 1 else None
    return plain.step_seconds + (passes - 1) * max(
        0.0, accumulating.step_seconds - plain.step_seconds
    )


def gain_of_doubling(point: BatchSizePoint, points: Sequence[BatchSizePoint]) -> float | None:
    """How many times as many samples a second with twice the batch, if a step goes on to take longer as it does between these sizes."""
    others = [p for p in points if p.step_seconds is not None and p.batch_size != point.batch_size]
    if point.step_seconds is None or not others:
        return None
    other = max(others, key=lambda p: abs(p.batch_size - point.batch_size))
    assert other.step_seconds is not None
    slope = max(
        0.0, (point.step_seconds - other.step_seconds) / (point.batch_size - other.batch_size)
    )
    return 2 * point.step_seconds / (point.step_seconds + slope * point.batch_size)


def reserved_law(points: Mapping[int, Sequence[Mapping[str, Any]]]) -> MemoryFit | None:
    """Reserved memory as a polynomial of batch size and length, through every size that was simulated; `points` by length."""
    runs = [
        Point(
            name=f"batch {point['batch_size']}, length {seq_len}",
            knobs={"batch_size": point["batch_size"], "seq_len": seq_len},
            allocated_bytes=point[
                "peak_reserved_bytes"
            ],  # the law is of what is reserved: there is nothing on top of it
            reserved_bytes=point["peak_reserved_bytes"],
        )
        for seq_len, sizes in points.items()
        for point in sizes
    ]
    return fit(runs)[0] if len(runs) >= FEWEST_FOR_A_LAW else None


def what_binds(point: BatchSizePoint, limited_by_memory: bool, gain: float | None) -> str | None:
    """Memory, where it limits the batch and a larger one would be faster; else what bounds the step."""
    if limited_by_memory and (gain is None or gain >= WORTH_IT):
        return "memory"
    return point.bound_by or None


def _why_this_batch(found: Mapping[str, Any], limit_bytes: int, tokens_per_step: int | None) -> str:
    batch, passes, largest = (
        found["batch_size"],
        found["accumulation_steps"],
        found["largest_batch"],
    )
    room = format_bytes(limit_bytes)
    if tokens_per_step is None:
        if found["first_failing_batch"] is None:
            return f"no larger batch than {batch} was looked at: does the memory depend on batch_size at all?"
        return f"{batch} is the largest batch within {room}, {found['first_failing_batch']} is not"
    samples = f"{tokens_per_step} tokens a step are {batch * passes} samples"
    if passes == 1:
        return f"{samples}: they fit into {room} at once"
    if batch == largest:
        return f"{samples}, in {passes} passes of {batch}: no larger batch is within {room}"
    return f"{samples}, in {passes} passes of {batch}: the largest equal part within {room} while gradients accumulate"


def _why_this_fast(point: BatchSizePoint, limited_by_memory: bool, gain: float | None) -> str:
    if point.step_seconds is None:
        return ""
    bound = {
        "compute": "arithmetic",
        "bandwidth": "the GPU's memory bandwidth",
        "launch": "launching kernels",
    }.get(point.bound_by, "")
    spent = f"; most of the time is {bound}" if bound else ""
    if not limited_by_memory or gain is None:
        return spent
    if gain >= WORTH_IT:
        return f"{spent}; with the memory for twice the batch, {100 * (gain - 1):.0f} % more tokens a second"
    return f"{spent}; more memory would hardly help: twice the batch, {100 * (gain - 1):.0f} % more tokens a second"


def _that_does_not_fit(found: Mapping[str, Any], capacity_bytes: int, limit_bytes: int) -> Stage:
    smallest = found["smallest"]
    needs = smallest["peak_reserved_bytes"]
    accumulating = " while gradients accumulate" if needs <= limit_bytes else ""
    way_out = ": a smaller --safety would let it" if limit_bytes < needs <= capacity_bytes else ""
    nothing = dict.fromkeys(
        (
            "batch_size",
            "accumulation_steps",
            "tokens_per_batch",
            "tokens_per_step",
            "largest_batch",
            "peak_allocated_bytes",
        )
        + (
            "peak_reserved_bytes",
            "share_of_memory",
            "binds",
            "step_seconds",
            "tokens_per_second",
            "samples_per_second",
            "hours_to_budget",
        )
    )
    return Stage(
        seq_len=found["seq_len"],
        fits=False,
        first_failing_batch=1,
        why=f"not even one sample fits{accumulating}: needs {format_bytes(needs)}, the plan may use {format_bytes(limit_bytes)}{way_out}",
        missing_bytes=max(0, needs - limit_bytes),
        largest_tensors=[LargeTensor(**tensor) for tensor in smallest["largest_tensors"]],
        **nothing,  # type: ignore[arg-type]
    )
