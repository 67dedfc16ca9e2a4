"""The JSON schema of what every command prints with --json, made from the types of its records.

`python docs/generate.py` writes them into docs/schemas, a file for each command.
"""

from __future__ import annotations

import json
from typing import Any, NotRequired, TypedDict

import msgspec
from blocks import DOCS

from vramcast.hardware.env import MachineReport
from vramcast.hardware.gpus import Gpu
from vramcast.records.accuracy import AccuracyResult
from vramcast.records.advice import Advice
from vramcast.records.base import Count, KnobValue, Record
from vramcast.records.bench import Comparison, ModelResult, TrainingOutcome
from vramcast.records.calibration import Calibration, HostSpeed
from vramcast.records.fit import MemoryFit
from vramcast.records.measurement import Measurement
from vramcast.records.plan import Plan
from vramcast.records.prediction import BatchSizeCurve, MaxBatch, Prediction, PredictionTable
from vramcast.records.run_diff import RunDiff
from vramcast.records.sensitivity import Sensitivity
from vramcast.records.trace_diff import TraceDiff
from vramcast.records.tune import TuneResult

FOLDER = DOCS / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


class Knob(TypedDict):
    name: str
    default: KnobValue
    takes: str
    required: bool


class WorkloadKnobs(TypedDict):
    """The knobs of a workload or a launch line."""

    name: str
    knobs: list[Knob]
    parameters: NotRequired[str]
    family: NotRequired[str]


class ModelOfZoo(TypedDict):
    """A model that is known by name."""

    name: str
    family: NotRequired[str]
    num_parameters: NotRequired[Count | None]
    sizes: NotRequired[dict[str, bool | int | float]]
    task: NotRequired[str]
    also: NotRequired[list[str]]
    source: NotRequired[str]
    document: NotRequired[str | None]
    document_title: NotRequired[str | None]


class SizeForBudget(TypedDict):
    """The size that meets a budget of parameters."""

    family: str
    name: str | None
    free: str
    sizes: dict[str, bool | int | float]
    num_parameters: Count
    wanted_parameters: Count
    nearest: dict[str, bool | int | float]


class BenchRun(TypedDict):
    model: str
    seed: int
    metric: str
    last_loss: float | None
    steps: Count
    batch_size: Count
    outcome: TrainingOutcome
    parameters: Count | None
    tokens: Count | None
    tokens_per_second: float | None
    peak_memory_bytes: Count | None
    memory_kind: str | None
    training_seconds: float
    data_wait_fraction: float | None
    error: str | None


class Bench(TypedDict):
    """All runs of a bench, without their steps."""

    folder: str
    protocol: str
    protocol_hash: str
    data: dict[str, Any]
    runs: list[BenchRun]
    models: list[ModelResult]
    notes: list[str]


class KeptServers(TypedDict):
    servers: list[dict[str, Any]]


# What each command prints: one of these.
PRINTED: dict[str, tuple[Any, ...]] = {
    "predict": (Prediction, BatchSizeCurve, PredictionTable, Sensitivity, WorkloadKnobs),
    "max-batch": (MaxBatch,),
    "plan": (Plan,),
    "advise": (Advice,),
    "probe": (Measurement,),
    "fit": (list[MemoryFit],),
    "diff": (RunDiff, TraceDiff),
    "tune": (TuneResult,),
    "env": (MachineReport,),
    "bench": (Bench,),
    "compare": (Comparison,),
    "accuracy": (AccuracyResult,),
    "calibrate": (Calibration, HostSpeed),
    "gpus": (list[Gpu],),
    "zoo": (list[ModelOfZoo], WorkloadKnobs, SizeForBudget),
    "server": (KeptServers,),
}
# Of a list, the type of its items.
ITEMS = {list[MemoryFit]: MemoryFit, list[Gpu]: Gpu, list[ModelOfZoo]: ModelOfZoo}


def schema_of(command: str) -> dict[str, Any]:
    kinds = PRINTED[command]
    forms, parts = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    for kind in kinds:
        item = ITEMS.get(kind, kind)
        if issubclass(item, Record):
            own = parts[item.__name__]
            own["properties"]["kind"] = {"const": item.KIND}
            own["properties"]["version"] = {"const": item.VERSION}
            own["required"] = [*own.get("required", ()), "kind", "version"]
    printed = forms[0] if len(forms) == 1 else {"anyOf": list(forms)}
    title = f"What vramcast {command} --json prints"
    return {"$schema": DIALECT, "title": title, **printed, "$defs": parts}


def texts() -> dict[str, str]:
    """The text of every file, by its name."""
    return {f"{name}.json": json.dumps(schema_of(name), indent=1) + "\n" for name in PRINTED}


def the_schemas() -> str:
    """The table of the page about JSON."""
    rows = []
    for name, kinds in PRINTED.items():
        described = [ITEMS.get(kind, kind) for kind in kinds]
        shown = ", ".join(
            f"`{item.__name__}`{'s, as a list' if kind in ITEMS else ''}"
            for kind, item in zip(kinds, described, strict=True)
        )
        rows.append(
            f"| [`{name}`](commands/{name}.md) | {shown} | [{name}.json](schemas/{name}.json) |"
        )
    return "\n".join(["", "| command | prints | schema |", "|---|---|---|", *rows, "", ""])
