"""Was it worth it? Pure: from the runs without and with a change to a verdict with its reason.

Three gates, in this order: the losses are the baseline's within the entry's stated tolerance; the difference is significant; it is above
the floor. One run is one number, the median of its steps: steps of one process are alike for reasons of their own, so that many of them
say less than two processes do. Times are compared as ratios (on a logarithmic scale), with one spread for both sides: there are few runs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vramcast.probing.significance import pooled
from vramcast.records.measurement import Measurement
from vramcast.records.tune import Speedup, TrialResult
from vramcast.tuning.causes import likely_cause, missing_bytes_of
from vramcast.tuning.entry import Entry
from vramcast.units import format_bytes, format_percent

LARGEST_LOGARITHM = 50.0  # of an interval's end: of two wild runs it may be beyond all numbers
LEAST_RUNS = 2  # of the candidate, before it is applied
NOTHING_KNOWN = (
    1.5  # times as fast: where that is within the noise, a run that was slower says nothing
)


@dataclass(frozen=True, kw_only=True)
class Limits:
    floor: float = 0.02  # a gain below this is not worth another setting
    level: float = (
        0.01  # many are tried: with 0.05, chance alone would have something applied in many tunes
    )
    may_change_training: bool = False  # what makes another model of it was asked for by name


def verdict(
    baseline: Sequence[Measurement], candidate: Sequence[Measurement], entry: Entry, limits: Limits
) -> TrialResult:
    """`baseline` ran; of the candidate, whatever came of it."""
    broken = next((run for run in candidate if run.outcome != "ok"), None)
    if broken is not None:
        return _broken(broken, baseline, candidate)
    speedup = compare(baseline, candidate)
    difference = None if entry.loss_tolerance is None else loss_difference(baseline, candidate)
    refusal = (
        _other_losses(baseline, candidate, entry, difference)
        or _too_much_memory(candidate)
        or _too_little(speedup, len(candidate), limits)
        or _another_model(speedup, entry, limits)
    )
    return TrialResult(
        verdict="rejected" if refusal else "applied",
        reason=refusal or f"{speedup} by {speedup.by}",
        speedup=speedup,
        loss_difference=difference,
        **_evidence(baseline, candidate),
    )


# ------------------------------------------------------------------------------------------------------------------- it did not run
def _broken(
    run: Measurement, baseline: Sequence[Measurement], candidate: Sequence[Measurement]
) -> TrialResult:
    evidence = _evidence(baseline, candidate)
    if run.outcome in ("out_of_memory", "paging"):
        missing = missing_bytes_of(run.error)
        much = "" if missing is None else f": {format_bytes(missing)} are missing"
        where = " of the host" if run.out_of_memory_on == "host" else ""
        return TrialResult(
            verdict="rejected",
            reason=f"it needs more memory{where} than there is{much}",
            missing_bytes=missing,
            **evidence,
        )
    error = " ".join((run.error or "no word why").strip().splitlines()[-1:])
    return TrialResult(
        verdict="failed",
        reason=f"{run.outcome}: {error}",
        likely_cause=likely_cause(run.error),
        **evidence,
    )


# ----------------------------------------------------------------------------------------------------------------------- the gates
def _other_losses(
    baseline: Sequence[Measurement],
    candidate: Sequence[Measurement],
    entry: Entry,
    difference: float | None,
) -> str | None:
    if not all(has_finite_losses(run) for run in candidate):
        return "its losses are not finite"
    if entry.loss_tolerance is None:
        return None
    if difference is None:
        return (
            "it gives no losses that could be compared"
            if any(_known_losses(run) for run in baseline)
            else None
        )
    own = (
        loss_difference(baseline[:1], baseline[1:]) or 0.0
    )  # a workload whose runs differ among themselves cannot be judged finer
    if difference <= entry.loss_tolerance + own:
        return None
    spread = (
        f" (two runs of the baseline differ by {own:.1e} themselves)"
        if own > entry.loss_tolerance / 10
        else ""
    )
    return f"other losses: they differ by {format_percent(difference)}, and {format_percent(entry.loss_tolerance)} is allowed{spread}"


def has_finite_losses(run: Measurement) -> bool:
    """Also where it has none."""
    return all(map(math.isfinite, _known_losses(run)))


def _known_losses(run: Measurement) -> list[float]:
    return [loss for loss in run.losses if loss is not None]


def loss_difference(
    baseline: Sequence[Measurement], candidate: Sequence[Measurement]
) -> float | None:
    """The largest of any step of which both have a number; None where there is none."""
    found = [
        abs(ours - theirs) / max(abs(theirs), 1e-12)
        for theirs_run in baseline[:1]
        for run in candidate
        for ours, theirs in zip(run.losses, theirs_run.losses, strict=False)
        if ours is not None and theirs is not None and math.isfinite(ours) and math.isfinite(theirs)
    ]
    return max(found, default=None)


def _too_much_memory(candidate: Sequence[Measurement]) -> str | None:
    full = next((run for run in candidate if "vram_guard" in run.verdict.fail_reasons), None)
    if full is None or full.peak_reserved_bytes is None:
        return None
    return f"it takes {format_bytes(full.peak_reserved_bytes)}, which leaves too little for a long run (0.92 of the memory may be taken)"


def _too_little(speedup: Speedup, num_runs: int, limits: Limits) -> str | None:
    if speedup.ratio < 1.0 - limits.floor and (speedup.high is None or speedup.high < 1):
        return f"slower: {speedup}"
    if (
        speedup.ratio < 1.0 + limits.floor
        and speedup.high is not None
        and speedup.high > NOTHING_KNOWN
    ):
        return f"no gain seen, but so much noise that nothing can be told: {speedup}"
    if speedup.ratio < 1.0 - limits.floor:
        return f"no gain: {speedup}"
    if speedup.ratio < 1.0 + limits.floor:
        return f"too little gain: {speedup}, and {100 * limits.floor:g} % is the least that counts"
    if num_runs < LEAST_RUNS or speedup.p_value is None:
        return f"not judged: {speedup} from too few runs"
    if speedup.p_value > limits.level:
        return f"not distinguishable from noise: {speedup}, p = {speedup.p_value:.2g}"
    return None


def _another_model(speedup: Speedup, entry: Entry, limits: Limits) -> str | None:
    if not entry.changes_training or limits.may_change_training:
        return None
    return f"{speedup}, but it changes what is trained: ask for it with --only {entry.name}"


# ----------------------------------------------------------------------------------------------------------------------- comparing
def compare(baseline: Sequence[Measurement], candidate: Sequence[Measurement]) -> Speedup:
    by, (before, after) = _units(baseline[0], candidate[0])
    first = [math.log(_median(run) / before) for run in baseline]
    second = [math.log(_median(run) / after) for run in candidate]
    gain = statistics.fmean(first) - statistics.fmean(second)
    if len(first) + len(second) < 3:
        return Speedup(ratio=math.exp(gain), by=by)
    test = pooled(second, first)
    low, high = (math.exp(min(end, LARGEST_LOGARITHM)) for end in test.interval)
    return Speedup(ratio=math.exp(gain), low=low, high=high, p_value=test.p_value, by=by)


def _units(before: Measurement, after: Measurement) -> tuple[str, tuple[float, float]]:
    """What a step is of, where that is not the same on both sides."""
    sizes = work_of_step(before), work_of_step(after)
    if sizes[0] == sizes[1]:
        return "step time", (1.0, 1.0)
    return f"{sizes[0][1]} a second", (sizes[0][0], sizes[1][0])


def work_of_step(run: Measurement) -> tuple[float, str]:
    """(tokens, "tokens"), or samples where the length is not known, or one step."""
    batch, length = run.knobs.get("batch_size"), run.knobs.get("seq_len")
    if type(batch) is not int or batch < 1:
        return 1.0, "steps"
    return (
        (float(batch * length), "tokens")
        if type(length) is int and length > 0
        else (float(batch), "samples")
    )


def _median(run: Measurement) -> float:
    assert run.times is not None, "a run that ended well has times"
    return run.times.median_seconds


def _evidence(baseline: Sequence[Measurement], candidate: Sequence[Measurement]) -> dict[str, Any]:
    return {
        "memory_before_bytes": peak_memory_bytes(baseline),
        "memory_after_bytes": peak_memory_bytes([run for run in candidate if run.outcome == "ok"]),
        "num_runs": [len(baseline), len(candidate)],
    }


def peak_memory_bytes(runs: Sequence[Measurement]) -> int | None:
    """Reserved; on the CPU, where nothing is, allocated."""
    known = [
        m
        for run in runs
        if (
            m := run.peak_reserved_bytes
            if run.peak_reserved_bytes is not None
            else run.peak_allocated_bytes
        )
    ]
    return max(known, default=None)
