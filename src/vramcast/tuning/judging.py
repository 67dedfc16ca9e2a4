"""Was a candidate worth it? A verdict with its reason, from the runs without and with it.

One run counts as one number, the median of its steps: the steps of one process resemble each other.
Times are compared as ratios, with one spread for both sides because there are few runs.
"""

import math
import re
import statistics
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vramcast.probing.significance import pooled
from vramcast.records.measurement import FailReason, Measurement, MemoryOf, Outcome
from vramcast.records.tune import Reason, Speedup, TrialResult, TuneVerdict
from vramcast.tuning.optimisations import Optimisation, Refusal
from vramcast.units import format_bytes, format_percent

# A smaller gain is not worth a change of settings.
LEAST_GAIN = 0.02
# Many candidates are tried: with 0.05, many tunes would apply one by chance.
SIGNIFICANCE_LEVEL = 0.01
# If the interval reaches this far, a slower run proves nothing.
MUCH_NOISE = 1.5
# After two wild runs the end of an interval may be too large for a float.
MAX_LOGARITHM = 50.0

CAUSES = tomllib.loads(Path(__file__).with_name("error_causes.toml").read_text())["cause"]
_SIZE = r"([0-9.]+) (bytes|[kmgt]ib)"
_UNITS = {"bytes": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}

Runs = Sequence[Measurement]


def judge(baseline: Runs, candidate: Runs, optimisation: Optimisation) -> TrialResult:
    """The verdict. `baseline` are runs that ended well; those of the candidate may have failed."""
    good = [run for run in candidate if run.outcome == Outcome.OK]
    failed = [run for run in candidate if run.outcome != Outcome.OK]
    result = _failed(failed[0]) if failed else _compared(baseline, good, optimisation)
    return replace(
        result,
        memory_before_bytes=peak_memory_bytes(baseline),
        memory_after_bytes=peak_memory_bytes(good),
        num_runs=[len(baseline), len(candidate)],
    )


def _failed(run: Measurement) -> TrialResult:
    if run.outcome in (Outcome.OUT_OF_MEMORY, Outcome.PAGING):
        missing = missing_bytes_of(run.error)
        much = "" if missing is None else f": {format_bytes(missing)} are missing"
        where = " of the host" if run.out_of_memory_on == MemoryOf.HOST else ""
        sentence = f"it needs more memory{where} than there is{much}"
        return ended(TuneVerdict.REJECTED, Reason.OUT_OF_MEMORY, sentence, missing_bytes=missing)
    codes = {Outcome.TIMEOUT: Reason.TIMEOUT, Outcome.UNSUPPORTED: Reason.UNSUPPORTED}
    return ended(
        TuneVerdict.FAILED,
        codes.get(run.outcome, Reason.CRASHED),
        f"{run.outcome}: {last_line(run.error)}",
        likely_cause=likely_cause(run.error),
    )


def ended(verdict: TuneVerdict, code: Reason, sentence: str, **more: Any) -> TrialResult:
    return TrialResult(verdict=verdict, reason_code=code, reason=sentence, **more)


def no_time(when: str = "before it was begun") -> TrialResult:
    sentence = f"the time for the tune was spent {when}"
    return ended(TuneVerdict.NOT_TRIED, Reason.BUDGET_SPENT, sentence)


def last_line(error: str | None) -> str:
    return ((error or "").strip() or "no error message").splitlines()[-1]


def _compared(baseline: Runs, candidate: Runs, optimisation: Optimisation) -> TrialResult:
    speedup, tolerance = compare(baseline, candidate), optimisation.loss_tolerance
    difference = None if tolerance is None else loss_difference(baseline, candidate)
    refusal = (
        _other_losses(baseline, candidate, tolerance, difference)
        or _too_much_memory(candidate)
        or _too_little_gain(speedup, len(candidate))
    )
    if refusal is None and optimisation.changes_training:
        only = f"ask for it with --only {optimisation.name}"
        text = f"{speedup}, but it changes what is trained: {only}"
        refusal = Refusal(Reason.CHANGES_TRAINING, text)
    verdict = TuneVerdict.REJECTED if refusal else TuneVerdict.APPLIED
    why = refusal or Refusal(Reason.FASTER, f"{speedup} by {speedup.by}")
    return ended(verdict, *why, speedup=speedup, loss_difference=difference)


def _other_losses(
    baseline: Runs, candidate: Runs, tolerance: float | None, difference: float | None
) -> Refusal | None:
    if not all(map(has_finite_losses, candidate)):
        return Refusal(Reason.LOSSES_NOT_FINITE, "its losses are not finite")
    if tolerance is None or all(loss is None for run in baseline for loss in run.losses):
        return None
    if difference is None:
        return Refusal(Reason.NO_LOSSES, "it gives no losses that could be compared")
    # A difference smaller than that between runs of the baseline cannot be judged.
    own = loss_difference(baseline[:1], baseline[1:]) or 0.0
    if difference <= tolerance + own:
        return None
    found, allowed = format_percent(difference), format_percent(tolerance)
    text = f"other losses: they differ by {found}, and {allowed} is allowed"
    if own > tolerance / 10:
        text += f" (two runs of the baseline differ by {own:.1e} themselves)"
    return Refusal(Reason.OTHER_LOSSES, text)


def has_finite_losses(run: Measurement) -> bool:
    return FailReason.NOT_FINITE not in run.verdict.fail_reasons


def loss_difference(baseline: Runs, candidate: Runs) -> float | None:
    """The largest relative difference at any step where both losses are finite."""
    found = [
        abs(ours - theirs) / max(abs(theirs), 1e-12)
        for first in baseline[:1]
        for run in candidate
        for ours, theirs in zip(run.losses, first.losses, strict=False)
        if ours is not None and theirs is not None and math.isfinite(ours) and math.isfinite(theirs)
    ]
    return max(found, default=None)


def _too_much_memory(candidate: Runs) -> Refusal | None:
    for run in candidate:
        if FailReason.MEMORY_GUARD in run.verdict.fail_reasons and run.peak_reserved_bytes:
            return Refusal(
                Reason.TOO_MUCH_MEMORY,
                f"it takes {format_bytes(run.peak_reserved_bytes)}, "
                "which leaves too little for a long run (0.92 of the memory may be taken)",
            )
    return None


def _too_little_gain(speedup: Speedup, num_runs: int) -> Refusal | None:
    ratio, high = speedup.ratio, speedup.high or 0.0
    if ratio < 1 - LEAST_GAIN and high < 1:
        return Refusal(Reason.SLOWER, f"slower: {speedup}")
    if ratio < 1 + LEAST_GAIN:
        if high > MUCH_NOISE:
            text = f"no gain seen, but so much noise that nothing can be told: {speedup}"
            return Refusal(Reason.NOISE, text)
        if ratio < 1 - LEAST_GAIN:
            return Refusal(Reason.NO_GAIN, f"no gain: {speedup}")
        least = f"{format_percent(LEAST_GAIN)} is the least that counts"
        return Refusal(Reason.TOO_LITTLE_GAIN, f"too little gain: {speedup}, and {least}")
    if num_runs < 2 or speedup.p_value is None:
        return Refusal(Reason.TOO_FEW_RUNS, f"not judged: {speedup} from too few runs")
    if speedup.p_value > SIGNIFICANCE_LEVEL:
        text = f"not distinguishable from noise: {speedup}, p = {speedup.p_value:.2g}"
        return Refusal(Reason.NOISE, text)
    return None


def compare(baseline: Runs, candidate: Runs) -> Speedup:
    (before, unit), (after, _) = work_of_step(baseline[0]), work_of_step(candidate[0])
    by = "step time" if before == after else f"{unit} a second"
    first = [math.log(median_seconds(run) / before) for run in baseline]
    second = [math.log(median_seconds(run) / after) for run in candidate]
    ratio = math.exp(statistics.fmean(first) - statistics.fmean(second))
    if len(first) + len(second) < 3:
        return Speedup(ratio=ratio, by=by)
    test = pooled(second, first)
    low, high = (math.exp(min(end, MAX_LOGARITHM)) for end in test.interval)
    return Speedup(ratio=ratio, low=low, high=high, p_value=test.p_value, by=by)


def work_of_step(run: Measurement) -> tuple[float, str]:
    """How much a step does, and in which unit: tokens; samples if the length is unknown; else one
    step."""
    batch, length = run.knobs.get("batch_size"), run.knobs.get("seq_len")
    if type(batch) is not int or batch < 1:
        return 1.0, "steps"
    if type(length) is not int or length < 1:
        return float(batch), "samples"
    return float(batch * length), "tokens"


def median_seconds(run: Measurement) -> float:
    assert run.times is not None, "a run that ended well has times"
    return run.times.median_seconds


def peak_memory_bytes(runs: Runs) -> int | None:
    """The peak reserved memory. On the CPU, where nothing is reserved, the peak allocated
    memory."""
    known = [run.peak_reserved_bytes or run.peak_allocated_bytes or 0 for run in runs]
    return max(known, default=0) or None


def likely_cause(error: str | None) -> str:
    """The likely cause of an error. Indented lines of a traceback, which are code, are not
    searched."""
    text = re.sub(r"^  .*\n?", "", error or "", flags=re.MULTILINE).lower()
    for one in CAUSES:
        if any(re.search(pattern, text, re.DOTALL) for pattern in one["patterns"]):
            return str(one["cause"])
    return ""


def missing_bytes_of(error: str | None) -> int | None:
    """The bytes that were asked for, minus those that the GPU or the limit still had."""
    asked = _bytes(rf"tried to allocate {_SIZE}", error)
    free = _bytes(rf"of which {_SIZE} is free", error)
    if asked is None or free is None:
        return asked
    allowed = _bytes(rf"{_SIZE} allowed;", error)
    if allowed is not None:
        allocated = _bytes(rf"{_SIZE} is allocated by pytorch", error) or 0
        cached = _bytes(rf"{_SIZE} is reserved by pytorch", error) or 0
        free = min(free, allowed - allocated - cached)
    return max(1, asked - max(0, free))


def _bytes(pattern: str, error: str | None) -> int | None:
    match = re.search(pattern, error or "", re.IGNORECASE)
    return round(float(match[1]) * _UNITS[match[2].lower()]) if match else None
