"""`vramcast.max_batch`: the largest batch, searched without a GPU and confirmed on one."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from vramcast.errors import WorkloadError
from vramcast.forecast.largest import COMFORTABLE_RATIOS
from vramcast.forecast.laws import batch_law
from vramcast.forecast.search import accumulation, settle
from vramcast.hardware import nvml
from vramcast.hardware.gpus import find_gpu
from vramcast.predicting.checks import check_memory, check_positive
from vramcast.predicting.predict import DEFAULT_TIMEOUT_SECONDS, make_request, simulated
from vramcast.predicting.throughput import fastest, knee, speeds_of
from vramcast.probing.manager import Prober, preload_for, start_of
from vramcast.probing.trial import Trial
from vramcast.processes.progress import Progress, Report, ignore
from vramcast.records.base import convert
from vramcast.records.measurement import Measurement, Outcome
from vramcast.records.prediction import Attempt, BatchSizePoint, Choice, MaxBatch, Prediction
from vramcast.units import format_bytes
from vramcast.workload import Workload, joined

# Below 20 % of the largest batch the optimizer step can set the peak, which then does not grow.
LAW_FROM = 0.2
LACKS_MEMORY = (Outcome.OUT_OF_MEMORY, Outcome.PAGING)
RECOMMENDED = COMFORTABLE_RATIOS[0], "the rest is for fragmentation in long runs"
CONSERVATIVE = COMFORTABLE_RATIOS[1], "the rest is for longer inputs and other software too"
STATES = ("parameters", "gradients", "optimizer_state")
LESS_PARAMETERS = (
    "weights in 16 bits take half of 32; "
    "else a smaller model, a larger GPU, or several that share it"
)
LESS_STATE = (
    "an optimizer with less state (SGD, Adafactor, 8-bit Adam), weights in 16 bits, "
    "a larger GPU, or several that share it"
)
LESS_ACTIVATIONS = "vramcast advise predicts which changes are enough"


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
    bound the sizes, `safety` is the fraction of the memory to leave free. Where the GPU is here,
    the answer and the next size are run on it, unless `confirm` is false.
    """
    gpu = gpu or nvml.gpu_here()
    values = joined(knobs, more_knobs)
    request = make_request(workload, values, gpu, memory, allocator, moved=["batch_size"])
    check_memory([gpu] if gpu else [], request["memory_bytes"], safety)
    check_positive("--max", maximum)
    check_positive("--multiple-of", multiple_of)
    check_positive("--global-batch", global_batch)
    request |= {"search": {"step": multiple_of, "maximum": maximum}, "safety": safety}
    with ExitStack() as stack:
        prober = None
        if confirm and can_confirm(gpu):
            prober = stack.enter_context(_prober_for(request, values))
            prober.start()  # imports torch while the search is simulated
        found = simulated(request, timeout, progress, "Searching")
        largest, failing = found["largest"], found["first_failing"]
        measured: list[Attempt] = []
        if prober is not None and largest is not None:
            trial = Trial(
                workload=request["workload"],
                knobs=values,
                # Without a limit of the user's, the real GPU sets the limit, not our prediction of
                # it.
                memory_cap_bytes=found["capacity_bytes"] if memory or safety else None,
                allocator=allocator,
                # Memory no longer grows after the second step; three more give a median time.
                warmup_steps=2,
                measure_steps=3,
                line=tuple(request.get("line", ())),
                stdin=request.get("stdin"),
            )

            def measure(size: int) -> Measurement:
                progress(Progress(f"Running batch_size={size} on the GPU"))
                return prober.run(replace(trial, knobs={**values, "batch_size": size}))

            limit = maximum and maximum // multiple_of * multiple_of
            largest, failing, measured = confirm_by_runs(
                largest, failing, measure, step=multiple_of, limit=limit
            )
    edge = largest, failing
    return _result(request, found, edge, measured, maximum, multiple_of, global_batch)


def _result(
    request: dict[str, Any],
    found: dict[str, Any],
    edge: tuple[int | None, int | None],
    measured: list[Attempt],
    maximum: int | None,
    multiple_of: int,
    global_batch: int | None,
) -> MaxBatch:
    """The answer. `found` comes from simulation, `edge` also from runs on the GPU."""
    largest, failing = edge
    points = convert(found["points"], list[BatchSizePoint], "The worker's answer")
    attempts = [*points, *measured]
    # Measured attempts come last, so that they replace predicted ones of the same size.
    fitting = {
        a.batch_size: a
        for a in attempts
        if a.outcome == Outcome.OK and largest is not None and a.batch_size <= largest
    }
    capacity, notes = found["capacity_bytes"], _notes(found, points, measured, maximum)
    speeds, speed_notes = speeds_of(attempts, largest)
    parts = None
    if global_batch and largest:
        parts = accumulation(global_batch, largest, multiple_of)
        if parts is None:
            sizes = f"no multiple of {multiple_of} up to {largest}"
            notes.append(f"{sizes} divides a batch of {global_batch}")
    return MaxBatch(
        workload=request["workload"],
        knobs=found["knobs"],
        gpu=request["gpu"],
        capacity_bytes=capacity,
        largest_batch=largest,
        first_failing_batch=failing,
        confirmed=any(a.batch_size == largest and a.outcome == Outcome.OK for a in measured),
        attempts=attempts,
        **_laws(points, found["largest"]),
        maximum=_maximum(fitting.get(largest or 0), capacity),
        recommended=_comfortable(fitting, capacity, *RECOMMENDED),
        conservative=_comfortable(fitting, capacity, *CONSERVATIVE),
        speeds=speeds,
        fastest=fastest(speeds),
        knee=knee(speeds, multiple_of),
        micro_batch=parts and parts[0],
        accumulation_steps=parts and parts[1],
        global_batch=global_batch,
        notes=[*notes, *speed_notes],
        limits=found["limits"],
        **_shortage(found, capacity),
        torch_version=found["torch_version"],
        seconds=found["seconds"],
    )


def _prober_for(request: dict[str, Any], knobs: Mapping[str, Any]) -> Prober:
    if "line" not in request:
        return Prober(preload_for(request["workload"]))
    line = tuple(request["line"])
    knobs = {**knobs, "batch_size": 1}
    return Prober(**start_of(Trial(workload=request["workload"], line=line, knobs=knobs)))


def can_confirm(gpu: str | None) -> bool:
    """Whether this machine has the GPU in question. Any GPU will do where only memory is given."""
    if gpu is None:
        return bool(nvml.gpu_states())
    return nvml.gpu_here() == find_gpu(gpu).name


def confirm_by_runs(
    predicted: int,
    failing: int | None,
    measure: Callable[[int], Measurement],
    *,
    step: int,
    limit: int | None,
) -> tuple[int | None, int | None, list[Attempt]]:
    """The largest size that ran, the next that did not, and all attempts.

    The predicted size is run, then the next one; others only where the prediction was wrong.
    """
    attempts: list[Attempt] = []

    def runs(size: int) -> bool:
        measured = measure(size)
        attempts.append(_measured(measured))
        any_ran = any(a.outcome == Outcome.OK for a in attempts)
        if not any_ran and measured.outcome not in LACKS_MEMORY:
            # A smaller size would fail too, and it would be wrong to say that it does not fit.
            raise WorkloadError(
                f"batch_size={size} is predicted to fit, but run on the GPU it ended with "
                f"{measured.outcome}: {measured.error}",
                "Look at it with vramcast probe, or give --no-confirm for the prediction alone.",
            )
        return measured.outcome == Outcome.OK

    return *settle(runs, predicted, failing, step=step, limit=limit), attempts


def _laws(points: Sequence[BatchSizePoint], largest: int | None) -> dict[str, Any]:
    fitting = [p for p in points if p.fits and p.batch_size >= LAW_FROM * (largest or 0)]
    # Where the allocator empties its cache, it had reserved all the memory there is.
    reserved = {p.batch_size: p.peak_reserved_bytes for p in fitting if not p.num_alloc_retries}
    return {
        "allocated_law": batch_law({p.batch_size: p.peak_allocated_bytes for p in fitting}),
        "reserved_law": batch_law(reserved),
    }


def _shortage(found: dict[str, Any], capacity_bytes: int) -> dict[str, Any]:
    """How much memory is missing and what would help, where not even the smallest batch fits."""
    if found["smallest"] is None:
        return {}
    smallest = Prediction.from_dict(found["smallest"])
    advice = _what_would_help(smallest.breakdown_bytes, capacity_bytes, found["first_failing"])
    return {
        "largest_tensors": smallest.largest_tensors[:3],
        "missing_bytes": smallest.peak_reserved_bytes - capacity_bytes,
        "advice": [advice],
    }


def _what_would_help(parts: Mapping[str, int], capacity_bytes: int, batch_size: int) -> str:
    def total(*names: str) -> int:
        return sum(parts.get(name, 0) for name in names)

    def too_much(size_bytes: int) -> str:
        more = format_bytes(size_bytes - capacity_bytes)
        return f"take {format_bytes(size_bytes)}, {more} more than there is"

    parameters, states = total("parameters"), total(*STATES)
    if parameters > capacity_bytes:
        return f"the parameters alone {too_much(parameters)}: {LESS_PARAMETERS}"
    if states > capacity_bytes:
        *kinds, last = (name.replace("_", " ") for name in STATES if parts.get(name))
        listed = f"{', '.join(kinds)} and {last}"
        return f"{listed} are there whatever the batch and {too_much(states)}: {LESS_STATE}"
    others = format_bytes(total("activations", "temporaries", "workspaces"))
    return (
        f"with a batch of {batch_size}, activations and temporaries take {others} "
        f"beside {format_bytes(states)} that stay: {LESS_ACTIVATIONS}"
    )


def _notes(
    found: dict[str, Any],
    points: Sequence[BatchSizePoint],
    measured: Sequence[Attempt],
    maximum: int | None,
) -> list[str]:
    notes, largest, failing = [], found["largest"], found["first_failing"]
    if failing is None and maximum is None:
        notes.append(
            f"{largest} still fits, and nothing larger was tried: "
            "does the memory depend on batch_size at all?"
        )
    if found["fits_beyond"]:
        sizes = ", ".join(map(str, found["fits_beyond"]))
        notes.append(f"not monotone: {failing} does not fit but {sizes} would (fragmentation)")
    for point in points:
        if point.batch_size == largest and point.num_alloc_retries:
            notes.append(
                f"{largest} fits only because the allocator empties its cache "
                f"(retries: {point.num_alloc_retries}): slower"
            )
    return notes + [
        f"{run.batch_size} did not run: {run.outcome}, not for lack of memory"
        for run in measured
        if run.outcome not in (Outcome.OK, *LACKS_MEMORY)
    ]


def _maximum(best: Attempt | None, capacity_bytes: int) -> Choice | None:
    if best is None or best.peak_reserved_bytes is None:
        return None
    left = format_bytes(max(0, capacity_bytes - best.peak_reserved_bytes))
    reason = (
        f"takes {100 * best.peak_reserved_bytes / capacity_bytes:.1f} % of the available memory "
        f"and leaves {left}: for runs whose inputs never get larger"
    )
    if best.num_alloc_retries:
        reason += "; it fits only because the allocator empties its cache, which is slower"
    return Choice(batch_size=best.batch_size, reason=reason)


def _comfortable(
    fitting: Mapping[int, Attempt], capacity_bytes: int, ratio: float, why: str
) -> Choice | None:
    shares = {
        size: attempt.peak_reserved_bytes / capacity_bytes
        for size, attempt in fitting.items()
        if attempt.peak_reserved_bytes is not None
        and attempt.peak_reserved_bytes <= ratio * capacity_bytes
    }
    if not shares:
        return None
    size = max(shares)
    reason = f"takes {100 * shares[size]:.0f} % of the available memory; {why}"
    return Choice(batch_size=size, reason=reason)


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
