"""The record of one real run."""

import math
from dataclasses import field
from enum import StrEnum
from typing import Any

from vramcast.records.base import Bytes, Count, Knobs, Number, Part, Record, Seconds, SignedBytes
from vramcast.records.phases import Phase


class Device(StrEnum):
    CUDA = "cuda"
    CPU = "cpu"


class Clock(StrEnum):
    CUDA_EVENTS = "cuda_events"
    PERF_COUNTER = "perf_counter"


class MemoryOf(StrEnum):
    GPU = "gpu"
    HOST = "host"


class FailReason(StrEnum):
    """Why a run is not sound, in the order in which reasons are listed."""

    OUT_OF_MEMORY = "oom"
    NOT_FINITE = "nan_or_inf"
    STEP_TIME_EXPLOSION = "step_time_explosion"
    STALL = "heartbeat_stall"
    MEMORY_GUARD = "vram_guard"
    NO_TIMES = "timing_missing"
    EXCEPTION = "runtime_exception"


class Outcome(StrEnum):
    OK = "ok"
    OUT_OF_MEMORY = "out_of_memory"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    UNSUPPORTED = "unsupported"
    PAGING = "paging"  # the driver moved GPU memory to the host instead of failing
    UNFINISHED = "unfinished"  # until the run has ended, and for ever when it was interrupted


class Memory(Part):
    allocated_bytes: Bytes
    reserved_bytes: Bytes


class StepTimes(Part):
    """The times of the measured steps, without the warm-up."""

    seconds: list[Seconds]
    median_seconds: Seconds
    p95_seconds: Seconds
    spread: Number  # (largest - smallest) / median
    wall_seconds: Seconds  # of all steps, with the host's work between them
    clock: Clock


class Verdict(Part):
    """Whether a run was sound, and what could not be judged and why."""

    stable: bool
    fail_reasons: list[FailReason]
    not_judged: dict[FailReason, str]


class RunFacts(Part):
    """Facts that a run reports while it runs. What was not measured is None; `notes` says why."""

    error: str | None = None
    out_of_memory_on: MemoryOf | None = None
    gpu: str | None = None
    capacity_bytes: Bytes | None = None  # the card's memory
    num_parameters: Count | None = None
    num_trainable_parameters: Count | None = None
    build: Memory | None = None
    first_step: Memory | None = None
    cold: Memory | None = None  # the peaks of building and warming up
    warm: Memory | None = None  # the measured steps
    context_bytes: SignedBytes | None = None  # outside the allocator, right after CUDA has started
    num_alloc_retries: Count | None = None
    warmup_seconds: list[Seconds] = field(default_factory=list)
    losses: list[float | None] = field(default_factory=list)  # warm-up included
    build_seconds: Seconds | None = None
    torch_version: str = ""
    cuda_version: str | None = None
    driver_version: str | None = None
    driver_model: str | None = None
    notes: list[str] = field(default_factory=list)
    # Only of a program, in the order in which they first came.
    phases: list[Phase] = field(default_factory=list)


class MeasuredRank(Part):
    """The result of one of several processes."""

    rank: Count
    outcome: Outcome
    peak_allocated_bytes: Bytes | None = None
    peak_reserved_bytes: Bytes | None = None
    process_bytes: SignedBytes | None = None


class Measurement(Record, RunFacts, kind="measurement"):
    """The record of one real run."""

    workload: str
    knobs: Knobs
    workload_id: str
    device: Device
    outcome: Outcome
    verdict: Verdict
    warmup_steps: Count
    measure_steps: Count
    steps_done: Count = 0  # measured ones
    signal: str | None = None
    memory_cap_bytes: Bytes | None = None
    peak_allocated_bytes: Bytes | None = None
    peak_reserved_bytes: Bytes | None = None
    # Peak reserved plus the memory that the process held outside the allocator.
    process_bytes: SignedBytes | None = None
    loaded_kernels_bytes: SignedBytes | None = None
    times: StepTimes | None = None
    samples_per_second: Number | None = None
    tokens_per_second: Number | None = None
    seconds: Seconds = 0.0  # of the whole probe
    allocator_settings: str = ""
    switches: Knobs = field(default_factory=dict)  # torch's global switches
    # All of several processes. The other fields are those of the process that failed, or took most.
    world_size: Count = 1
    ranks: list[MeasuredRank] = field(default_factory=list)
    source: str = "measured"

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON values. Losses that are not finite become text, because JSON has no
        such numbers."""
        losses = [x if x is None or math.isfinite(x) else str(x) for x in self.losses]
        return {"workload": self.workload, **super().to_dict(), "losses": losses}

    @classmethod
    def upgraded(cls, data: dict[str, Any]) -> dict[str, Any]:
        losses = data.get("losses", [])
        if isinstance(losses, list):
            losses = [float(x) if x in ("nan", "inf", "-inf") else x for x in losses]
        return {**data, "losses": losses}
