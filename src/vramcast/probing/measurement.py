"""From what a worker told, or was heard to say before it died, to a record with an outcome and a verdict. No torch."""

from __future__ import annotations

import signal
from typing import Any

from vramcast.probing.contract import Evidence, is_paging, judge, step_times
from vramcast.probing.identity import workload_id
from vramcast.probing.trial import Trial
from vramcast.records.measurement import Measurement, Memory, Outcome

KILLED_HINT = "the kernel kills processes so when the machine's own memory runs out (see dmesg)"


def measurement_from(
    trial: Trial, facts: dict[str, Any], log_tail: str = "", *, seconds: float = 0.0
) -> Measurement:
    outcome, error, killed_by = _outcome(trial, facts, log_tail)
    stalled = facts.get("killed_for") == "stall"
    phases = {
        key: _memory(facts.get(key)) for key in ("build", "first_step", "cold", "warm", "last")
    }
    peaks = [memory for memory in phases.values() if memory is not None]
    # on the CPU there is no allocator that reserves
    reserved = (
        max((m.reserved_bytes for m in peaks), default=None) if trial.device == "cuda" else None
    )
    capacity = facts.get("capacity_bytes")
    paging = is_paging(
        driver_model=facts.get("driver_model"),
        peak_reserved_bytes=reserved,
        physical_bytes=capacity,
        stalled=stalled,
    )
    if paging and outcome in ("ok", "timeout"):
        outcome = "paging"
    clock = "perf_counter" if trial.device == "cpu" else "cuda_events"
    times = step_times(
        facts["step_seconds"],
        facts.get("wall_seconds") or sum(facts["step_seconds"]),
        facts.get("clock", clock),
    )
    knobs = facts.get("knobs") or trial.knobs
    outside, context = facts.get("outside_bytes"), facts.get("context_bytes")
    samples = _rate(knobs.get("batch_size"), times)
    evidence = Evidence(
        outcome=outcome,
        stalled=stalled,
        step_seconds=facts["step_seconds"],
        losses=facts["losses"],
        peak_reserved_bytes=reserved,
        available_bytes=min(
            (size for size in (trial.memory_cap_bytes, capacity) if size is not None), default=None
        ),
        device=trial.device,
    )
    return Measurement(
        workload=trial.workload,
        knobs=knobs,
        workload_id=workload_id(trial.workload, knobs),
        device=trial.device,
        outcome=Outcome(outcome),
        verdict=judge(evidence),
        warmup_steps=trial.warmup_steps,
        measure_steps=trial.measure_steps,
        steps_done=len(facts["step_seconds"]),
        signal=killed_by,
        error=error,
        out_of_memory_on=facts.get("out_of_memory_on"),
        gpu=facts.get("gpu"),
        capacity_bytes=capacity,
        memory_cap_bytes=trial.memory_cap_bytes,
        num_parameters=facts.get("num_parameters"),
        peak_allocated_bytes=max((m.allocated_bytes for m in peaks), default=None),
        peak_reserved_bytes=reserved,
        build=phases["build"],
        first_step=phases["first_step"],
        cold=phases["cold"],
        warm=phases["warm"],
        process_bytes=reserved + outside if reserved is not None and outside is not None else None,
        context_bytes=context,
        loaded_kernels_bytes=outside - context
        if outside is not None and context is not None
        else None,
        num_alloc_retries=facts.get("num_alloc_retries"),
        times=times,
        samples_per_second=samples,
        tokens_per_second=_tokens(samples, knobs),
        warmup_seconds=facts["warmup_step_seconds"],
        losses=facts["losses"],
        build_seconds=facts.get("build_seconds"),
        seconds=seconds,
        allocator_settings=facts.get("allocator_settings", trial.allocator or ""),
        switches=facts.get("switches", trial.switches.given()),
        torch_version=facts.get("torch_version", ""),
        cuda_version=facts.get("cuda_version"),
        driver_version=facts.get("driver_version"),
        driver_model=facts.get("driver_model"),
        notes=[*facts.get("notes", []), *_notes(facts, knobs)],
    )


def unfinished(trial: Trial, facts: dict[str, Any] | None = None) -> Measurement:
    """What the record says from before the run until it has ended: nothing was concluded."""
    return measurement_from(
        trial,
        {
            "step_seconds": [],
            "losses": [],
            "warmup_step_seconds": [],
            **(facts or {}),
            "outcome": "unfinished",
        },
    )


def _outcome(
    trial: Trial, facts: dict[str, Any], log_tail: str
) -> tuple[str, str | None, str | None]:
    """(outcome, error, signal)."""
    if facts["outcome"] is not None:
        return facts["outcome"], facts.get("error"), None
    if facts["killed_for"] == "timeout":
        return (
            "timeout",
            f"It did not end within {trial.timeout_seconds:g} s (last phase: {facts['phase']}).",
            None,
        )
    if facts["killed_for"] == "stall":
        return (
            "timeout",
            "A step made no progress for longer than the stability contract allows.",
            None,
        )
    status = facts["exit_status"]
    if status is None:
        return "crashed", "The process that starts probes died.", None
    if status < 0:
        name = _signal_name(-status)
        hint = f"; {KILLED_HINT}" if name == "SIGKILL" else ""
        return "crashed", f"The worker was ended by {name}{hint}.\n{log_tail}".rstrip(), name
    return (
        "crashed",
        f"The worker ended with exit code {status} and gave no result.\n{log_tail}".rstrip(),
        None,
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals but the first and the last have no name
        return f"signal {number}"


def _memory(value: dict[str, int] | None) -> Memory | None:
    return None if value is None else Memory(**value)


def _rate(batch_size: Any, times: Any) -> float | None:
    if type(batch_size) is not int or times is None or not times.wall_seconds:
        return None
    return float(batch_size * len(times.seconds) / times.wall_seconds)


def _tokens(samples_per_second: float | None, knobs: dict[str, Any]) -> float | None:
    length = knobs.get("seq_len")
    return (
        samples_per_second * length
        if samples_per_second is not None and isinstance(length, int)
        else None
    )


def _notes(facts: dict[str, Any], knobs: dict[str, Any]) -> list[str]:
    notes = []
    if "batch_size" not in knobs:
        notes.append("samples per second are not known: the workload has no knob batch_size")
    elif "seq_len" not in knobs:
        notes.append("tokens per second are not known: the workload has no knob seq_len")
    if facts.get("process_source") == "device":
        notes.append(
            "process memory is the growth of the whole GPU's use: the driver lists no processes here, others would be counted in"
        )
    if facts.get("process_source") == "mem_get_info":
        notes.append("process memory is the whole GPU's use: NVML did not answer")
    return notes
