"""From paths to what they hold: run folders, files of records, memory traces."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vramcast.errors import UsageError
from vramcast.forecast.timing.rates import shipped
from vramcast.records.accuracy import ROWS_FILE, read_records, result_from
from vramcast.records.base import parse_json
from vramcast.records.bench import TrainedRun
from vramcast.records.kinds import GIVE, is_trace, record_from
from vramcast.records.store import read_file
from vramcast.text import printable
from vramcast.tracing.files import begins_as_trace, read_trace
from vramcast.tracing.trace import Trace

RECORDS = ("predictions.json", "plan.json", "accuracy.json", "result.json")


@dataclass(frozen=True)
class Loaded:
    record: Any
    path: Path
    traces: Sequence[Trace] = ()  # those of a measurement


def load(path: Path) -> list[Loaded]:
    if not path.exists():
        raise UsageError(f"{_shown(path)} does not exist.", GIVE)
    found = _from_folder(path) if path.is_dir() else [_from_file(path)]
    if not found:
        raise UsageError(f"{_shown(path)} holds no record of a finished run.", GIVE)
    return found


def _shown(path: Path) -> str:
    return printable(str(path), 200)


def _from_folder(path: Path) -> list[Loaded]:
    """The records that commands leave in a folder. It may hold several kinds."""
    is_trial = (path / "trial.json").exists()
    trials = [path] if is_trial else sorted(trial.parent for trial in path.glob("*/trial.json"))
    # A trial that has not ended has no result.
    results = [file for trial in trials if (file := trial / "result.json").exists()]
    found = [Loaded([TrainedRun.from_file(file) for file in results], path)] if results else []
    if is_trial:
        return found
    traces = [read_trace(path)] if (path / "trace.json").exists() else []
    if (path / "metrics.json").exists():
        found.append(Loaded(_from_file(path / "metrics.json").record, path, traces))
    else:
        found += [Loaded(trace, path) for trace in traces]
    if not trials:
        found += [_from_file(path / name) for name in RECORDS if (path / name).exists()]
    if not (path / "accuracy.json").exists() and (path / ROWS_FILE).exists():
        found.append(_recorded_rows(path))
    return found


def _recorded_rows(path: Path) -> Loaded:
    """The rows of an accuracy run, where the finished table is missing."""
    return Loaded(result_from(read_records(path), shipped().calibrated_on), path)


def _from_file(path: Path) -> Loaded:
    if path.suffix == ".jsonl":
        return _recorded_rows(path)
    if begins_as_trace(path):
        return Loaded(read_trace(path), path)
    data = parse_json(read_file(path), str(path))
    return Loaded(read_trace(path) if is_trace(data) else record_from(data, _shown(path)), path)
