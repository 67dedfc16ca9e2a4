"""Which kind of record a file holds: by its `kind`, and for older records by `source`."""

from typing import Any

from vramcast.errors import UsageError
from vramcast.records.accuracy import AccuracyResult
from vramcast.records.advice import Advice
from vramcast.records.base import Record, shortened
from vramcast.records.bench import Comparison, TrainedRun
from vramcast.records.fit import MemoryFit
from vramcast.records.measurement import Measurement
from vramcast.records.plan import Plan
from vramcast.records.prediction import (
    BatchSizeCurve,
    MaxBatch,
    Prediction,
    PredictionTable,
)
from vramcast.records.run_diff import RunDiff
from vramcast.records.sensitivity import Sensitivity
from vramcast.records.tune import TuneResult

GIVE = (
    "Give a run folder of probe, plan, tune, bench or accuracy, or what --json printed, in a file."
)
KINDS: tuple[type[Record], ...] = (
    BatchSizeCurve,
    PredictionTable,
    Sensitivity,
    Prediction,
    Measurement,
    MaxBatch,
    Plan,
    Comparison,
    AccuracyResult,
    TuneResult,
    TrainedRun,
    MemoryFit,
    Advice,
    RunDiff,
)
# Some kinds have the same source. These are told apart by a field that the last of them lacks.
OWN_FIELD: dict[type[Record], str] = {
    BatchSizeCurve: "points",
    PredictionTable: "cases",
    Sensitivity: "effects",
    Comparison: "models",
}


def is_trace(data: Any) -> bool:
    return isinstance(data, dict) and data.get("kind") == "trace"


def record_from(data: Any, where: str) -> Record | list[Record]:
    """The record. Trained models and fitted laws come as lists, because several belong together."""
    if isinstance(data, list) and data and all(_kind_of(one) is MemoryFit for one in data):
        return [MemoryFit.from_dict(one, where) for one in data]
    if isinstance(data, dict) and "runs" in data and "protocol_hash" in data:
        raise UsageError(
            f"{where} is the summary of a bench: it has no losses.",
            f"Give its folder: {shortened(data.get('folder'))}.",
        )
    kind = _kind_of(data)
    if kind is None:
        source = shortened(data.get("source") if isinstance(data, dict) else None)
        raise UsageError(
            f"{where} is not a record of vramcast that can be shown (source {source}).", GIVE
        )
    record = kind.from_dict(data, where)
    return [record] if kind in (TrainedRun, MemoryFit) else record


def _kind_of(data: Any) -> type[Record] | None:
    if not isinstance(data, dict):
        return None
    for kind in KINDS:
        if "kind" not in data and OWN_FIELD.get(kind, "source") in data:
            is_kind = data.get("source") == getattr(kind, "source", None)
        else:
            is_kind = data.get("kind") == kind.KIND
        if is_kind:
            return kind
    return None
