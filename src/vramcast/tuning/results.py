"""What a tune found: a record that says everything a log needs, JSON both ways."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from vramcast.records.measurement import Measurement
from vramcast.records.tune import CandidateResult, MeasuredConfiguration, TuneResult
from vramcast.tuning.judging import loss_difference, peak_memory_bytes, work_of_step
from vramcast.tuning.procedure import Tuned
from vramcast.tuning.rows import Row
from vramcast.workload.configuration import Configuration


def result_of(tuned: Tuned, *, workload: str, target_steps: int, **rest: Any) -> TuneResult:
    before, after = side(tuned.baseline, tuned.baseline_runs), side(tuned.final, tuned.final_runs)
    first = tuned.baseline_runs[0]
    applied = [row.alone.speedup.ratio for row in tuned.stack if row.alone and row.alone.speedup]
    is_same_size = before.work_per_step == after.work_per_step
    return TuneResult(
        workload=workload,
        device=first.device,
        gpu=first.gpu,
        num_parameters=first.num_parameters,
        torch_version=first.torch_version,
        cuda_version=first.cuda_version,
        driver_version=first.driver_version,
        before=before,
        after=after,
        total=tuned.total,
        product_of_alone=math.prod(applied) if len(applied) == len(tuned.stack) > 0 else None,
        loss_difference=loss_difference(tuned.baseline_runs, tuned.final_runs)
        if is_same_size
        else None,
        target_steps=target_steps,
        seconds_before=target_steps * before.step_seconds,
        seconds_after=target_steps * before.work_per_step / after.per_second,
        rows=[row_result(row, tuned.stack) for row in tuned.rows],
        configuration=tuned.final.to_dict(),
        python_lines=tuned.final.python_lines(workload),
        applied_order=[row.name for row in tuned.stack],
        step_order=[row.name for row in tuned.steps],
        notes=[*tuned.notes, *_notes(before, after)],
        **rest,
    )


def side(configuration: Configuration, runs: Sequence[Measurement]) -> MeasuredConfiguration:
    work, unit = work_of_step(runs[0])
    medians = sorted(run.times.median_seconds for run in runs if run.times)
    seconds = medians[len(medians) // 2]
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


def row_result(row: Row, stack: Sequence[Row]) -> CandidateResult:
    verdict, reason, cause = settle(row, stack)
    return CandidateResult(
        name=row.name,
        what=row.entry.what,
        change=str(row.change) if row.change is not None else "",
        verdict=verdict,
        reason=reason,
        likely_cause=cause,
        caution=row.entry.caution,
        loss_tolerance=row.entry.loss_tolerance,
        alone=row.alone,
        on_top=row.on_top,
    )


def settle(row: Row, stack: Sequence[Row]) -> tuple[str, str, str]:
    """(verdict, reason, likely cause) from what it did alone and on top of the others."""
    if row.refusal:
        return "not applicable", row.refusal, ""
    if any(row is one for one in stack):
        judged = row.on_top or row.alone
        return "applied", judged.reason if judged else "", ""
    judged = (
        row.on_top
        if row.on_top and (row.on_top.verdict != "not tried" or row.alone is None)
        else row.alone
    )
    chosen = next((one for one in stack if one.entry is row.entry), None)
    if chosen is not None and judged is not None and (judged.speedup is None or not judged.is_gain):
        return judged.verdict, f"{judged.reason}; {chosen.name} was chosen", judged.likely_cause
    if chosen is not None:
        return "rejected", f"{chosen.name} was chosen on top of the others", ""
    if row.instead:
        return "rejected", f"{row.instead} took its place and is faster", ""
    if judged is None and row.found_no_size:
        return "not applicable", f"no other {row.entry.size} is worth trying, by prediction", ""
    if judged is None:
        return "not tried", "the time for the tune was spent before it was begun", ""
    if row.alone and row.alone.is_gain:
        how = (
            "it was not tried on top of the others"
            if judged is row.alone
            else f"on top of the others {judged.reason}"
        )
        return (
            ("not tried" if judged is row.alone else "rejected"),
            f"alone {row.alone.speedup}, but {how}",
            judged.likely_cause,
        )
    return judged.verdict, judged.reason, judged.likely_cause


def _notes(before: MeasuredConfiguration, after: MeasuredConfiguration) -> list[str]:
    if before.work_per_step == after.work_per_step:
        return []
    return [
        f"a step is {after.work_per_step:,.0f} {after.unit} at the end and {before.work_per_step:,.0f} at the start: times to the target "
        f"are for as many {after.unit}, speed-ups compare {after.unit} a second, and losses of steps of other sizes cannot be compared"
    ]
