"""From paths to what they hold: run folders, files of records, memory traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vramcast.errors import UsageError
from vramcast.forecast.timing.rates import shipped
from vramcast.records.accuracy_rows import ROWS_FILE, read_records, result_from
from vramcast.records.base import parse_json
from vramcast.records.bench import TrainedRun
from vramcast.records.kinds import GIVE, is_trace, record_from
from vramcast.records.store import read_file
from vramcast.text import printable
from vramcast.tracing.files import read_trace
from vramcast.tracing.trace import Trace

RECORDS = ("plan.json", "accuracy.json", "result.json")


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """One thing to report on, and where it came from."""

    record: Any
    path: Path
    traces: Sequence[Trace] = field(default_factory=list)  # of a measurement


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
    """What the commands leave in a folder; one may hold several kinds."""
    if (path / "trial.json").exists():
        return _trained(path, [path])
    trials = sorted(trial.parent for trial in path.glob("*/trial.json"))
    found = _trained(path, trials)
    traces = [read_trace(path)] if (path / "trace.json").exists() else []
    if (path / "metrics.json").exists():
        record = _from_file(path / "metrics.json").record
        found.append(Loaded(record=record, path=path, traces=traces))
    else:
        found += [Loaded(record=trace, path=path) for trace in traces]
    if not trials:
        found += [_from_file(path / name) for name in RECORDS if (path / name).exists()]
    if not (path / "accuracy.json").exists() and (path / ROWS_FILE).exists():
        found.append(_recorded_rows(path))
    return found


def _trained(path: Path, trials: Sequence[Path]) -> list[Loaded]:
    """A trial that has not ended has no result."""
    results = [trial / "result.json" for trial in trials]
    runs = [TrainedRun.from_file(result) for result in results if result.exists()]
    return [Loaded(record=runs, path=path)] if runs else []


def _recorded_rows(path: Path) -> Loaded:
    """Rows of an accuracy run without the table made of them."""
    return Loaded(record=result_from(read_records(path), shipped().calibrated_on), path=path)


def _from_file(path: Path) -> Loaded:
    if path.suffix == ".jsonl":
        return _recorded_rows(path)
    data = parse_json(read_file(path), str(path))
    record = read_trace(path) if is_trace(data) else record_from(data, _shown(path))
    return Loaded(record=record, path=path)
