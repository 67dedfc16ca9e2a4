"""The stability contract: when a run counts as sound. The page of `vramcast probe` says why."""

import math
from collections.abc import Sequence
from statistics import median_high

from vramcast.records.measurement import Device, FailReason, Outcome, Verdict

EXPLOSION_RATIO = 2.5
# With fewer steps, p95 is (nearly) the largest time, and one outlier would decide.
JUDGEABLE_STEPS = 20
STALL_FLOOR_SECONDS = 60.0
STALL_RATIO = 10.0
GUARD_RATIO = 0.92


def judge(
    *,
    outcome: Outcome,
    stalled: bool,
    step_seconds: Sequence[float],
    losses: Sequence[float | None],
    peak_reserved_bytes: int | None,
    # the card's memory, or the cap that stands for a smaller card
    available_bytes: int | None,
    device: Device,
    is_program: bool = False,
) -> Verdict:
    not_judged: dict[FailReason, str] = {}
    known_losses = [loss for loss in losses if loss is not None]
    if not known_losses:
        why = "the step returned no loss" if losses else "no step ended"
        if is_program:
            why = "the loss of a program is not known"
        not_judged[FailReason.NOT_FINITE] = why
    num_steps = len(step_seconds)
    if 0 < num_steps < JUDGEABLE_STEPS:
        not_judged[FailReason.STEP_TIME_EXPLOSION] = (
            f"{num_steps} steps were measured, and the 95th percentile needs {JUDGEABLE_STEPS}"
        )
    if is_program and outcome is Outcome.OK and num_steps == 0:
        not_judged[FailReason.NO_TIMES] = "the program took too few steps to time one"
    if device == Device.CPU:
        not_judged[FailReason.MEMORY_GUARD] = "the run was on the CPU"
    elif peak_reserved_bytes is None or available_bytes is None:
        not_judged[FailReason.MEMORY_GUARD] = "the memory of the card or of the run is not known"
    failed = {
        FailReason.OUT_OF_MEMORY: outcome is Outcome.OUT_OF_MEMORY,
        FailReason.NOT_FINITE: not all(map(math.isfinite, known_losses)),
        FailReason.STEP_TIME_EXPLOSION: num_steps > 0
        and p95(step_seconds) > EXPLOSION_RATIO * median_high(step_seconds),
        FailReason.STALL: stalled,
        FailReason.MEMORY_GUARD: outcome is Outcome.PAGING
        or (peak_reserved_bytes or 0) > GUARD_RATIO * (available_bytes or 0),
        FailReason.NO_TIMES: num_steps == 0,
        FailReason.EXCEPTION: outcome in (Outcome.CRASHED, Outcome.UNSUPPORTED),
    }
    reasons = [reason for reason in FailReason if failed[reason] and reason not in not_judged]
    stable = outcome is Outcome.OK and not reasons
    return Verdict(stable=stable, fail_reasons=reasons, not_judged=not_judged)


def p95(values: Sequence[float]) -> float:
    """The 95th percentile, but never below the median: of two values it is the larger."""
    return sorted(values)[max(int(0.95 * (len(values) - 1)), len(values) // 2)]


def stall_threshold_seconds(step_seconds: Sequence[float]) -> float:
    return max(STALL_FLOOR_SECONDS, STALL_RATIO * median_high(step_seconds or [0.0]))


def is_paging(
    peak_reserved_bytes: int | None,
    physical_bytes: int | None,
    driver_model: str | None,
    stalled: bool,
) -> bool:
    """Whether the driver moved GPU memory to the host instead of failing, as Windows' WDDM does.

    Reserving more than the card has proves it under any driver. A stall near the limit is a sign
    of it only under WDDM.
    """
    if peak_reserved_bytes is None or physical_bytes is None:
        return False
    hangs_under_wddm = driver_model == "WDDM" and stalled
    return peak_reserved_bytes > physical_bytes * (GUARD_RATIO if hangs_under_wddm else 1)
