"""`vramcast.tune`: find the settings that make a step fastest by running them one by one."""

from __future__ import annotations

import contextlib
import math
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
from vramcast.probing.manager import Prober, preload_for
from vramcast.probing.trial import Trial, device_named
from vramcast.processes.progress import Report, ignore
from vramcast.records.base import plain_value
from vramcast.records.machine import Machine
from vramcast.records.measurement import Device
from vramcast.records.store import write_atomically, write_json
from vramcast.records.tune import TuneResult
from vramcast.reporting.showing import markdown_of
from vramcast.simulate.runner import shared_server
from vramcast.tuning.candidates import Candidate
from vramcast.tuning.folder import TuneFolder
from vramcast.tuning.inspection import inspect_workload
from vramcast.tuning.optimisations import chosen, missing_on
from vramcast.tuning.predicted_gains import predicted_gains
from vramcast.tuning.result import result_of
from vramcast.tuning.runner import Runner
from vramcast.tuning.search import Search
from vramcast.units import check_whole_number, memory_in_bytes, parse_duration
from vramcast.workload import Text, Workload, joined, name_of, parse_reference
from vramcast.workload.configuration import Configuration

TARGET_STEPS = 200_000


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
    every one. `out` keeps every run; called again with the same one it goes on.
    """
    # Whatever is wrong is refused before anything is run or written.
    optimisations = chosen(only)
    budget_seconds = parse_duration(budget) if isinstance(budget, str) else budget
    check_whole_number("--target-steps", target_steps, 200_000)
    trial = Trial(
        workload=name_of(workload),
        knobs=joined(knobs, more_knobs),
        device=device_named(device),
        memory_cap_bytes=memory_in_bytes(memory),
    )
    gpu = _gpu(trial.device, gpu)
    request = _request(trial, gpu, only)
    with (
        contextlib.closing(TuneFolder(Path(out), request, force=force)) as folder,
        Prober(preload_for(trial.workload)) as prober,
        shared_server(),  # predictions fork from one process that has torch
    ):
        prober.start()  # imports torch for the runs while the workload is inspected
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
        save(result, Path(out))
    return result


def _gpu(device: Device, name: str | None) -> str | None:
    """The GPU to predict for."""
    if name is not None:
        name = find_gpu(name).name
    if device != Device.CUDA:
        return name
    nvml.require_gpu(
        "tune on",
        "Add --device cpu to try the settings on the CPU, or use vramcast predict and "
        "max-batch, which need no GPU.",
    )
    return name or nvml.gpu_here()


def _request(trial: Trial, gpu: str | None, only: str | None) -> dict[str, Any]:
    """What must be the same for runs to be taken over: the machine and the workload's file too."""
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
        "file": parse_reference(trial.workload).file_hash(),
    }


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
    """A whole tune; tests give it a runner with invented numbers."""
    for one in candidates:
        one.refusal = missing_on(one.optimisation, machine, runner.trial.device) or one.refusal
    search = Search(runner, candidates, baseline, progress)
    total, final = search.run(), search.stack.configuration
    result = result_of(search, total, runner.trial, target_steps, machine)
    if not outlook:
        return result
    gains, notes = predicted_gains(runner, final, search.size_of(final, "seq_len"))
    return replace(result, prospects=gains, notes=[*result.notes, *notes])


def baseline_of(knobs: Mapping[str, Any], in_force: Mapping[str, Any]) -> Configuration:
    """The knobs that were given, as plain values where the workload has them as such."""
    plain = {name: in_force[name] for name in knobs}
    for name, given in knobs.items():
        # A dtype or an Enum comes back as its text: it must be given as text again.
        if isinstance(given, Text) and isinstance(plain[name], str) and plain[name] != given:
            plain[name] = given
    return Configuration(knobs=plain)


def save(result: TuneResult, folder: Path) -> None:
    configuration = Configuration.from_dict(result.configuration)
    configuration.save(folder / "final.json", workload=result.workload, made_by="vramcast tune")
    log = markdown_of(result, f"Optimisation log of {result.workload}")
    write_atomically(folder / "log.md", log)
    write_json(folder / "result.json", result.to_dict())
