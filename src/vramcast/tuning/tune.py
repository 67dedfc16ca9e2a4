"""The settings that make a step fastest: try the optimisations one by one, and keep an honest log. The Python face of `vramcast tune`."""

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

from vramcast.errors import EnvironmentProblem, UsageError
from vramcast.hardware import machine as machines
from vramcast.hardware import nvml
from vramcast.hardware.gpus import find_gpu
from vramcast.probing.manager import Prober
from vramcast.probing.preload import preload_for
from vramcast.probing.trial import Trial
from vramcast.records.machine import Machine
from vramcast.records.store import write_atomically, write_json
from vramcast.records.tune import TuneResult
from vramcast.reporting.tune_log import markdown
from vramcast.tuning.catalogue import chosen
from vramcast.tuning.entry import Entry
from vramcast.tuning.folder import TuneFolder
from vramcast.tuning.inspection import Offer, inspect_workload
from vramcast.tuning.judging import Limits
from vramcast.tuning.laboratory import Laboratory, Question, RealLaboratory
from vramcast.tuning.outlook import prospects
from vramcast.tuning.procedure import Progress, Tuner
from vramcast.tuning.results import result_of
from vramcast.units import memory_in_bytes, parse_duration
from vramcast.workload import Text, Workload, joined, name_of, parse_reference, together
from vramcast.workload.configuration import Configuration
from vramcast.workload.switches import Switches

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
    knobs: Mapping[str, Any] | None = None,
    **more_knobs: Any,
) -> TuneResult:
    """Find the settings that make the workload's step fastest, by running each; log.md in `out` says of every one what came of it.

    `tune("train.py:build", out="runs/tune", budget="20min")`. `out` keeps every run; called again with the same one it goes on.
    """
    entries, question, budget_seconds = _checked(
        name_of(workload), only, budget, gpu, memory, target_steps, device
    )
    values = joined(knobs, more_knobs)
    folder = TuneFolder(Path(out), _request(question, only, memory, values), force=force)
    with contextlib.closing(folder), Prober(preload_for(question.workload)) as prober:
        prober.start()  # torch is imported for the runs while the workload is looked at
        started = time.monotonic()
        offer, machine = _look(question, entries, values, budget_seconds)
        left = None if budget_seconds is None else budget_seconds - (time.monotonic() - started)
        result = tune_with(
            RealLaboratory(question, prober, folder, left),
            question,
            entries,
            offer,
            given(offer, values),
            machine,
            limits=Limits(may_change_training=only is not None),
            target_steps=target_steps,
            outlook=outlook,
            budget_seconds=budget_seconds,
            show=show,
        )
        result = replace(
            result,
            seconds=time.monotonic() - started,
            num_earlier_runs=folder.num_resumed,
            time_utc=datetime.now(UTC).isoformat(timespec="seconds"),
            command=command or f"vramcast.tune({question.workload!r})",
        )
        save(result, Path(out))
    return result


def _checked(
    workload: str,
    only: str | None,
    budget: str | float | None,
    gpu: str | None,
    memory: str | int | None,
    target_steps: int,
    device: str,
) -> tuple[Sequence[Entry], Question, float | None]:
    """What to try, of what, and for how many seconds. Whatever is wrong with it is said before anything is run or written."""
    parse_reference(workload)
    entries = chosen(only)
    budget_seconds = parse_duration(budget) if isinstance(budget, str) else budget
    if type(target_steps) is not int or target_steps < 1:
        raise UsageError(
            f"--target-steps must be a whole number from 1 on, not {target_steps}.",
            "For example --target-steps 200000.",
        )
    memory_bytes = memory_in_bytes(memory)
    Trial(
        workload=workload, device=device, memory_cap_bytes=memory_bytes
    )  # says what cannot be had together
    named = find_gpu(gpu).name if gpu is not None else None
    if device == "cuda" and not nvml.gpu_states():
        raise EnvironmentProblem(
            "There is no NVIDIA GPU here to tune on.",
            "Add --device cpu to try the settings on the CPU, or use vramcast predict and max-batch, which need no GPU.",
        )
    to_predict_for = named or (nvml.gpu_here() if device == "cuda" else None)
    return (
        entries,
        Question(workload=workload, device=device, gpu=to_predict_for, memory_bytes=memory_bytes),
        budget_seconds,
    )


def _request(
    question: Question, only: str | None, memory: str | int | None, knobs: Mapping[str, Any]
) -> dict[str, Any]:
    """What must be the same for runs to be taken over: the machine and the workload's file too."""
    here = nvml.gpu_states()
    return {
        "version": 1,
        "workload": question.workload,
        "knobs": {
            name: value if isinstance(value, PLAIN) else str(value) for name, value in knobs.items()
        },
        "only": only,
        "device": question.device,
        "gpu": question.gpu,
        "memory": memory,
        "here": here[0].name if here else None,
        "torch": version("torch"),
        "file": parse_reference(question.workload).file_hash(),
    }


def _look(
    question: Question,
    entries: Sequence[Entry],
    knobs: Mapping[str, Any],
    budget_seconds: float | None,
) -> tuple[Offer, Machine]:
    """What the workload lets one change, and what the machine has."""
    with ThreadPoolExecutor(1) as beside:
        machine = beside.submit(machines.look)
        offer = inspect_workload(
            question.workload,
            entries,
            device=question.device,
            knobs=knobs,
            timeout_seconds=budget_seconds,
        )
        return offer, machine.result()


def tune_with(
    laboratory: Laboratory,
    question: Question,
    entries: Sequence[Entry],
    offer: Offer,
    baseline: Configuration,
    machine: Machine,
    *,
    limits: Limits,
    target_steps: int,
    outlook: bool = True,
    budget_seconds: float | None = None,
    show: Callable[[Progress], None] = lambda _: None,
) -> TuneResult:
    """A whole tune on any laboratory."""
    tuned = Tuner(
        laboratory, entries, offer, baseline, machine, question.device, limits, show
    ).tune()
    length = tuned.final.knobs.get("seq_len", offer.baseline.get("seq_len"))
    found, notes = (
        prospects(laboratory, tuned.final, question.gpu, length if type(length) is int else None)
        if outlook
        else ([], [])
    )
    result = result_of(
        tuned,
        workload=question.workload,
        target_steps=target_steps,
        knobs=offer.baseline,
        machine=machine.to_dict(),
        memory_bytes=question.memory_bytes,
        prospects=found,
        budget_seconds=budget_seconds,
    )
    return replace(result, notes=[*result.notes, *notes])


def given(offer: Offer, knobs: Mapping[str, Any]) -> Configuration:
    """The baseline: what was asked for, as plain values where the workload has them as such."""
    return Configuration(
        knobs={
            name: value
            if isinstance(value, Text) and not _is_plain(offer.baseline[name], value)
            else offer.baseline[name]
            for name, value in knobs.items()
        }
    )


def _is_plain(value: Any, text: str) -> bool:
    """A dtype or an Enum comes back as its text: it must be given as text again."""
    return (
        value is None
        or isinstance(value, bool | int | float)
        or (isinstance(value, str) and value == text)
    )


def save(result: TuneResult, folder: Path) -> None:
    final = result.configuration
    configuration = Configuration(
        knobs=together(final),
        switches=Switches(**final["switches"]),
        allocator=final["allocator"],
    )
    configuration.save(folder / "final.json", workload=result.workload, made_by="vramcast tune")
    write_atomically(folder / "log.md", markdown(result))
    write_json(folder / "result.json", result.to_dict())
