"""The rows of the accuracy suites, read from suites.toml and from files like it."""

import shlex
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vramcast.errors import UsageError
from vramcast.records.store import read_toml
from vramcast.workload import name_of

# Where the host is slower than the GPU, step times vary by 20 %, and a median needs many steps.
MEASURE_STEPS = 12
# Fewer steps for these suites. A row sets its own number where memory grows until the host is as
# far ahead of the GPU as it can be.
FEW_STEPS = {"distributed": 4}
ROW_ADVICE = """A row is a table with a workload and its knobs, for example
[small]
workload = "python train.py --batch_size={batch_size}"
batch_size = 8"""


@dataclass(frozen=True)
class SuiteRow:
    name: str
    workload: str
    knobs: dict[str, Any] = field(default_factory=dict)
    allocator: str | None = None
    line: tuple[str, ...] = ()  # the words of a program's line; `workload` is the same line as text
    measure_steps: int = MEASURE_STEPS


def _rows(suite: str, rows: dict[str, Any], names: dict[str, str]) -> list[SuiteRow]:
    def row(
        title: str,
        /,
        workload: str | list[str],
        allocator: str | None = None,
        measure_steps: int | None = None,
        **knobs: Any,
    ) -> SuiteRow:
        steps = measure_steps or FEW_STEPS.get(suite, MEASURE_STEPS)
        if isinstance(workload, str) and " " in workload:
            workload = shlex.split(workload)
        line = tuple(workload) if isinstance(workload, list) else ()
        name = name_of(workload)
        return SuiteRow(title, names.get(name, name), knobs, allocator, line, steps)

    return [row(name, **values) for name, values in rows.items()]


def _read() -> dict[str, list[SuiteRow]]:
    data = tomllib.loads(Path(__file__).with_name("suites.toml").read_text())
    return {name: _rows(name, rows, data["workloads"]) for name, rows in data["suites"].items()}


SUITES = _read()

# Suites that run only when they are named.
ONLY_BY_NAME = ("wide", "distributed", "compiled", "known", "families")


def rows_of(names: Iterable[str]) -> list[SuiteRow]:
    """The rows of these suites; without names, of all but those in ONLY_BY_NAME."""
    wanted = list(dict.fromkeys(names)) or [name for name in SUITES if name not in ONLY_BY_NAME]
    found = [row for name in wanted for row in _suite(name)]
    counts = Counter(row.name for row in found)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise UsageError(f"Two rows have the name {twice[0]!r}.", "Give each another name.")
    return found


def _suite(name: str) -> list[SuiteRow]:
    if name in SUITES:
        return SUITES[name]
    if not name.endswith(".toml"):
        raise UsageError(
            f"There is no suite {name!r}.",
            f"Suites: {', '.join(SUITES)}; or give a file, for example --suite mine.toml.",
        )
    try:
        return _rows(name, read_toml(Path(name), "The suite", ROW_ADVICE), {})
    except (TypeError, ValueError) as problem:  # no table, no workload, an open quote
        raise UsageError(f"{name} has a row that is not one: {problem}.", ROW_ADVICE) from None
