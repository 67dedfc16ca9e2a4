"""`vramcast.max_batch`: the largest batch, searched without a GPU and confirmed on one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from vramcast.errors import UsageError, WorkloadError
from vramcast.forecast.largest import COMFORTABLE_RATIOS, Edge
from vramcast.forecast.laws import batch_law
from vramcast.forecast.search import accumulation, settle
from vramcast.hardware import nvml
from vramcast.hardware.gpus import find_gpu
from vramcast.predicting.predict import DEFAULT_TIMEOUT_SECONDS, make_request, simulated
from vramcast.predicting.shortage import what_would_help
from vramcast.predicting.throughput import fastest, knee, scaling_notes, speeds_of
from vramcast.probing.manager import Prober
from vramcast.probing.preload import preload_for
from vramcast.probing.trial import Trial
from vramcast.processes.progress import Progress, Report, ignore
from vramcast.records.base import convert
from vramcast.records.max_batch import Choice, MaxBatch
from vramcast.records.measurement import Measurement, Outcome
from vramcast.records.prediction import Attempt, BatchSizePoint, Prediction
from vramcast.units import format_bytes
from vramcast.workload import Workload, joined

# Below 20 % of the largest batch the optimizer step can set the peak, and memory does not grow
# with the batch.
LAW_FROM = 0.2
# A "24 GiB" card has a little less than 24 GiB: --memory 24GiB is accepted for it, 200GiB is not.
MAX_OVER_LABEL = 1.1
# Memory is all taken after the second step, and three measured steps make a median.
WARMUP_STEPS, MEASURE_STEPS = 2, 3
LACKS_MEMORY = (Outcome.OUT_OF_MEMORY, Outcome.PAGING)
RECOMMENDED = COMFORTABLE_RATIOS[0], "the rest is for fragmentation in long runs"
CONSERVATIVE = COMFORTABLE_RATIOS[1], "the rest is for longer inputs and other software too"
Measure = Callable[[int], Measurement]


def max_batch(
    workload: Workload,
    *,
    gpu: str | None = None,
    memory: str | int | None = None,
    allocator: str | None = None,
    maximum: int | None = None,
    multiple_of: int = 1,
    safety: float = 0.0,
    global_batch: int | None = None,
    confirm: bool = True,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
    progress: Report = ignore,
    knobs: Mapping[str, Any] | None = None,
    **more_knobs: Any,
) -> MaxBatch:
    """The largest batch size that fits, searched without a GPU.

    `max_batch("train.py:build", gpu="rtx-4090", global_batch=256)`. `maximum` and `multiple_of`
    bound the sizes, `safety` is the fraction of the memory to leave free. Where the GPU is in this
    machine, the answer and the next size are run on it, unless `confirm` is false.
    """
    gpu = gpu or nvml.gpu_here()
    values = joined(knobs, more_knobs)
    request = _search_request(
        make_request(workload, gpu=gpu, memory=memory, allocator=allocator, knobs=values),
        maximum=maximum,
        multiple_of=multiple_of,
        safety=safety,
    )
    _positive("--global-batch", global_batch)
    with ExitStack() as stack:
        prober = None
        if confirm and can_confirm(gpu):
            prober = stack.enter_context(Prober(preload_for(request["workload"])))
            prober.start()  # imports torch for the real runs while the search is simulated
        found = simulated(request, timeout, progress, "Searching")
        points = convert(found["points"], list[BatchSizePoint], "The worker's answer")
        largest, failing = found["largest"], found["first_failing"]
        measured: list[Attempt] = []
        if prober is not None and largest is not None:
            limit = None if maximum is None else maximum // multiple_of * multiple_of
            measure = _measure_on_gpu(prober, request, values, allocator, progress)
            largest, failing, measured = confirm_by_runs(
                largest, failing, measure, step=multiple_of, limit=limit
            )
    notes = [*_search_notes(found, points, maximum), *_failure_notes(measured)]
    return _result(request, found, Edge(largest, failing), points, measured, notes, global_batch)


def can_confirm(gpu: str | None) -> bool:
    """Whether the GPU here is the one that is asked about."""
    if gpu is None:
        # A GPU that is not known by name can be used where its memory is given.
        return bool(nvml.gpu_states())
    return nvml.gpu_here() == find_gpu(gpu).name


def _measure_on_gpu(
    prober: Prober,
    request: Mapping[str, Any],
    knobs: Mapping[str, Any],
    allocator: str | None,
    progress: Report,
) -> Measure:
    """Runs one size under the budget of the search."""

    def measure(batch_size: int) -> Measurement:
        progress(Progress(f"Running batch_size={batch_size} on the GPU"))
        return prober.run(
            Trial(
                workload=request["workload"],
                knobs={**knobs, "batch_size": batch_size},
                memory_cap_bytes=request["memory_bytes"],
                allocator=allocator,
                warmup_steps=WARMUP_STEPS,
                measure_steps=MEASURE_STEPS,
            )
        )

    return measure


def _search_request(
    request: dict[str, Any], *, maximum: int | None, multiple_of: int, safety: float
) -> dict[str, Any]:
    _positive("--max", maximum)
    _positive("--multiple-of", multiple_of)
    if not 0 <= safety < 1:
        raise UsageError(
            f"--safety is a fraction of the memory, from 0 to below 1, not {safety:g}.",
            "For example --safety 0.05.",
        )
    gpu, memory_bytes = request["gpu"], request["memory_bytes"]
    if gpu is None and memory_bytes is None:
        raise UsageError(
            "How much memory there is, is not known.", "Give --gpu NAME or --memory SIZE."
        )
    total = None if gpu is None else find_gpu(gpu).total_bytes
    if total is not None and memory_bytes is not None and memory_bytes > MAX_OVER_LABEL * total:
        given, there = format_bytes(memory_bytes), format_bytes(total)
        raise UsageError(
            f"--memory {given} is more than {gpu} has ({there}).",
            "Leave out --memory for all of it, or --gpu for a GPU that does not exist.",
        )
    if safety:
        free = memory_bytes if memory_bytes is not None else capacity_of(gpu)
        memory_bytes = int((1 - safety) * free)
        if memory_bytes < 1:
            raise UsageError(
                f"--safety {safety} leaves no memory at all.", "For example --safety 0.05."
            )
    search = {"step": multiple_of, "maximum": maximum}
    return {**request, "memory_bytes": memory_bytes, "search": search}


def capacity_of(gpu: str) -> int:
    """What the allocator may take of this GPU."""
    from importlib.metadata import version

    from vramcast.allocator.settings import AllocatorSettings
    from vramcast.forecast.forecast import Budget
    from vramcast.hardware.calibration.table import find

    known = find_gpu(gpu)
    budget = Budget(
        gpu=known,
        memory_bytes=None,
        settings=AllocatorSettings.parse(""),
        calibration=find(known, version("torch"))[0],
    )
    assert budget.capacity_bytes is not None
    return budget.capacity_bytes


def confirm_by_runs(
    predicted: int, failing: int | None, measure: Measure, *, step: int, limit: int | None
) -> tuple[int | None, int | None, list[Attempt]]:
    """(largest that ran, next that did not, attempts).

    The predicted size is run, then the next one; others only where the runs disagree with the
    prediction.
    """
    attempts: list[Attempt] = []

    def runs(size: int) -> bool:
        measured = measure(size)
        attempts.append(_measured(measured))
        if measured.outcome not in (Outcome.OK, *LACKS_MEMORY) and not any(
            a.outcome == Outcome.OK for a in attempts
        ):
            # A smaller size would fail too, and "does not fit" would be the wrong answer.
            raise WorkloadError(
                f"batch_size={size} is predicted to fit, but run on the GPU it ended with "
                f"{measured.outcome}: {measured.error}",
                "Look at it with vramcast probe, or give --no-confirm for the prediction alone.",
            )
        return measured.outcome == Outcome.OK

    return *settle(runs, predicted, failing, step=step, limit=limit), attempts


def _result(
    request: dict[str, Any],
    found: dict[str, Any],
    edge: Edge,
    predicted: Sequence[BatchSizePoint],
    measured: Sequence[Attempt],
    notes: list[str],
    global_batch: int | None,
) -> MaxBatch:
    attempts = [*predicted, *measured]
    largest, step, capacity = edge.largest, request["search"]["step"], found["capacity_bytes"]
    micro = None
    if global_batch is not None and largest is not None:
        micro = accumulation(global_batch, largest, step)
        if micro is None:
            notes += [f"no multiple of {step} up to {largest} divides a batch of {global_batch}"]
    speeds = speeds_of(attempts, largest)
    least = LAW_FROM * (found["largest"] or 0)
    for_law = [p for p in predicted if p.fits and p.batch_size >= least]
    return MaxBatch(
        workload=request["workload"],
        knobs=found["knobs"],
        gpu=request["gpu"],
        capacity_bytes=capacity,
        largest_batch=largest,
        first_failing_batch=edge.first_failing,
        confirmed=any(a.batch_size == largest and a.outcome == Outcome.OK for a in measured),
        attempts=attempts,
        allocated_law=batch_law({p.batch_size: p.peak_allocated_bytes for p in for_law}),
        # Where the allocator empties its cache, what is reserved is what there is.
        reserved_law=batch_law(
            {p.batch_size: p.peak_reserved_bytes for p in for_law if not p.num_alloc_retries}
        ),
        maximum=_maximum(attempts, capacity, largest),
        recommended=_comfortable(attempts, capacity, largest, *RECOMMENDED),
        conservative=_comfortable(attempts, capacity, largest, *CONSERVATIVE),
        speeds=speeds,
        fastest=fastest(speeds),
        knee=knee(speeds, step),
        micro_batch=micro[0] if micro else None,
        accumulation_steps=micro[1] if micro else None,
        global_batch=global_batch,
        notes=[*notes, *scaling_notes(attempts, speeds)],
        limits=found["limits"],
        **_shortage(found, capacity),
        torch_version=found["torch_version"],
        seconds=found["seconds"],
    )


def _shortage(found: dict[str, Any], capacity_bytes: int) -> dict[str, Any]:
    """Where not even the smallest batch fits: what is missing, what takes it, what would help."""
    if found["smallest"] is None:
        return {}
    smallest = Prediction.from_dict(found["smallest"])
    return {
        "largest_tensors": smallest.largest_tensors[:3],
        "missing_bytes": smallest.peak_reserved_bytes - capacity_bytes,
        "advice": what_would_help(smallest, capacity_bytes, found["first_failing"]),
    }


def _search_notes(
    found: dict[str, Any], points: Sequence[BatchSizePoint], maximum: int | None
) -> list[str]:
    notes, largest, failing = [], found["largest"], found["first_failing"]
    if failing is None and maximum is None:
        notes.append(
            f"{largest} still fits and no larger size was looked at: "
            "does the memory depend on batch_size at all?"
        )
    if found["fits_beyond"]:
        sizes = ", ".join(map(str, found["fits_beyond"]))
        notes.append(f"not monotone: {failing} does not fit but {sizes} would (fragmentation)")
    retries = next((p.num_alloc_retries for p in points if p.batch_size == largest), 0)
    if retries:
        notes.append(
            f"{largest} fits only because the allocator empties its cache "
            f"(retries: {retries}): slower"
        )
    return notes


def _failure_notes(measured: Sequence[Attempt]) -> list[str]:
    return [
        f"{a.batch_size} did not run: {a.outcome}, not for lack of memory"
        for a in measured
        if a.outcome not in (*LACKS_MEMORY, Outcome.OK)
    ]


def _maximum(
    attempts: Sequence[Attempt], capacity_bytes: int, largest: int | None
) -> Choice | None:
    """The answer as a choice: how much it takes and leaves. A measured size counts more."""
    seen = [
        a
        for a in attempts
        if a.batch_size == largest and a.outcome == Outcome.OK and a.peak_reserved_bytes is not None
    ]
    if not seen:
        return None
    best = max(seen, key=lambda a: a.source == "measured")
    reserved = best.peak_reserved_bytes or 0
    left = format_bytes(max(0, capacity_bytes - reserved))
    reason = (
        f"takes {100 * reserved / capacity_bytes:.1f} % of the memory there is and leaves {left}: "
        "for runs whose inputs never get larger"
    )
    if best.num_alloc_retries:
        reason += "; it fits only because the allocator empties its cache, which is slower"
    return Choice(batch_size=best.batch_size, reason=reason)


def _comfortable(
    attempts: Sequence[Attempt], capacity_bytes: int, largest: int | None, ratio: float, why: str
) -> Choice | None:
    """The largest size looked at that reserves at most a fraction of what there is."""
    known = {
        a.batch_size: a.peak_reserved_bytes
        for a in attempts
        if a.outcome == Outcome.OK and a.peak_reserved_bytes is not None
    }
    sizes = [
        size
        for size, reserved in known.items()
        if reserved <= ratio * capacity_bytes and (largest is None or size <= largest)
    ]
    if not sizes:
        return None
    share = f"{100 * known[max(sizes)] / capacity_bytes:.0f} %"
    return Choice(batch_size=max(sizes), reason=f"takes {share} of the memory there is; {why}")


def _measured(m: Measurement) -> Attempt:
    return Attempt(
        batch_size=int(m.knobs["batch_size"] or 0),
        source="measured",
        outcome=m.outcome,
        peak_allocated_bytes=m.peak_allocated_bytes,
        peak_reserved_bytes=m.peak_reserved_bytes,
        num_alloc_retries=m.num_alloc_retries,
        step_seconds=m.times.median_seconds if m.times else None,
    )


def _positive(name: str, value: int | None) -> None:
    if value is not None and (type(value) is not int or value < 1):
        raise UsageError(
            f"{name} must be a whole number from 1 on, not {value}.", f"For example {name} 8."
        )
