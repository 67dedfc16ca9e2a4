"""The rows of the accuracy suites, read from suites.toml."""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vramcast.errors import UsageError
from vramcast.workload import name_of

# Where the host is the slower side, step times spread by 20 %, and a median needs many steps.
MEASURE_STEPS = 12
# Where memory adds up until the host is as far ahead of the GPU as it can be, a row says how many.
# Without its other ranks a step's time means little.
FEW_STEPS = {"distributed": 4}


@dataclass(frozen=True)
class SuiteRow:
    name: str
    workload: str
    knobs: dict[str, Any] = field(default_factory=dict)
    allocator: str | None = None
    line: tuple[str, ...] = ()  # of a program, whose `workload` is the same as text
    measure_steps: int = MEASURE_STEPS


def _read() -> dict[str, list[SuiteRow]]:
    data = tomllib.loads(Path(__file__).with_name("suites.toml").read_text())

    def row(
        title: str,
        suite: str,
        /,
        workload: str | list[str],
        allocator: str | None = None,
        measure_steps: int | None = None,
        **knobs: Any,
    ) -> SuiteRow:
        steps = measure_steps or FEW_STEPS.get(suite, MEASURE_STEPS)
        line = tuple(workload) if isinstance(workload, list) else ()
        name = name_of(line) if line else data["workloads"].get(workload, workload)
        return SuiteRow(title, name, knobs, allocator, line, steps)

    return {
        suite: [row(name, suite, **values) for name, values in rows.items()]
        for suite, rows in data["suites"].items()
    }


SUITES = _read()

# Rows with the libraries of many fields, of several GPUs, of compiled steps, of models known by
# name and of architectures of transformers: when asked for.
ONLY_BY_NAME = ("wide", "distributed", "compiled", "known", "families")


def rows_of(names: Iterable[str]) -> list[SuiteRow]:
    """The rows of these suites; where none is named, of all but those in ONLY_BY_NAME."""
    wanted = list(names) or [name for name in SUITES if name not in ONLY_BY_NAME]
    unknown = [name for name in wanted if name not in SUITES]
    if unknown:
        raise UsageError(f"There is no suite {unknown[0]!r}.", f"Suites: {', '.join(SUITES)}.")
    return [row for name in wanted for row in SUITES[name]]
