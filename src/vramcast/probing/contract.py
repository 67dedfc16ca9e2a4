"""The stability contract: was a run sound? The vocabulary is that of document 004; where its gates were wrong, these are right.

    oom                    the GPU's memory did not suffice
    nan_or_inf             a loss was not finite
    step_time_explosion    p95 of the step times above 2.5 x their median; with fewer than 20 steps "not judged", not passed
    heartbeat_stall        no progress for max(60 s, 10 x median step time)
    vram_guard             reserved above 0.92 of the memory there is; a run beyond physical memory never counts as valid
    timing_missing         no step was timed
    runtime_exception      the workload raised, or its process died

Pure functions; no torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vramcast.records.measurement import StepTimes, Verdict

EXPLOSION_RATIO = 2.5
JUDGEABLE_STEPS = 20  # p95 of fewer is their largest or nearly so: the gate would judge one outlier, or (up to 4) nothing
STALL_FLOOR_SECONDS = 60.0
STALL_RATIO = 10.0
GUARD_RATIO = 0.92
REASONS = (
    "oom",
    "nan_or_inf",
    "step_time_explosion",
    "heartbeat_stall",
    "vram_guard",
    "timing_missing",
    "runtime_exception",
)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    outcome: str
    stalled: bool = False
    step_seconds: Sequence[float] = ()
    losses: Sequence[float | None] = ()
    peak_reserved_bytes: int | None = None
    available_bytes: int | None = None  # of the card, or the cap that stands for a smaller one
    device: str = "cuda"


def judge(evidence: Evidence) -> Verdict:
    failed: list[str] = []
    not_judged: dict[str, str] = {}
    if evidence.outcome == "out_of_memory":
        failed.append("oom")
    if evidence.outcome in ("crashed", "unsupported"):
        failed.append("runtime_exception")
    if evidence.stalled:
        failed.append("heartbeat_stall")
    if any(loss is not None and not math.isfinite(loss) for loss in evidence.losses):
        failed.append("nan_or_inf")
    elif not any(loss is not None for loss in evidence.losses):
        not_judged["nan_or_inf"] = (
            "the step returned no loss" if evidence.losses else "no step came to its end"
        )
    _judge_times(evidence, failed, not_judged)
    _judge_memory(evidence, failed, not_judged)
    stable = evidence.outcome == "ok" and not failed
    return Verdict(
        stable=stable, fail_reasons=sorted(failed, key=REASONS.index), not_judged=not_judged
    )


def _judge_times(evidence: Evidence, failed: list[str], not_judged: dict[str, str]) -> None:
    steps = len(evidence.step_seconds)
    if not steps:
        failed.append("timing_missing")
    elif steps < JUDGEABLE_STEPS:
        not_judged["step_time_explosion"] = (
            f"{steps} measured steps; p95 means something from {JUDGEABLE_STEPS} on"
        )
    elif p95(evidence.step_seconds) > EXPLOSION_RATIO * median(evidence.step_seconds):
        failed.append("step_time_explosion")


def _judge_memory(evidence: Evidence, failed: list[str], not_judged: dict[str, str]) -> None:
    if evidence.device == "cpu":
        not_judged["vram_guard"] = "the run was on the CPU"
    elif evidence.peak_reserved_bytes is None or evidence.available_bytes is None:
        not_judged["vram_guard"] = "the memory of the card or of the run is not known"
    elif (
        evidence.outcome == "paging"
        or evidence.peak_reserved_bytes > GUARD_RATIO * evidence.available_bytes
    ):
        failed.append("vram_guard")


def median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def p95(values: Sequence[float]) -> float:
    """The document's own index; of two values it would be the smaller, below their median."""
    return sorted(values)[max(int(0.95 * (len(values) - 1)), len(values) // 2)]


def stall_threshold_seconds(
    step_seconds: Sequence[float], floor_seconds: float = STALL_FLOOR_SECONDS
) -> float:
    return max(floor_seconds, STALL_RATIO * median(step_seconds)) if step_seconds else floor_seconds


def step_times(seconds: Sequence[float], wall_seconds: float, clock: str) -> StepTimes | None:
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
    """Windows' WDDM lets a process have more GPU memory than there is and pages it: numbers from such a run are of the paging.

    Reserving more than the card has is proof under any driver; a stall is a sign of it only where the driver pages at all.
    """
    if peak_reserved_bytes is None or physical_bytes is None:
        return False
    if peak_reserved_bytes > physical_bytes:
        return True
    return driver_model == "WDDM" and stalled and peak_reserved_bytes > GUARD_RATIO * physical_bytes
