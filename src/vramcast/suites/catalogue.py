"""The rows of the accuracy suites, as suites.toml lists them: name, workload, knobs."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import resources
from itertools import combinations, product
from typing import Any

from vramcast.errors import UsageError


@dataclass(frozen=True)
class SuiteRow:
    name: str
    workload: str
    knobs: dict[str, Any] = field(default_factory=dict)
    allocator: str | None = None


def covering(settings: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Few combinations in which every two values of different settings occur together."""

    def pairs(values: Sequence[str]) -> set[tuple[tuple[int, str], ...]]:
        return set(combinations(enumerate(values), 2))

    everything = list(product(*settings))
    missing = set().union(*(pairs(values) for values in everything))
    chosen: list[tuple[str, ...]] = []
    while missing:
        # the combination that adds most pairs of values
        chosen.append(max(everything, key=lambda values: len(pairs(values) & missing)))
        missing -= pairs(chosen[-1])
    return chosen


def _settings_suite(workload: str, settings: dict[str, dict[str, Any]]) -> list[SuiteRow]:
    """One model; all values of any two settings meet in some row."""
    rows = []
    for values in covering([list(choices) for choices in settings.values()]):
        chosen = dict(zip(settings, values, strict=True))
        order = ("precision", "attention", "checkpointing", "optimizer", "allocator")
        name = "-".join(["set", *(chosen[setting] for setting in order)])
        knobs = {"depth": 6, "batch_size": 6}
        for setting, value in chosen.items():
            knobs |= settings[setting][value]
        allocator: Any = knobs.pop("allocator", None)
        rows.append(SuiteRow(name, workload, knobs, allocator))
    return rows


def _read() -> dict[str, list[SuiteRow]]:
    data = tomllib.loads(resources.files("vramcast.suites").joinpath("suites.toml").read_text())
    workloads = data["workloads"]

    def row(name: str, workload: str, **knobs: Any) -> SuiteRow:
        return SuiteRow(name, workloads.get(workload, workload), knobs)

    suites = {
        suite: [row(name, **values) for name, values in rows.items()]
        for suite, rows in data["suites"].items()
    }
    suites["settings"] = _settings_suite(workloads["gpt"], data["settings"])
    return suites


SUITES = _read()


def rows_of(names: Iterable[str]) -> list[SuiteRow]:
    """The rows of these suites; all of them where none is named."""
    wanted = list(names) or list(SUITES)
    unknown = [name for name in wanted if name not in SUITES]
    if unknown:
        raise UsageError(f"There is no suite {unknown[0]!r}.", f"Suites: {', '.join(SUITES)}.")
    return [row for name in wanted for row in SUITES[name]]
