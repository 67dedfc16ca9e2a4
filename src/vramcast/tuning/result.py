"""From the end of a search to the record of the tune."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from vramcast.probing.trial import Trial
from vramcast.records.machine import Machine
from vramcast.records.measurement import Measurement
from vramcast.records.tune import (
    CandidateResult,
    MeasuredConfiguration,
    Reason,
    Speedup,
    TrialResult,
    TuneResult,
    TuneVerdict,
)
from vramcast.tuning.candidates import Candidate
from vramcast.tuning.judging import (
    LEAST_GAIN,
    SIGNIFICANCE_LEVEL,
    ended,
    loss_difference,
    median_seconds,
    no_time,
    peak_memory_bytes,
    work_of_step,
)
from vramcast.tuning.search import Search
from vramcast.workload.configuration import Configuration


def result_of(
    search: Search, total: Speedup, trial: Trial, target_steps: int, machine: Machine
) -> TuneResult:
    stack, applied = search.stack, search.stack.candidates
    start_runs, end_runs = map(search.trials.good_runs, (stack.baseline, stack.configuration))
    before = _measured(stack.baseline, start_runs)
    after = _measured(stack.configuration, end_runs)
    first = start_runs[0]
    alone = [one.alone.speedup.ratio for one in applied if one.alone and one.alone.speedup]
    is_same_size = before.work_per_step == after.work_per_step
    return TuneResult(
        workload=trial.workload,
        knobs=first.knobs,
        device=first.device,
        gpu=first.gpu,
        memory_bytes=trial.memory_cap_bytes,
        num_parameters=first.num_parameters,
        torch_version=first.torch_version,
        cuda_version=first.cuda_version,
        driver_version=first.driver_version,
        machine=machine,
        before=before,
        after=after,
        total=total,
        product_of_alone=math.prod(alone) if len(alone) == len(applied) > 0 else None,
        loss_difference=loss_difference(start_runs, end_runs) if is_same_size else None,
        target_steps=target_steps,
        seconds_before=target_steps * before.step_seconds,
        seconds_after=target_steps * before.work_per_step / after.per_second,
        rows=[_candidate_result(one, applied) for one in search.candidates],
        configuration=stack.configuration.to_dict(),
        python_lines=stack.configuration.python_lines(trial.workload),
        applied_order=[one.name for one in applied],
        step_order=[one.name for one in stack.steps.values()],
        notes=[*search.notes, *([] if is_same_size else [_size_note(before, after)])],
        least_gain=LEAST_GAIN,
        significance_level=SIGNIFICANCE_LEVEL,
    )


def _measured(configuration: Configuration, runs: Sequence[Measurement]) -> MeasuredConfiguration:
    work, unit = work_of_step(runs[0])
    seconds = statistics.median_high(map(median_seconds, runs))
    losses = [loss for loss in runs[0].losses if loss is not None and math.isfinite(loss)]
    return MeasuredConfiguration(
        configuration=configuration.to_dict(),
        step_seconds=seconds,
        work_per_step=work,
        unit=unit,
        per_second=work / seconds,
        memory_bytes=peak_memory_bytes(runs),
        first_loss=losses[0] if losses else None,
        last_loss=losses[-1] if losses else None,
        num_runs=len(runs),
    )


def _candidate_result(candidate: Candidate, applied: Sequence[Candidate]) -> CandidateResult:
    end = conclusion(candidate, applied)
    return CandidateResult(
        name=candidate.name,
        what=candidate.optimisation.what,
        change=str(candidate.change),
        verdict=end.verdict,
        reason=end.reason,
        reason_code=end.reason_code,
        likely_cause=end.likely_cause,
        caution=candidate.optimisation.caution,
        loss_tolerance=candidate.optimisation.loss_tolerance,
        alone=candidate.alone,
        on_top=candidate.on_top,
    )


def conclusion(candidate: Candidate, applied: Sequence[Candidate]) -> TrialResult:
    """The verdict over all trials of a candidate, alone and on top of the others."""
    alone, last = candidate.alone, candidate.last or candidate.not_tried
    if candidate.refusal:
        return ended(TuneVerdict.NOT_APPLICABLE, *candidate.refusal)
    if candidate in applied:
        return ended(TuneVerdict.APPLIED, Reason.FASTER, last.reason if last else "")
    for other in applied:
        if other.optimisation is candidate.optimisation:  # another size
            if last and not last.is_gain:
                return replace(last, reason=f"{last.reason}; {other.name} was chosen")
            sentence = f"{other.name} was chosen on top of the others"
            return ended(TuneVerdict.REJECTED, Reason.REPLACED, sentence)
    if candidate.replaced_by:
        sentence = f"{candidate.replaced_by} took its place and is faster"
        return ended(TuneVerdict.REJECTED, Reason.REPLACED, sentence)
    if last is None:
        return no_time()
    if alone is None or not alone.is_gain:
        return last
    if last is alone:
        sentence = f"alone {alone.speedup}, but it was not tried on top of the others"
        return ended(TuneVerdict.NOT_TRIED, Reason.BUDGET_SPENT, sentence)
    sentence = f"alone {alone.speedup}, but on top of the others {last.reason}"
    return replace(last, verdict=TuneVerdict.REJECTED, reason=sentence)


def _size_note(before: MeasuredConfiguration, after: MeasuredConfiguration) -> str:
    unit = after.unit
    return (
        f"a step is {after.work_per_step:,.0f} {unit} at the end and "
        f"{before.work_per_step:,.0f} at the start: times to the target are for as many {unit}, "
        f"speed-ups compare {unit} a second, and losses of steps of other sizes cannot be compared"
    )
