"""From what a run told, or was heard to tell before it died, to a record. No torch."""

from __future__ import annotations

from dataclasses import replace

from vramcast.hardware.nvml import MemorySource
from vramcast.probing.facts import Facts
from vramcast.probing.stability import Evidence, is_paging, judge, step_times
from vramcast.probing.trial import Trial
from vramcast.probing.workload_id import workload_id
from vramcast.processes.ask import FailureKind, TaskFailed
from vramcast.records.base import Knobs
from vramcast.records.measurement import Clock, Device, Measurement, Outcome, StepTimes

# Why the process's memory is not exact, by where its number came from.
SOURCE_NOTES = {
    MemorySource.DEVICE: "process memory is the growth of the whole GPU's use: the driver lists "
    "no processes here, others would be counted in",
    MemorySource.CUDA: "process memory is the whole GPU's use: NVML did not answer",
}


def measurement_from(
    trial: Trial, facts: Facts, failure: TaskFailed | None = None, *, seconds: float = 0.0
) -> Measurement:
    outcome, error = _outcome(trial, facts, failure)
    stalled = failure is not None and failure.kind is FailureKind.STOPPED
    phases = (facts.build, facts.first_step, facts.cold, facts.warm, facts.last)
    peaks = [memory for memory in phases if memory is not None]
    reserved = None
    if trial.device == Device.CUDA:  # on the CPU no allocator reserves memory
        reserved = max((memory.reserved_bytes for memory in peaks), default=None)
    paging = is_paging(
        driver_model=facts.driver_model,
        peak_reserved_bytes=reserved,
        physical_bytes=facts.capacity_bytes,
        stalled=stalled,
    )
    if paging and outcome in (Outcome.OK, Outcome.TIMEOUT):
        outcome = Outcome.PAGING
    limits = [size for size in (trial.memory_cap_bytes, facts.capacity_bytes) if size is not None]
    evidence = Evidence(
        outcome=outcome,
        stalled=stalled,
        step_seconds=facts.step_seconds,
        losses=facts.losses,
        peak_reserved_bytes=reserved,
        available_bytes=min(limits, default=None),
        device=trial.device,
    )
    times = _times(trial, facts)
    knobs = facts.knobs or trial.knobs
    samples = _samples_per_second(knobs, times)
    length = knobs.get("seq_len")
    outside, context = facts.outside_bytes, facts.context_bytes
    settings = facts.allocator_settings
    return Measurement(
        workload=trial.workload,
        knobs=knobs,
        workload_id=workload_id(trial.workload, knobs),
        device=trial.device,
        outcome=outcome,
        verdict=judge(evidence),
        warmup_steps=trial.warmup_steps,
        measure_steps=trial.measure_steps,
        steps_done=len(facts.step_seconds),
        signal=None if failure is None else failure.signal,
        error=error,
        out_of_memory_on=facts.out_of_memory_on,
        gpu=facts.gpu,
        capacity_bytes=facts.capacity_bytes,
        memory_cap_bytes=trial.memory_cap_bytes,
        num_parameters=facts.num_parameters,
        peak_allocated_bytes=max((memory.allocated_bytes for memory in peaks), default=None),
        peak_reserved_bytes=reserved,
        build=facts.build,
        first_step=facts.first_step,
        cold=facts.cold,
        warm=facts.warm,
        process_bytes=None if reserved is None or outside is None else reserved + outside,
        context_bytes=context,
        loaded_kernels_bytes=None if outside is None or context is None else outside - context,
        num_alloc_retries=facts.num_alloc_retries,
        times=times,
        samples_per_second=samples,
        tokens_per_second=samples * length if samples and isinstance(length, int) else None,
        warmup_seconds=facts.warmup_step_seconds,
        losses=facts.losses,
        build_seconds=facts.build_seconds,
        seconds=seconds,
        allocator_settings=settings if settings is not None else trial.allocator or "",
        switches=facts.switches if facts.switches is not None else trial.switches.given(),
        torch_version=facts.torch_version,
        cuda_version=facts.cuda_version,
        driver_version=facts.driver_version,
        driver_model=facts.driver_model,
        notes=[*facts.notes, *_notes(facts, knobs)],
    )


def unfinished(trial: Trial, facts: Facts | None = None) -> Measurement:
    """What the record says from before the run until it has ended."""
    return measurement_from(trial, replace(facts or Facts(), outcome=Outcome.UNFINISHED))


def _outcome(trial: Trial, facts: Facts, failure: TaskFailed | None) -> tuple[Outcome, str | None]:
    """The outcome and what went wrong."""
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
    usual = Clock.PERF_COUNTER if trial.device == Device.CPU else Clock.CUDA_EVENTS
    wall_seconds = facts.wall_seconds or sum(facts.step_seconds)
    return step_times(facts.step_seconds, wall_seconds, facts.clock or usual)


def _samples_per_second(knobs: Knobs, times: StepTimes | None) -> float | None:
    batch_size = knobs.get("batch_size")
    if type(batch_size) is not int or times is None or not times.wall_seconds:
        return None
    return batch_size * len(times.seconds) / times.wall_seconds


def _notes(facts: Facts, knobs: Knobs) -> list[str]:
    notes = []
    if "batch_size" not in knobs:
        notes.append("samples per second are not known: the workload has no knob batch_size")
    elif "seq_len" not in knobs:
        notes.append("tokens per second are not known: the workload has no knob seq_len")
    if facts.process_source in SOURCE_NOTES:
        notes.append(SOURCE_NOTES[facts.process_source])
    return notes
