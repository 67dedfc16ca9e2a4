"""`vramcast.probe`: runs the real training steps of a workload in a fresh process."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vramcast.allocator.settings import AllocatorSettings
from vramcast.errors import EnvironmentProblem, UsageError, VramcastError
from vramcast.hardware import nvml
from vramcast.probing.facts import Facts
from vramcast.probing.manager import OnFacts, OnOutput, Prober, start_of
from vramcast.probing.measurement import unfinished
from vramcast.probing.ranks import check_ranks, run_ranks
from vramcast.probing.run_folder import RunFolder
from vramcast.probing.trial import Trial, device_named
from vramcast.processes.progress import OutputLines, Progress, Report, ignore
from vramcast.records.measurement import Device, Measurement
from vramcast.units import check_whole_number, memory_in_bytes
from vramcast.workload import Workload, joined, name_of, parse_reference
from vramcast.workload.configuration import Configuration, load_configuration
from vramcast.workload.launchers import line_request

OUTPUT_FOLLOWS = "What the program prints:"


def probe(
    workload: Workload,
    *,
    device: str = "cuda",
    memory: str | int | None = None,
    allocator: str | None = None,
    warmup: int = 2,
    steps: int | None = None,
    whole: bool = False,
    timeout: float = 600.0,
    out: str | Path | None = None,
    force: bool = False,
    trace: bool = False,
    config: Configuration | str | Path | None = None,
    progress: Report = ignore,
    knobs: Mapping[str, Any] | None = None,
    **more_knobs: Any,
) -> Measurement:
    """Run the workload's real steps in a fresh process and measure them.

    `probe("train.py:build", batch_size=8)` on the GPU, `probe(build, device="cpu")` without one. A
    run that fails is a measurement too: see `outcome` and `verdict`. `out` is a folder for what was
    measured. `config` is what tune wrote, or its file; knobs given here come before its own.
    A launch line is a list of words: `probe(["python", "train.py", "--batch_size=8"])`; it runs
    until enough was seen, `steps` steps, or to its own end with `whole=True`. Of a function,
    `steps` are measured: 20 where none are given.
    """
    if trace and out is None:
        raise UsageError("A trace needs a folder.", "Give out=FOLDER with trace=True.")
    name = name_of(workload)
    if isinstance(config, str | Path):
        config = load_configuration(config)
    config = config or Configuration()
    settings = config.allocator if allocator is None else allocator
    AllocatorSettings.parse(settings or "")
    values = {**config.knobs, **joined(knobs, more_knobs)}
    line = line_of_trial(workload, values, steps, whole, several=device_named(device))
    if not line:
        parse_reference(name)
    trial = Trial(
        workload=name,
        knobs=values,
        switches=config.switches,
        device=device_named(device),
        memory_cap_bytes=memory_in_bytes(memory),
        allocator=settings,
        **steps_of_trial(warmup, steps, is_program=bool(line)),
        **line,
        timeout_seconds=timeout,
        trace_folder=str(Path(out).absolute()) if trace and out is not None else None,
    )
    if device == "cuda":
        nvml.require_gpu(
            "probe",
            "Add --device cpu to run the same step on the CPU, "
            "or use vramcast predict, which needs no GPU.",
        )
    folder = RunFolder(Path(out), force=force) if out is not None else None
    total = None if line and steps is None else trial.warmup_steps + trial.measure_steps

    def listen(facts: Facts) -> None:
        losses = facts.losses
        loss = f"loss {losses[-1]:.4f}" if losses and losses[-1] is not None else ""
        detail = f"{facts.phase} {loss}".rstrip()
        progress(Progress("Running", len(losses), total, detail))

    if not line:
        return run_trial(trial, folder, listen)
    progress(Progress("Running", line=OUTPUT_FOLLOWS))
    output = OutputLines(lambda text: progress(Progress("Running", line=text)))
    try:
        return run_trial(trial, folder, listen, output.receive)
    finally:
        output.end()


def line_of_trial(
    workload: Workload,
    knobs: Mapping[str, Any],
    steps: int | None = None,
    whole: bool = False,
    several: Device | None = None,
) -> dict[str, Any]:
    """The fields of a trial for a launch line, after checking it. Empty for a function.

    The line may start several processes only if `several` names the device that they run on.
    """
    found = line_request(workload, knobs)
    if whole and not found:
        raise UsageError("--whole is for launch lines; a function has no end.", "Leave it out.")
    if whole and steps is not None:
        raise UsageError("--steps and --whole contradict each other.", "Give one of them.")
    if not found:
        return {}
    num_processes = found["started"][0]
    if num_processes > 1 and several is None:
        raise UsageError(
            f"The line starts {num_processes} processes, and one is run.",
            "Start one process, for example with --nproc-per-node 1, "
            "or use vramcast predict, which simulates several.",
        )
    if several is not None:
        num_processes = check_ranks(found["started"], several)
    return {
        "num_processes": num_processes,
        "line": tuple(found["line"]),
        "stdin": found["stdin"],
        "num_steps": steps,
        "whole": whole,
    }


def steps_of_trial(warmup: int, steps: int | None, *, is_program: bool) -> dict[str, Any]:
    """The steps of a trial. For a program, `steps` are all of its steps, and the last is always
    measured."""
    if not is_program:
        return {"warmup_steps": warmup, "measure_steps": 20 if steps is None else steps}
    if steps is None:
        return {"warmup_steps": warmup}
    check_whole_number("--steps", steps, 20)
    warmup = min(warmup, steps - 1)
    return {"warmup_steps": warmup, "measure_steps": steps - warmup}


class NotSaved(EnvironmentProblem):
    """The run's folder could not be written. `measurement` still has the result."""

    def __init__(self, measurement: Measurement, problem: VramcastError) -> None:
        super().__init__(problem.message, problem.advice)
        self.measurement = measurement


def run_trial(
    trial: Trial,
    folder: RunFolder | None,
    progress: OnFacts = lambda _: None,
    on_output: OnOutput = None,
) -> Measurement:
    """Runs the trial. Its folder has a record before and after the run."""
    if folder is None:
        return _run(trial, None, progress, on_output)
    heard = Facts()

    def listen(facts: Facts) -> None:
        nonlocal heard
        heard = facts
        progress(facts)

    with folder.locked():
        try:
            folder.before(trial)
            measurement = _run(trial, folder.log, listen, on_output)
        except VramcastError:
            folder.discard()  # nothing was run, so the corrected command may use the same folder
            raise
        except BaseException:  # Ctrl-C
            folder.after(unfinished(trial, heard))  # keeps the steps that were measured
            raise
        try:
            folder.after(measurement)
        except EnvironmentProblem as problem:
            raise NotSaved(measurement, problem) from None
    return measurement


def _run(trial: Trial, log: Path | None, progress: OnFacts, on_output: OnOutput) -> Measurement:
    if trial.num_processes > 1:
        return run_ranks(trial, log, progress, on_output)
    with Prober(**start_of(trial)) as prober:
        return prober.run(trial, log, progress, on_output)
