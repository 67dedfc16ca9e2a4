"""From paths to records: which kind a file or a run folder holds. Plain JSON; nothing in a record is run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vramcast.benching.trial_folder import TrialFolder
from vramcast.errors import UsageError
from vramcast.forecast.timing.rates import shipped
from vramcast.records.accuracy import AccuracyResult
from vramcast.records.accuracy_rows import ROWS_FILE, read_records, result_from
from vramcast.records.bench import TrainedRun
from vramcast.records.comparison import Comparison
from vramcast.records.fit import MemoryFit
from vramcast.records.max_batch import MaxBatch
from vramcast.records.measurement import Measurement
from vramcast.records.plan import Plan
from vramcast.records.prediction import BatchSizeCurve, Prediction
from vramcast.records.store import read_text
from vramcast.records.tune import TuneResult
from vramcast.text import printable
from vramcast.tracing.files import MemoryTrace, read_trace

GIVE = "Give a run folder of probe, plan, tune, bench or accuracy, or a file with what a command printed with --json."
LONGEST_NAME = 200


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """One thing to report on, and where it came from."""

    record: Any
    path: Path
    traces: Sequence[MemoryTrace] = field(default_factory=list)  # of a measurement


def load(path: Path) -> list[Loaded]:
    if not path.exists():
        raise UsageError(f"{_shown(path)} does not exist.", GIVE)
    try:
        return _from_folder(path) if path.is_dir() else _from_file(path)
    except UsageError as problem:  # of many paths: which
        what = (
            problem.message
            if str(path) in problem.message
            else f"{_shown(path)}: {problem.message}"
        )
        raise UsageError(what, problem.advice or GIVE) from None


def _shown(path: Path) -> str:
    return printable(str(path), LONGEST_NAME)


def _from_folder(path: Path) -> list[Loaded]:
    """What the commands leave in a folder; one may hold several kinds."""
    found: list[Loaded] = []
    trials = (
        [path]
        if (path / "trial.json").exists()
        else sorted(p.parent for p in path.glob("*/trial.json"))
    )
    if trials:
        found.append(
            Loaded(
                record=[run for trial in trials if (run := _trained(trial)) is not None], path=path
            )
        )
    trace = path / "trace.json"
    traces = [read_trace(trace)] if trace.exists() else []
    if (path / "metrics.json").exists():
        found += [
            Loaded(record=one.record, path=path, traces=traces)
            for one in _from_file(path / "metrics.json")
        ]
    elif traces:
        found.append(Loaded(record=traces[0], path=path))
    for name in ("plan.json", "accuracy.json", "result.json"):
        if (path / name).exists() and not trials:
            found += _from_file(path / name)
    if not (path / "accuracy.json").exists() and (path / ROWS_FILE).exists():
        found.append(Loaded(record=_recorded(path), path=path))
    if not found or found[0].record == []:
        raise UsageError(f"{_shown(path)} holds no record of a finished run.", GIVE)
    return found


def _trained(folder: Path) -> TrainedRun | None:
    """None where it has not ended: what it has so far is in no record yet."""
    return TrialFolder(folder).result()


def _recorded(path: Path) -> AccuracyResult:
    """Rows that were kept without the table made of them."""
    return result_from(read_records(path), shipped().calibrated_on)


def _from_file(path: Path) -> list[Loaded]:
    if path.suffix == ".jsonl":
        return [Loaded(record=_recorded(path), path=path)]
    try:
        data = json.loads(read_text(path))
    except (ValueError, RecursionError) as problem:
        raise UsageError(
            f"{_shown(path)} is no whole JSON: {problem}.",
            f"It was cut short, or is something else. {GIVE}",
        ) from None
    if isinstance(data, dict) and data.get("kind") == "trace":
        return [Loaded(record=read_trace(path), path=path)]
    return [Loaded(record=_record(data), path=path)]


def _record(data: Any) -> Any:
    if (
        isinstance(data, list)
        and data
        and all(isinstance(one, dict) and one.get("source") == "fitted" for one in data)
    ):
        return [MemoryFit.from_dict(one) for one in data]
    if not isinstance(data, dict):
        raise UsageError("This is no record of vramcast.", GIVE)
    if "runs" in data and "protocol_hash" in data:
        raise UsageError(
            "This is the summary of a bench: it has no losses.",
            f"Give its folder: {printable(str(data.get('folder')), LONGEST_NAME)}.",
        )
    for belongs, read in _KINDS:
        if belongs(data):
            return read(data)
    raise UsageError(
        f"This is no record that can be shown (source {printable(repr(data.get('source')), 60)}).",
        GIVE,
    )


def _from(source: str, *names: str) -> Callable[[dict[str, Any]], bool]:
    return lambda data: data.get("source") == source and all(name in data for name in names)


_KINDS: Sequence[tuple[Callable[[dict[str, Any]], bool], Callable[[dict[str, Any]], Any]]] = (
    (_from("predicted", "points"), BatchSizeCurve.from_dict),
    (_from("predicted"), Prediction.from_dict),
    (_from("measured"), Measurement.from_dict),
    (_from("searched"), MaxBatch.from_dict),
    (_from("planned"), Plan.from_dict),
    (_from("compared", "models"), Comparison.from_dict),
    (_from("compared"), AccuracyResult.from_dict),
    (_from("tuned"), TuneResult.from_dict),
    (_from("trained"), lambda data: [TrainedRun.from_dict(data)]),
    (_from("fitted"), lambda data: [MemoryFit.from_dict(data)]),
)
