"""The answer of a record in one sentence, and whether it is a good one. For the terminal and for reports."""

from __future__ import annotations

from vramcast.records.max_batch import MaxBatch
from vramcast.records.measurement import Measurement
from vramcast.records.plan import GpuPlan, Plan
from vramcast.records.prediction import Prediction
from vramcast.units import format_bytes, format_count

GOOD, BAD, UNSURE, PLAIN = "good", "bad", "unsure", ""
STYLES = {GOOD: "bold green", BAD: "bold red", UNSURE: "bold yellow", PLAIN: ""}
FAILED = ("out_of_memory", "paging", "timeout", "crashed")
CHOICES = (
    "maximum",
    "recommended",
    "conservative",
    "fastest",
    "knee",
)  # of a search for the largest batch, in the order they are shown
BOUND_BY = {
    "compute": "arithmetic takes most of it",
    "bandwidth": "memory bandwidth takes most of it",
    "launch": "the GPU waits for the host to launch kernels: a larger batch or torch.compile would use it better",
}
Verdict = tuple[str, str]  # sentence, tone


def of_prediction(p: Prediction) -> Verdict:
    if p.capacity_bytes is None:
        return (
            f"takes {format_bytes(p.peak_reserved_bytes)} (predicted); give --gpu NAME or --memory SIZE to see whether it fits",
            PLAIN,
        )
    where = f"{p.gpu or 'the given memory'} ({format_bytes(p.capacity_bytes)} for the allocator)"
    if not p.fits:
        short = (
            ""
            if p.failed_allocation_bytes is None
            else f"; an allocation of {format_bytes(p.failed_allocation_bytes)} fails"
        )
        return f"✗ does not fit on {where}: needs {format_bytes(p.peak_reserved_bytes)}{short}", BAD
    text = f"✓ fits on {where}: {format_bytes(p.headroom_bytes or 0)} to spare"
    if p.num_alloc_retries:
        return (
            f"{text}, but the allocator has to empty its cache {p.num_alloc_retries} times (slower)",
            UNSURE,
        )
    return text, GOOD


def of_measurement(m: Measurement) -> Verdict:
    if m.outcome == "ok" and m.verdict.stable:
        return f"✓ stable: {m.steps_done} steps measured after {m.warmup_steps} to warm up", GOOD
    if m.outcome == "ok":
        return f"✗ ran, but is not stable: {', '.join(m.verdict.fail_reasons)}", UNSURE
    where = f" ({m.out_of_memory_on} memory)" if m.out_of_memory_on else ""
    how = f" ({m.signal})" if m.signal else ""
    reasons = f": {', '.join(m.verdict.fail_reasons)}" if m.verdict.fail_reasons else ""
    return (
        f"✗ {m.outcome.replace('_', ' ')}{where}{how}{reasons}",
        BAD if m.outcome in FAILED else UNSURE,
    )


def of_max_batch(result: MaxBatch) -> Verdict:
    where = f"{result.gpu or 'the given memory'} ({format_bytes(result.capacity_bytes)} for the allocator)"
    if result.largest_batch is None:
        missing = (
            ""
            if result.missing_bytes is None
            else f": {format_bytes(result.missing_bytes)} are missing"
        )
        return f"✗ not even {result.first_failing_batch} fits on {where}{missing}", BAD
    source = "measured" if result.confirmed else "predicted"
    beyond = (
        "no larger one was tried"
        if result.first_failing_batch is None
        else f"{result.first_failing_batch} does not fit"
    )
    return f"✓ largest batch on {where}: {result.largest_batch} ({source}); {beyond}", GOOD


def of_gpu_plan(plan: Plan, gpu: GpuPlan) -> Verdict:
    spared = f", {100 * plan.safety:g} % of it left free" if plan.safety else ""
    where = f"{gpu.gpu or 'the given memory'} ({format_bytes(gpu.capacity_bytes)} for the allocator{spared})"
    missing = [str(stage.seq_len) for stage in gpu.stages if not stage.fits]
    if missing:
        return f"✗ {where}: not even one sample fits at length {', '.join(missing)}", BAD
    time = "time not predicted" if gpu.total_hours is None else f"{gpu.total_hours:,.1f} hours"
    return (
        f"✓ {where}: {gpu.total_steps:,} steps for {format_count(gpu.total_tokens or 0)} tokens, {time}",
        GOOD,
    )
