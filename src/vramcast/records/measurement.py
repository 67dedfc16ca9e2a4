"""What one real run showed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from vramcast.records.base import Bytes, Count, Knobs, Number, Record, Seconds

NOT_FINITE = ("nan", "inf", "-inf")


class Outcome(StrEnum):
    """How a real run can end."""

    OK = "ok"
    OUT_OF_MEMORY = "out_of_memory"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    UNSUPPORTED = "unsupported"
    PAGING = "paging"  # the driver moved GPU memory to the host instead of failing
    UNFINISHED = "unfinished"  # until the run has ended, and for ever when it was interrupted


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Peaks of one phase of a run."""

    allocated_bytes: Bytes
    reserved_bytes: Bytes


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """Of the measured steps; the warm-up is not in them."""

    seconds: list[Seconds]
    median_seconds: Seconds
    p95_seconds: Seconds
    spread: Number  # (largest - smallest) / median
    wall_seconds: Seconds  # around all measured steps, the host's work between them included
    clock: str  # cuda_events or perf_counter


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether a run was sound, by the stability contract: what failed, and what could not be judged and why."""

    stable: bool
    fail_reasons: list[str]
    not_judged: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Measurement(Record):
    """What one real run showed. What was not measured is None; `notes` says why."""

    KIND: ClassVar[str] = "measurement"

    workload: str
    knobs: Knobs
    workload_id: str
    device: str  # cuda or cpu
    outcome: Outcome
    verdict: Verdict
    warmup_steps: Count
    measure_steps: Count
    steps_done: Count = 0  # measured ones
    signal: str | None = None
    error: str | None = None
    out_of_memory_on: str | None = None  # gpu or host
    gpu: str | None = None
    capacity_bytes: Bytes | None = None  # of the card
    memory_cap_bytes: Bytes | None = None
    num_parameters: Count | None = None
    peak_allocated_bytes: Bytes | None = None
    peak_reserved_bytes: Bytes | None = None
    build: Memory | None = None
    first_step: Memory | None = None
    cold: Memory | None = None  # building and warming up
    warm: Memory | None = None  # the measured steps
    process_bytes: Bytes | None = (
        None  # peak reserved and what the process held outside the allocator
    )
    context_bytes: Bytes | None = None
    loaded_kernels_bytes: Bytes | None = None
    num_alloc_retries: Count | None = None
    times: StepTimes | None = None
    samples_per_second: Number | None = None
    tokens_per_second: Number | None = None
    warmup_seconds: list[Seconds] = field(default_factory=list)
    losses: list[float | None] = field(default_factory=list)  # warm-up included
    build_seconds: Seconds | None = None
    seconds: Seconds = 0.0  # the whole probe, as the caller waited for it
    allocator_settings: str = ""
    switches: Knobs = field(
        default_factory=dict
    )  # torch's process-wide ones, as they were in force
    torch_version: str = ""
    cuda_version: str | None = None
    driver_version: str | None = None
    driver_model: str | None = None
    notes: list[str] = field(default_factory=list)
    source: str = "measured"

    def to_dict(self) -> dict[str, Any]:
        losses = [x if x is None or math.isfinite(x) else str(x) for x in self.losses]
        return {**super().to_dict(), "losses": losses}

    @classmethod
    def upgraded(cls, data: dict[str, Any]) -> dict[str, Any]:
        """JSON has no NaN and no infinity: the losses of a broken run are written as text."""
        losses = data.get("losses")
        if not isinstance(losses, list):
            return data
        read = [float(x) if x in NOT_FINITE else x for x in losses]
        return {**data, "losses": read}
