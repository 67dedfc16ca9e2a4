"""The stability contract: the rules by which a run counts as sound. No torch.

oom                    the GPU's memory did not suffice
nan_or_inf             a loss was not finite
step_time_explosion    p95 of the step times is above 2.5 x their median; judged from 20 steps on
heartbeat_stall        no progress for max(60 s, 10 x median step time)
vram_guard             more than 0.92 of the memory was reserved, or the driver paged
timing_missing         no step was timed
runtime_exception      the workload raised, or its process died
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vramcast.records.measurement import (
    Clock,
    Device,
    FailReason,
    Outcome,
    StepTimes,
    Verdict,
)

EXPLOSION_RATIO = 2.5
# With fewer steps, p95 is the largest time or nearly so, and one outlier would decide.
JUDGEABLE_STEPS = 20
STALL_FLOOR_SECONDS = 60.0
STALL_RATIO = 10.0
GUARD_RATIO = 0.92


@dataclass(frozen=True, kw_only=True)
class Evidence:
    outcome: Outcome
    stalled: bool = False
    step_seconds: Sequence[float] = ()
    losses: Sequence[float | None] = ()
    peak_reserved_bytes: int | None = None
    available_bytes: int | None = None  # of the card, or the cap that stands for a smaller one
    device: Device = Device.CUDA


def judge(evidence: Evidence) -> Verdict:
    failed: set[FailReason] = set()
    not_judged: dict[FailReason, str] = {}
    if evidence.outcome is Outcome.OUT_OF_MEMORY:
        failed.add(FailReason.OUT_OF_MEMORY)
    if evidence.outcome in (Outcome.CRASHED, Outcome.UNSUPPORTED):
        failed.add(FailReason.EXCEPTION)
    if evidence.stalled:
        failed.add(FailReason.STALL)
    if any(loss is not None and not math.isfinite(loss) for loss in evidence.losses):
        failed.add(FailReason.NOT_FINITE)
    elif not any(loss is not None for loss in evidence.losses):
        not_judged[FailReason.NOT_FINITE] = (
            "the step returned no loss" if evidence.losses else "no step ended"
        )
    _judge_times(evidence, failed, not_judged)
    _judge_memory(evidence, failed, not_judged)
    return Verdict(
        stable=evidence.outcome is Outcome.OK and not failed,
        fail_reasons=[reason for reason in FailReason if reason in failed],
        not_judged=not_judged,
    )


def _judge_times(
    evidence: Evidence, failed: set[FailReason], not_judged: dict[FailReason, str]
) -> None:
    num_steps = len(evidence.step_seconds)
    if not num_steps:
        failed.add(FailReason.NO_TIMES)
    elif num_steps < JUDGEABLE_STEPS:
        not_judged[FailReason.STEP_TIME_EXPLOSION] = (
            f"{num_steps} measured steps; p95 means something from {JUDGEABLE_STEPS} on"
        )
    elif p95(evidence.step_seconds) > EXPLOSION_RATIO * median(evidence.step_seconds):
        failed.add(FailReason.STEP_TIME_EXPLOSION)


def _judge_memory(
    evidence: Evidence, failed: set[FailReason], not_judged: dict[FailReason, str]
) -> None:
    reserved, available = evidence.peak_reserved_bytes, evidence.available_bytes
    if evidence.device == Device.CPU:
        not_judged[FailReason.MEMORY_GUARD] = "the run was on the CPU"
    elif reserved is None or available is None:
        not_judged[FailReason.MEMORY_GUARD] = "the memory of the card or of the run is not known"
    elif evidence.outcome is Outcome.PAGING or reserved > GUARD_RATIO * available:
        failed.add(FailReason.MEMORY_GUARD)


def median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def p95(values: Sequence[float]) -> float:
    """Never below the median: of two values it is the larger."""
    return sorted(values)[max(int(0.95 * (len(values) - 1)), len(values) // 2)]


def stall_threshold_seconds(
    step_seconds: Sequence[float], floor_seconds: float = STALL_FLOOR_SECONDS
) -> float:
    return max(floor_seconds, STALL_RATIO * median(step_seconds)) if step_seconds else floor_seconds


def step_times(seconds: Sequence[float], wall_seconds: float, clock: Clock) -> StepTimes | None:
    if not seconds:
        return None
    middle = median(seconds)
    spread = (max(seconds) - min(seconds)) / middle if middle > 0 else 0.0
    return StepTimes(
        seconds=list(seconds),
        median_seconds=middle,
        p95_seconds=p95(seconds),
        spread=spread,
        wall_seconds=wall_seconds,
        clock=clock,
    )


def is_paging(
    *,
    driver_model: str | None,
    peak_reserved_bytes: int | None,
    physical_bytes: int | None,
    stalled: bool,
) -> bool:
    """Whether the driver moved GPU memory to the host instead of failing, as Windows' WDDM does.

    Reserving more than the card has proves it under any driver. A stall near the limit is a sign
    of it only under WDDM.
    """
    if peak_reserved_bytes is None or physical_bytes is None:
        return False
    if peak_reserved_bytes > physical_bytes:
        return True
    return driver_model == "WDDM" and stalled and peak_reserved_bytes > GUARD_RATIO * physical_bytes
