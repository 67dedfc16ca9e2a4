"""`vramcast.tune`: find the settings that make a step fastest."""

import contextlib
import hashlib
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from vramcast.hardware import machine as machines
from vramcast.hardware import nvml
from vramcast.hardware.environment import command_line
from vramcast.hardware.gpus import find_gpu
from vramcast.probing.manager import Prober, preload_for, start_of
from vramcast.probing.probe import line_of_trial
from vramcast.probing.trial import Trial, device_named
from vramcast.processes.progress import Report, ignore
from vramcast.records.base import plain_value
from vramcast.records.machine import Machine
from vramcast.records.measurement import Device, Measurement
from vramcast.records.store import write_atomically, write_json
from vramcast.records.tune import (
    CandidateResult,
    MeasuredConfiguration,
    Reason,
    Speedup,
    TrialResult,
    TuneResult,
    TuneVerdict,
)
from vramcast.reporting.showing import markdown_of
from vramcast.simulate.runner import shared_server
from vramcast.tuning import judging
from vramcast.tuning.candidates import Candidate
from vramcast.tuning.folder import TuneFolder
from vramcast.tuning.inspection import inspect_workload
from vramcast.tuning.optimisations import chosen, missing_on
from vramcast.tuning.predictions import predicted_gains
from vramcast.tuning.runner import Runner
from vramcast.tuning.search import Search
from vramcast.units import check_whole_number, memory_in_bytes, parse_duration
from vramcast.workload import Text, Workload, joined, name_of, parse_reference
from vramcast.workload.configuration import Configuration
from vramcast.workload.launch_line import LaunchLine
from vramcast.workload.launchers import read_line

TARGET_STEPS = 200_000
LINE_NOTE = (
    "the losses of a program are not seen: whether it trains as well with these settings is not "
    "compared"
)


def tune(
    workload: Workload,
    *,
    out: str | Path,
    only: str | None = None,
    budget: str | float | None = None,
    gpu: str | None = None,
    memory: str | int | None = None,
    target_steps: int = TARGET_STEPS,
    device: str = "cuda",
    outlook: bool = True,
    force: bool = False,
    progress: Report = ignore,
    knobs: Mapping[str, Any] | None = None,
    **more_knobs: Any,
) -> TuneResult:
    """Find the settings that make the workload's step fastest, by running each.

    `tune("train.py:build", out="runs/tune", budget="20min")`. The log.md in `out` says what came of
    every one. `out` keeps every run; called again with the same one it goes on. Of a launch line,
    `{name}` are the knobs.
    """
    optimisations = chosen(only)
    budget_seconds = parse_duration(budget) if isinstance(budget, str) else budget
    check_whole_number("--target-steps", target_steps, TARGET_STEPS)
    values = joined(knobs, more_knobs)
    trial = Trial(
        workload=name_of(workload),
        knobs=values,
        **line_of_trial(workload, values),
        device=device_named(device),
        memory_cap_bytes=memory_in_bytes(memory),
    )
    if gpu is not None:
        gpu = find_gpu(gpu).name
    if trial.device == Device.CUDA:
        nvml.require_gpu(
            "tune on",
            "Add --device cpu to try the settings on the CPU, or use vramcast predict and "
            "max-batch, which need no GPU.",
        )
        gpu = gpu or nvml.gpu_here()
    request = _request(trial, gpu, only)
    with (
        contextlib.closing(TuneFolder(Path(out), request, force=force)) as folder,
        _prober(trial) as prober,
        shared_server(),
    ):
        prober.start()  # imports torch while the workload is inspected
        started = time.monotonic()
        allowed = math.inf if budget_seconds is None else budget_seconds
        with ThreadPoolExecutor(1) as beside:
            machine = beside.submit(machines.look)
            in_force, candidates = inspect_workload(trial, optimisations, timeout_seconds=allowed)
        result = tune_with(
            Runner(trial, gpu, prober, folder, allowed - (time.monotonic() - started)),
            candidates,
            baseline_of(trial.knobs, in_force),
            machine.result(),
            target_steps=target_steps,
            outlook=outlook,
            progress=progress,
        )
        result = replace(
            result,
            budget_seconds=budget_seconds,
            seconds=time.monotonic() - started,
            num_earlier_runs=folder.num_resumed,
            time_utc=datetime.now(UTC).isoformat(timespec="seconds"),
            command=command_line(),
        )
        if trial.line:
            result = replace(result, notes=[*result.notes, LINE_NOTE])
        _write(result, folder.path)
    return result


def _write(result: TuneResult, folder: Path) -> None:
    final = Configuration.from_dict(result.configuration)
    final.save(folder / "final.json", workload=result.workload, made_by="vramcast tune")
    log = markdown_of(result, f"Optimisation log of {result.workload}")
    write_atomically(folder / "log.md", log)
    write_json(folder / "result.json", result.to_dict())


def _prober(trial: Trial) -> Prober:
    return Prober(**start_of(trial)) if trial.line else Prober(preload_for(trial.workload))


def _request(trial: Trial, gpu: str | None, only: str | None) -> dict[str, Any]:
    """What must be the same if earlier runs are to be used."""
    here = nvml.gpu_states()
    return {
        "version": 1,
        "workload": trial.workload,
        "knobs": {name: plain_value(value) for name, value in trial.knobs.items()},
        "only": only,
        "device": trial.device,
        "gpu": gpu,
        "memory": trial.memory_cap_bytes,
        "here": here[0].name if here else None,
        "torch": version("torch"),
        "file": _file_hash(trial),
    }


def _file_hash(trial: Trial) -> str | None:
    if not trial.line:
        return parse_reference(trial.workload).file_hash()
    program = read_line(LaunchLine(trial.line).filled(trial.knobs))
    if program.is_module:
        return None
    return hashlib.sha256(Path(program.target).read_bytes()).hexdigest()


def tune_with(
    runner: Runner,
    candidates: Sequence[Candidate],
    baseline: Configuration,
    machine: Machine,
    *,
    target_steps: int,
    outlook: bool = True,
    progress: Report = ignore,
) -> TuneResult:
    """A whole tune. Tests give it a runner with invented numbers."""
    for one in candidates:
        one.refusal = missing_on(one.optimisation, machine, runner.trial.device) or one.refusal
    search = Search(runner, candidates, baseline, progress)
    total, final = search.run(), search.trials.configuration
    result = result_of(search, total, target_steps, machine)
    if not outlook:
        return result
    gains, notes = predicted_gains(runner, final, search.size_of(final, "seq_len"))
    return replace(result, prospects=gains, notes=[*result.notes, *notes])


def baseline_of(knobs: Mapping[str, Any], in_force: Mapping[str, Any]) -> Configuration:
    """The given knobs, with the values that the workload made of them."""
    plain = {name: in_force[name] for name in knobs}
    for name, given in knobs.items():
        # A dtype or an Enum comes back as another text; the original text must be given again.
        if isinstance(given, Text) and isinstance(plain[name], str) and plain[name] != given:
            plain[name] = given
    return Configuration(knobs=plain)


def result_of(search: Search, total: Speedup, target_steps: int, machine: Machine) -> TuneResult:
    trial, trials, final = search.runner.trial, search.trials, search.trials.configuration
    start_runs, end_runs = trials.good_runs(trials.baseline), trials.good_runs(final)
    before, after = _measured(trials.baseline, start_runs), _measured(final, end_runs)
    first = start_runs[0]
    alone = [one.alone.speedup.ratio for one in trials.applied if one.alone and one.alone.speedup]
    is_same_size, unit = before.work_per_step == after.work_per_step, after.unit
    if not is_same_size:
        search.notes.append(
            f"a step is {after.work_per_step:,.0f} {unit} at the end and "
            f"{before.work_per_step:,.0f} at the start: times to the target are for as many "
            f"{unit}, speed-ups compare {unit} a second, and losses of steps of other sizes "
            "cannot be compared"
        )
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
        product_of_alone=math.prod(alone) if len(alone) == len(trials.applied) > 0 else None,
        loss_difference=judging.loss_difference(start_runs, end_runs) if is_same_size else None,
        target_steps=target_steps,
        seconds_before=target_steps * before.step_seconds,
        seconds_after=target_steps * before.work_per_step / after.per_second,
        rows=[_candidate_result(one, trials.applied) for one in search.candidates],
        configuration=final.to_dict(),
        line=list(trial.line),
        python_lines=final.launch_lines(trial.line)
        if trial.line
        else final.python_lines(trial.workload),
        applied_order=[one.name for one in trials.applied],
        step_order=[one.name for one in trials.steps.values()],
        notes=search.notes,
        least_gain=judging.LEAST_GAIN,
        significance_level=judging.SIGNIFICANCE_LEVEL,
    )


def _measured(configuration: Configuration, runs: Sequence[Measurement]) -> MeasuredConfiguration:
    work, unit = judging.work_of_step(runs[0])
    seconds = statistics.median_high(map(judging.median_seconds, runs))
    losses = [loss for loss in runs[0].losses if loss is not None and math.isfinite(loss)]
    return MeasuredConfiguration(
        configuration=configuration.to_dict(),
        step_seconds=seconds,
        work_per_step=work,
        unit=unit,
        per_second=work / seconds,
        memory_bytes=judging.peak_memory_bytes(runs),
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
    """The verdict on a candidate over all its trials."""
    alone, last = candidate.alone, candidate.last or candidate.not_tried
    if candidate.refusal:
        return judging.ended(TuneVerdict.NOT_APPLICABLE, *candidate.refusal)
    if candidate in applied:
        return judging.ended(TuneVerdict.APPLIED, Reason.FASTER, last.reason if last else "")
    for other in applied:
        if other.optimisation is candidate.optimisation:  # another size
            if last and not last.is_gain:
                return replace(last, reason=f"{last.reason}; {other.name} was chosen")
            sentence = f"{other.name} was chosen on top of the others"
            return judging.ended(TuneVerdict.REJECTED, Reason.REPLACED, sentence)
    if candidate.replaced_by:
        sentence = f"{candidate.replaced_by} took its place and is faster"
        return judging.ended(TuneVerdict.REJECTED, Reason.REPLACED, sentence)
    if last is None:
        return judging.no_time()
    if alone is None or not alone.is_gain:
        return last
    but = f"alone {alone.speedup}, but"
    if last is alone:
        sentence = f"{but} it was not tried on top of the others"
        return judging.ended(TuneVerdict.NOT_TRIED, Reason.BUDGET_SPENT, sentence)
    sentence = f"{but} on top of the others {last.reason}"
    return replace(last, verdict=TuneVerdict.REJECTED, reason=sentence)
