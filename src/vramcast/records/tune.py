"""What a tune found: everything its log says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from vramcast.records.base import Bytes, Count, Knobs, Number, Record, Seconds, SignedBytes


@dataclass(frozen=True, kw_only=True)
class Speedup:
    """How many times as fast: the ratio of step times, or of throughputs where a step is of another size."""

    ratio: Number
    low: Number | None = None  # 95 % of it; None where too few runs tell
    high: Number | None = None
    p_value: Number | None = None
    by: str = "step time"  # or "tokens a second", "samples a second"

    def __str__(self) -> str:
        interval = (
            "" if self.low is None or self.high is None else f" ({self.low:.3f} to {self.high:.3f})"
        )
        return f"{self.ratio:.3f}x{interval}"


@dataclass(frozen=True, kw_only=True)
class Judgement:
    verdict: str
    reason: str
    likely_cause: str = ""
    speedup: Speedup | None = None
    loss_difference: Number | None = (
        None  # the largest, relative to the baseline's loss at the same step
    )
    memory_before_bytes: Bytes | None = None
    memory_after_bytes: Bytes | None = None
    missing_bytes: SignedBytes | None = None
    num_runs: list[int] = field(default_factory=list)  # without, with

    @property
    def is_gain(self) -> bool:
        return self.verdict == "applied"


@dataclass(frozen=True, kw_only=True)
class Side:
    """The start or the end of a tune, measured."""

    configuration: dict[str, Any]
    step_seconds: Seconds  # the middle of its runs' medians
    work_per_step: Number
    unit: str  # tokens, samples or steps
    per_second: Number
    memory_bytes: Bytes | None  # reserved; on the CPU allocated
    first_loss: Number | None
    last_loss: Number | None
    num_runs: Count


@dataclass(frozen=True, kw_only=True)
class RowResult:
    name: str
    what: str
    change: str
    verdict: str
    reason: str
    likely_cause: str
    caution: str
    loss_tolerance: Number | None
    alone: Judgement | None
    on_top: Judgement | None


@dataclass(frozen=True, kw_only=True)
class Prospect:
    """What a change of hardware or of the model would bring, predicted."""

    what: str
    step_seconds: Seconds | None
    speedup: Number | None  # against the prediction for the configuration and GPU that came out
    memory_bytes: Bytes | None
    fits: bool | None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class TuneResult(Record):
    KIND: ClassVar[str] = "tune result"

    workload: str
    knobs: Knobs  # the baseline's, defaults included
    device: str
    gpu: str | None
    memory_bytes: Bytes | None  # that the allocator may take; None is all
    num_parameters: Count | None
    torch_version: str
    cuda_version: str | None
    driver_version: str | None
    machine: dict[str, Any]
    before: Side
    after: Side
    total: Speedup
    product_of_alone: Number | None  # what multiplying would have claimed
    loss_difference: (
        float | None
    )  # of the end against the start; None where a step is of another size
    target_steps: Count
    seconds_before: Seconds  # to the target
    seconds_after: Seconds  # to as many tokens or samples
    rows: list[RowResult]
    configuration: dict[str, Any]
    python_lines: list[str]
    applied_order: list[str] = field(
        default_factory=list
    )  # names of rows, as they were put on top of each other
    step_order: list[str] = field(
        default_factory=list
    )  # the same with those that others took the place of later
    prospects: list[Prospect] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    budget_seconds: Seconds | None = None
    seconds: Seconds = 0.0
    num_earlier_runs: Count = 0  # that were taken over from calls before this one
    command: str = ""
    time_utc: str = ""
    source: str = "tuned"

    def rows_with(self, verdict: str) -> list[RowResult]:
        """What was applied, in the order in which it was."""
        found = [row for row in self.rows if row.verdict == verdict]
        order = {name: index for index, name in enumerate(self.applied_order)}
        return sorted(found, key=lambda row: order.get(row.name, len(order)))
