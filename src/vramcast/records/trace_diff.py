"""What differs between two memory traces."""

from dataclasses import field
from enum import StrEnum

from vramcast.records.base import Bytes, Count, Part, Record


class DifferenceKind(StrEnum):
    BYTES = "bytes"
    NAME = "name"
    ONLY_A = "only_a"
    ONLY_B = "only_b"
    ALIVE = "alive"
    STEP = "step"


class ShownAllocation(Part):
    """An allocation, or an emptied cache, which has number 0."""

    number: Count
    op: str
    num_bytes: Bytes
    allocated_bytes: Bytes
    facts: dict[str, str] = field(default_factory=dict)


class Difference(Part):
    """Both traces side by side around the pair at `position`, which differs."""

    kinds: list[DifferenceKind]
    step: Count  # which of the compared steps, from 1; 0 is the build
    position: Count
    lines: list[tuple[ShownAllocation | None, ShownAllocation | None]]
    alive_only_a: list[ShownAllocation]
    alive_only_b: list[ShownAllocation]
    num_alive_only_a: Count
    num_alive_only_b: Count


class TraceSummary(Part):
    source: str
    workload: str
    torch_version: str
    num_steps: Count
    num_allocations: Count
    peak_allocated_bytes: Bytes


class OpDifference(Part):
    op: str
    count_a: Count
    count_b: Count
    bytes_a: Bytes
    bytes_b: Bytes


class TraceDiff(Record, kind="trace_diff"):
    """What `vramcast diff` found."""

    same: bool
    a: TraceSummary
    b: TraceSummary
    num_steps_compared: Count
    num_differences: dict[DifferenceKind, Count]
    first: Difference | None
    # the first that is more than a name; often the same as `first`
    first_in_memory: Difference | None
    ops: list[OpDifference]
    max_bytes: Bytes | None = None  # the largest peak allocated memory that --fail-above allows B
    over_max_bytes: Bytes | None = None  # by how much it is larger; 0 is within
