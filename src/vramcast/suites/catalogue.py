"""The rows of the accuracy suites, read from suites.toml."""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vramcast.errors import UsageError
from vramcast.workload import name_of


@dataclass(frozen=True)
class SuiteRow:
    name: str
    workload: str
    knobs: dict[str, Any] = field(default_factory=dict)
    allocator: str | None = None
    line: tuple[str, ...] = ()  # of a program, whose `workload` is the same as text


def _read() -> dict[str, list[SuiteRow]]:
    data = tomllib.loads(Path(__file__).with_name("suites.toml").read_text())

    def row(
        title: str, /, workload: str | list[str], allocator: str | None = None, **knobs: Any
    ) -> SuiteRow:
        if isinstance(workload, list):
            return SuiteRow(title, name_of(workload), knobs, allocator, tuple(workload))
        return SuiteRow(title, data["workloads"].get(workload, workload), knobs, allocator)

    return {
        suite: [row(name, **values) for name, values in rows.items()]
        for suite, rows in data["suites"].items()
    }


SUITES = _read()

# Its rows use the libraries of many fields.
WIDE = "wide"


def rows_of(names: Iterable[str]) -> list[SuiteRow]:
    """The rows of these suites; where none is named, of all that need no more libraries."""
    wanted = list(names) or [name for name in SUITES if name != WIDE]
    unknown = [name for name in wanted if name not in SUITES]
    if unknown:
        raise UsageError(f"There is no suite {unknown[0]!r}.", f"Suites: {', '.join(SUITES)}.")
    return [row for name in wanted for row in SUITES[name]]
