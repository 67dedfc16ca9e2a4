"""The rows of the accuracy suites, as suites.toml lists them: name, workload, knobs."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import resources
from itertools import combinations, product
from typing import Any

from vramcast.errors import UsageError

# One model through five settings; all values of any two of them meet in some row.
PRECISIONS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "amp": {"autocast": "bf16"},
    "bf16": {"precision": "bf16"},
    "fp16": {"autocast": "fp16", "scale_loss": True},
}
SETTINGS: tuple[tuple[str, ...], ...] = (
    tuple(PRECISIONS),
    ("keep", "non-reentrant", "reentrant"),
    ("sdpa", "eager", "efficient", "math"),
    ("adamw", "adamw-fused", "adamw-loop", "sgd", "adafactor"),
    ("default", "expandable_segments:True", "max_split_size_mb:256", "roundup_power2_divisions:4"),
)


@dataclass(frozen=True)
class SuiteRow:
    name: str
    workload: str
    knobs: dict[str, Any] = field(default_factory=dict)
    allocator: str | None = None


def covering(settings: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Few combinations in which every two values of different settings occur together.

    Each next one is the combination that adds most pairs of values.
    """

    def pairs(values: Sequence[str]) -> set[tuple[tuple[int, str], ...]]:
        return set(combinations(enumerate(values), 2))

    everything = list(product(*settings))
    missing = set().union(*(pairs(values) for values in everything))
    chosen: list[tuple[str, ...]] = []
    while missing:
        chosen.append(max(everything, key=lambda values: len(pairs(values) & missing)))
        missing -= pairs(chosen[-1])
    return chosen


def _settings_suite(workload: str) -> list[SuiteRow]:
    rows = []
    for precision, checkpointing, attention, optimizer, allocator in covering(SETTINGS):
        parts = (precision, attention, checkpointing, optimizer, allocator.partition(":")[0])
        knobs = {
            **PRECISIONS[precision],
            "attention": attention,
            "checkpointing": "" if checkpointing == "keep" else checkpointing,
            "optimizer": optimizer,
            "depth": 6,
            "batch_size": 6,
        }
        allocator_settings = None if allocator == "default" else allocator
        rows.append(SuiteRow(f"set-{'-'.join(parts)}", workload, knobs, allocator_settings))
    return rows


def _read() -> dict[str, list[SuiteRow]]:
    data = tomllib.loads(resources.files("vramcast.suites").joinpath("suites.toml").read_text())
    suites: dict[str, list[SuiteRow]] = {name: [] for name in data["suites"]}
    for suite, rows in data["suites"].items():
        for name, knobs in rows.items():
            workload = knobs.pop("workload")
            suites[suite].append(SuiteRow(name, data["workloads"].get(workload, workload), knobs))
    suites["settings"] = _settings_suite(data["workloads"]["gpt"])
    return suites


SUITES = _read()


def rows_of(names: Iterable[str]) -> list[SuiteRow]:
    """The rows of these suites; all of them where none is named."""
    wanted = list(names) or list(SUITES)
    unknown = [name for name in wanted if name not in SUITES]
    if unknown:
        raise UsageError(f"There is no suite {unknown[0]!r}.", f"Suites: {', '.join(SUITES)}.")
    return [row for name in wanted for row in SUITES[name]]
