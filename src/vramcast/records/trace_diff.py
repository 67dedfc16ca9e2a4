"""What differs between two memory traces."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from vramcast.records.base import Bytes, Count, Record


class DifferenceKind(StrEnum):
    BYTES = "bytes"
    NAME = "name"
    ONLY_A = "only_a"
    ONLY_B = "only_b"
    ALIVE = "alive"
    STEP = "step"


@dataclass(frozen=True, kw_only=True)
class ShownAllocation:
    """One allocation as it is shown; number 0 is an emptied cache."""

    number: Count
    op: str
    num_bytes: Bytes
    allocated_bytes: Bytes
    facts: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Both traces side by side around the pair at `position`, which differs."""

    kinds: list[DifferenceKind]
    step: Count  # which of the compared steps, from 1; 0 is the build
    position: Count
    lines: list[tuple[ShownAllocation | None, ShownAllocation | None]]
    alive_only_a: list[ShownAllocation]
    alive_only_b: list[ShownAllocation]
    num_alive_only_a: Count
    num_alive_only_b: Count


@dataclass(frozen=True, kw_only=True)
class TraceSummary:
    source: str
    workload: str
    torch_version: str
    num_steps: Count
    num_allocations: Count
    peak_allocated_bytes: Bytes


@dataclass(frozen=True, kw_only=True)
class OpDifference:
    op: str
    count_a: Count
    count_b: Count
    bytes_a: Bytes
    bytes_b: Bytes


@dataclass(frozen=True, kw_only=True)
class TraceDiff(Record, kind="trace_diff"):
    """What `vramcast diff` found."""

    same: bool
    a: TraceSummary
    b: TraceSummary
    num_steps_compared: Count
    num_differences: dict[DifferenceKind, Count]
    first: Difference | None
    first_in_memory: Difference | None  # more than a name; often the same
    ops: list[OpDifference]
