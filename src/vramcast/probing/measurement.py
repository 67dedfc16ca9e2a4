"""Makes a record from the facts that a run reported, even if it died. No torch."""

from collections.abc import Mapping
from dataclasses import fields, replace
from statistics import median_high
from typing import Any

from vramcast.hardware.nvml import MemorySource
from vramcast.probing.facts import Facts
from vramcast.probing.stability import is_paging, judge, p95
from vramcast.probing.trial import Trial
from vramcast.processes.ask import FailureKind, TaskFailed
from vramcast.records.base import Knobs, plain_value
from vramcast.records.measurement import Clock, Device, Measurement, Memory, Outcome, StepTimes
from vramcast_zoo.document_004 import document_id, short_hash

# Why the process's memory is not exact, by the source of the number.
SOURCE_NOTES = {
    MemorySource.DEVICE: "process memory is the growth of the whole GPU's use: the driver lists "
    "no processes here, so others would be counted too",
    MemorySource.CUDA: "process memory is the whole GPU's use: NVML did not answer",
}


def measurement_from(
    trial: Trial, facts: Facts, failure: TaskFailed | None = None, *, seconds: float = 0.0
) -> Measurement:
    outcome, error = _outcome(trial, facts, failure)
    stalled = failure is not None and failure.kind is FailureKind.STOPPED
    phases = (facts.build, facts.first_step, facts.cold, facts.warm, facts.last)
    peaks = [
        *filter(None, phases),
        *(
            Memory(
                allocated_bytes=phase.peak_allocated_bytes, reserved_bytes=phase.peak_reserved_bytes
            )
            for phase in facts.phases
        ),
    ]
    reserved = None
    if trial.device == Device.CUDA:  # on the CPU no allocator reserves memory
        reserved = max((memory.reserved_bytes for memory in peaks), default=None)
    if outcome in (Outcome.OK, Outcome.TIMEOUT) and is_paging(
        reserved, facts.capacity_bytes, facts.driver_model, stalled
    ):
        outcome = Outcome.PAGING
    sizes = filter(None, (trial.memory_cap_bytes, facts.capacity_bytes))
    verdict = judge(
        outcome=outcome,
        stalled=stalled,
        step_seconds=facts.step_seconds,
        losses=facts.losses,
        peak_reserved_bytes=reserved,
        available_bytes=min(sizes, default=None),
        device=trial.device,
        is_program=bool(trial.line),
    )
    times = _times(trial, facts)
    knobs = facts.knobs or trial.knobs
    batch_size, length, samples = knobs.get("batch_size"), knobs.get("seq_len"), None
    if type(batch_size) is int and times is not None and times.wall_seconds:
        samples = batch_size * len(times.seconds) / times.wall_seconds
    outside, context = facts.outside_bytes, facts.context_bytes
    settings, switches = facts.allocator_settings, facts.switches
    told = vars(trial) | vars(facts)
    if trial.line and trial.num_steps is None:  # the program took as many steps as it took
        told["measure_steps"] = len(facts.step_seconds)
    return Measurement(
        **{field.name: told[field.name] for field in fields(Measurement) if field.name in told}
        | {
            "knobs": knobs,
            "outcome": outcome,
            "error": error,
            "allocator_settings": trial.allocator or "" if settings is None else settings,
            "switches": trial.switches.given() if switches is None else switches,
            "notes": [*facts.notes, *_notes(facts, knobs)],
        },
        workload_id=workload_id(trial.workload, knobs),
        verdict=verdict,
        steps_done=len(facts.step_seconds),
        signal=None if failure is None else failure.signal,
        peak_allocated_bytes=max((memory.allocated_bytes for memory in peaks), default=None),
        peak_reserved_bytes=reserved,
        process_bytes=None if reserved is None or outside is None else reserved + outside,
        loaded_kernels_bytes=None if outside is None or context is None else outside - context,
        times=times,
        samples_per_second=samples,
        tokens_per_second=samples * length if samples and isinstance(length, int) else None,
        seconds=seconds,
    )


def unfinished(trial: Trial, facts: Facts) -> Measurement:
    """The record of a run that has not ended yet."""
    return measurement_from(trial, replace(facts, outcome=Outcome.UNFINISHED))


def workload_id(workload: str, knobs: Mapping[str, Any]) -> str:
    """The same on every machine: a hash of name and knobs, or the id that the zoo gives a model."""
    plain = {name: plain_value(value) for name, value in knobs.items()}
    return document_id(plain) or "wl_" + short_hash({"workload": workload, "knobs": plain})


def _outcome(trial: Trial, facts: Facts, failure: TaskFailed | None) -> tuple[Outcome, str | None]:
    if failure is None:
        return facts.outcome or Outcome.CRASHED, facts.error
    if failure.kind is FailureKind.TIMEOUT:
        limit = f"{trial.timeout_seconds:g} s"
        return Outcome.TIMEOUT, f"It did not end within {limit} (last phase: {facts.phase})."
    if failure.kind is FailureKind.STOPPED:
        why = "A step made no progress for longer than the stability contract allows."
        return Outcome.TIMEOUT, why
    return Outcome.CRASHED, failure.message


def _times(trial: Trial, facts: Facts) -> StepTimes | None:
    seconds = facts.step_seconds
    if not seconds:
        return None
    middle = median_high(seconds)
    return StepTimes(
        seconds=seconds,
        median_seconds=middle,
        p95_seconds=p95(seconds),
        spread=(max(seconds) - min(seconds)) / middle if middle > 0 else 0.0,
        wall_seconds=facts.wall_seconds or sum(seconds),
        clock=Clock.PERF_COUNTER if trial.device == Device.CPU else Clock.CUDA_EVENTS,
    )


def _notes(facts: Facts, knobs: Knobs) -> list[str]:
    notes = []
    if facts.phases and "batch_size" not in knobs:
        notes.append("samples per second are not known: the line has no {batch_size}")
    elif facts.phases and "seq_len" not in knobs:
        notes.append("tokens per second are not known: the line has no {seq_len}")
    elif "batch_size" not in knobs:
        notes.append("samples per second are not known: the workload has no knob batch_size")
    elif "seq_len" not in knobs:
        notes.append("tokens per second are not known: the workload has no knob seq_len")
    if facts.process_source in SOURCE_NOTES:
        notes.append(SOURCE_NOTES[facts.process_source])
    return notes
