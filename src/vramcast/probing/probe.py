"""`vramcast.probe`: runs the real training steps of a workload in a fresh process."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vramcast.allocator.settings import AllocatorSettings
from vramcast.errors import EnvironmentProblem, UsageError, VramcastError
from vramcast.hardware import nvml
from vramcast.probing.facts import Facts
from vramcast.probing.manager import OnFacts, Prober
from vramcast.probing.measurement import unfinished
from vramcast.probing.run_folder import RunFolder
from vramcast.probing.trial import Trial, device_named
from vramcast.processes.progress import Progress, Report, ignore
from vramcast.records.measurement import Measurement
from vramcast.units import memory_in_bytes
from vramcast.workload import Workload, joined, name_of, parse_reference
from vramcast.workload.configuration import Configuration, load_configuration


def probe(
    workload: Workload,
    *,
    device: str = "cuda",
    memory: str | int | None = None,
    allocator: str | None = None,
    warmup: int = 2,
    steps: int = 20,
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
    """
    if trace and out is None:
        raise UsageError("A trace needs a folder.", "Give out=FOLDER with trace=True.")
    name = name_of(workload)
    parse_reference(name)
    if isinstance(config, str | Path):
        config = load_configuration(config)
    config = config or Configuration()
    settings = config.allocator if allocator is None else allocator
    AllocatorSettings.parse(settings or "")
    trial = Trial(
        workload=name,
        knobs={**config.knobs, **joined(knobs, more_knobs)},
        switches=config.switches,
        device=device_named(device),
        memory_cap_bytes=memory_in_bytes(memory),
        allocator=settings,
        warmup_steps=warmup,
        measure_steps=steps,
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

    def listen(facts: Facts) -> None:
        losses = facts.losses
        loss = f"loss {losses[-1]:.4f}" if losses and losses[-1] is not None else ""
        detail = f"{facts.phase} {loss}".rstrip()
        progress(Progress("Running", len(losses), warmup + steps, detail))

    return run_trial(trial, folder, listen)


class NotSaved(EnvironmentProblem):
    """The run's folder could not be written; `measurement` is not lost."""

    def __init__(self, measurement: Measurement, problem: VramcastError) -> None:
        super().__init__(problem.message, problem.advice)
        self.measurement = measurement


def run_trial(
    trial: Trial, folder: RunFolder | None, progress: OnFacts = lambda _: None
) -> Measurement:
    """Its folder has a record before and after."""
    if folder is None:
        with Prober() as prober:
            return prober.run(trial, None, progress)
    heard = Facts()

    def listen(facts: Facts) -> None:
        nonlocal heard
        heard = facts
        progress(facts)

    with folder.locked():
        try:
            folder.before(trial)
            with Prober() as prober:
                measurement = prober.run(trial, folder.log, listen)
        except VramcastError:
            folder.discard()  # nothing was run: the corrected command may use the same folder
            raise
        except BaseException:  # Ctrl-C
            folder.after(unfinished(trial, heard))  # the steps that were measured stay known
            raise
        try:
            folder.after(measurement)
        except EnvironmentProblem as problem:
            raise NotSaved(measurement, problem) from None
    return measurement
