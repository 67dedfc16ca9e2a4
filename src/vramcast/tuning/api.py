"""Try the optimisations one by one and keep an honest log: the Python face of `vramcast tune`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from vramcast import machine as machines
from vramcast import nvml
from vramcast.api import Workload, memory_in_bytes, name_of
from vramcast.configuration import Configuration
from vramcast.errors import EnvironmentProblem, UsageError
from vramcast.gpus import find_gpu
from vramcast.probing.manager import Prober
from vramcast.probing.preload import preload_for
from vramcast.probing.trial import Trial
from vramcast.store import write_atomically, write_json
from vramcast.switches import Switches
from vramcast.tuning.catalogue import chosen
from vramcast.tuning.entry import Entry
from vramcast.tuning.folder import TuneFolder
from vramcast.tuning.inspection import Offer, inspect_workload
from vramcast.tuning.judging import Limits
from vramcast.tuning.laboratory import Laboratory, Question, RealLaboratory
from vramcast.tuning.outlook import prospects
from vramcast.tuning.procedure import Progress, Tuner
from vramcast.tuning.results import TuneResult, result_of
from vramcast.units import parse_duration
from vramcast.workload import parse_reference

TARGET_STEPS = 200_000  # document 003's run
PLAIN = (int, float, str, bool)


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
    show: Callable[[Progress], None] = lambda _: None,
    command: str = "",
    knobs_text: Mapping[str, str] | None = None,
    **knobs: Any,
) -> TuneResult:
    """Find the settings that make the workload's step fastest, by running each; log.md in `out` says of every one what came of it.

    `tune("train.py:build", out="runs/tune", budget="20min")`. `out` keeps every run; called again with the same one it goes on.
    """
    name = name_of(workload)
    parse_reference(name)
    entries = chosen(only)
    budget_seconds = parse_duration(budget) if isinstance(budget, str) else budget
    if type(target_steps) is not int or target_steps < 1:
        raise UsageError(f"--target-steps must be a whole number from 1 on, not {target_steps}.", "For example --target-steps 200000.")
    Trial(workload=name, device=device, memory_cap_bytes=memory_in_bytes(memory))  # says what cannot be had together
    question_gpu = find_gpu(gpu).name if gpu is not None else nvml.gpu_here()
    _check_device(device)
    request = _request(name, only, device, question_gpu, memory, {**(knobs_text or {}), **knobs})
    folder = TuneFolder(Path(out), request, force=force)
    with contextlib.closing(folder), Prober(preload_for(name)) as prober:
        prober.start()  # torch is imported for the runs while the workload is looked at
        started = time.monotonic()
        with ThreadPoolExecutor(1) as beside:
            looked = beside.submit(machines.look)
            offer = inspect_workload(name, entries, device=device, knobs=knobs, knobs_text=knobs_text or {})
            machine = looked.result()
        baseline = given(offer, knobs, knobs_text or {})
        question = Question(
            workload=name, device=device, gpu=question_gpu if device == "cuda" or gpu else None,
            memory_bytes=memory_in_bytes(memory),
        )  # fmt: skip
        left = None if budget_seconds is None else budget_seconds - (time.monotonic() - started)
        laboratory = RealLaboratory(question, prober, folder, left)
        limits = Limits(may_change_training=only is not None)
        result = tune_with(
            laboratory, entries, offer, baseline, machine, workload=name, device=device, gpu=question.gpu, limits=limits, show=show,
            target_steps=target_steps, memory_bytes=question.memory_bytes, outlook=outlook, budget_seconds=budget_seconds,
        )  # fmt: skip
        made = datetime.now(UTC).isoformat(timespec="seconds")
        result = replace(
            result, seconds=time.monotonic() - started, num_earlier_runs=folder.num_resumed, time_utc=made,
            command=command or f"vramcast.tune({name!r})",
        )  # fmt: skip
        save(result, Path(out))
    return result


def tune_with(
    laboratory: Laboratory,
    entries: Sequence[Entry],
    offer: Offer,
    baseline: Configuration,
    machine: machines.Machine,
    *,
    workload: str,
    device: str,
    gpu: str | None,
    limits: Limits,
    target_steps: int,
    memory_bytes: int | None = None,
    outlook: bool = True,
    budget_seconds: float | None = None,
    show: Callable[[Progress], None] = lambda _: None,
) -> TuneResult:
    """A whole tune on any laboratory."""
    tuned = Tuner(laboratory, entries, offer, baseline, machine, device, limits, show).tune()
    length = tuned.final.knobs.get("seq_len", offer.baseline.get("seq_len"))
    found, notes = prospects(laboratory, tuned.final, gpu, length if type(length) is int else None) if outlook else ([], [])
    result = result_of(
        tuned, workload=workload, target_steps=target_steps, knobs=offer.baseline, machine=machine.to_dict(), memory_bytes=memory_bytes,
        prospects=found, budget_seconds=budget_seconds,
    )  # fmt: skip
    return replace(result, notes=[*result.notes, *notes])


def given(offer: Offer, knobs: Mapping[str, Any], knobs_text: Mapping[str, str]) -> Configuration:
    """The baseline: what was asked for, as plain values, or as text where only that can carry it."""
    names = [*knobs, *knobs_text]
    plain = {name: offer.baseline[name] for name in names if name in knobs or _is_plain(offer.baseline[name], knobs_text[name])}
    return Configuration(knobs=plain, knobs_text={name: text for name, text in knobs_text.items() if name not in plain})


def _is_plain(value: Any, text: str) -> bool:
    """A dtype or an Enum comes back as its text: it must be given as text again."""
    return value is None or isinstance(value, bool | int | float) or (isinstance(value, str) and value == text)


def save(result: TuneResult, folder: Path) -> None:
    from vramcast.report.tune_log import markdown

    Configuration(
        knobs=result.configuration["knobs"], knobs_text=result.configuration.get("knobs_text", {}),
        allocator=result.configuration["allocator"],
        switches=Switches(**result.configuration["switches"]),
    ).save(folder / "final.json", workload=result.workload, made_by="vramcast tune")  # fmt: skip
    write_atomically(folder / "log.md", markdown(result))
    write_json(folder / "result.json", result.to_dict())


def _check_device(device: str) -> None:
    if device == "cuda" and not nvml.gpu_states():
        raise EnvironmentProblem(
            "There is no NVIDIA GPU here to tune on.",
            "Add --device cpu to try the settings on the CPU, or use vramcast predict and max-batch, which need no GPU.",
        )


def _request(
    workload: str, only: str | None, device: str, gpu: str | None, memory: str | int | None, knobs: Mapping[str, Any]
) -> dict[str, Any]:
    """What must be the same for runs to be taken over: the machine too."""
    here = nvml.gpu_states()
    shown = {name: value if isinstance(value, PLAIN) else str(value) for name, value in knobs.items()}
    return {
        "version": 1, "workload": workload, "knobs": shown, "only": only, "device": device, "gpu": gpu,
        "memory": memory, "here": here[0].name if here else None, "torch": version("torch"),
    }  # fmt: skip
