"""Predictions beside measurements: every row of a suite, and the errors over all of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from vramcast.records.base import Bytes, Count, Number, Record, Seconds


@dataclass(frozen=True, kw_only=True)
class AccuracyRow:
    name: str
    predicted_allocated_bytes: Bytes | None = None
    predicted_reserved_bytes: Bytes | None = None
    predicted_process_bytes: Bytes | None = None
    measured_allocated_bytes: Bytes | None = None
    measured_reserved_bytes: Bytes | None = None
    measured_process_bytes: Bytes | None = None
    capped_outcome: str | None = None  # of the run with the memory capped at the prediction
    capped_retries: int | None = None
    prediction_seconds: Seconds | None = None
    median_step_seconds: Seconds | None = None
    predicted_step_seconds: Seconds | None = None
    bound_by: str = ""  # of the predicted step: compute, bandwidth or launch
    calibrated_on: bool = False  # its kernels are among those that the predicted times come from
    peers_bytes: dict[str, int | None] = field(default_factory=dict)
    limits: list[str] = field(default_factory=list)
    problem: str | None = None  # why there is no comparison

    @property
    def allocated_error(self) -> float | None:
        return percent(self.predicted_allocated_bytes, self.measured_allocated_bytes)

    @property
    def reserved_error(self) -> float | None:
        return percent(self.predicted_reserved_bytes, self.measured_reserved_bytes)

    @property
    def process_error(self) -> float | None:
        return percent(self.predicted_process_bytes, self.measured_process_bytes)

    @property
    def step_error(self) -> float | None:
        return percent(self.predicted_step_seconds, self.median_step_seconds)

    @property
    def exact(self) -> bool:
        return (
            self.measured_reserved_bytes is not None
            and self.predicted_reserved_bytes == self.measured_reserved_bytes
        )

    def error_of(self, method: str) -> float | None:
        """Of the memory reserved, whatever the method calls its number: reserved is what has to fit."""
        predicted = (
            self.predicted_reserved_bytes if method == "vramcast" else self.peers_bytes.get(method)
        )
        return percent(predicted, self.measured_reserved_bytes)


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Of one method over all rows, in percent of what was measured."""

    num_rows: Count
    num_failed: Count
    median: Number | None
    p95: Number | None
    worst: Number | None


@dataclass(frozen=True, kw_only=True)
class AccuracyResult(Record):
    """What `vramcast accuracy` found; predicted and measured side by side."""

    KIND: ClassVar[str] = "accuracy result"

    gpu: str | None
    torch_version: str
    measured_torch_version: str
    rows: list[AccuracyRow]
    num_exact: Count
    reserved: dict[str, Errors]  # by method
    worst_process_error: Number | None
    step_time: Errors  # over the rows that the times were not calibrated on
    busy_step_time: Errors  # of those, where the GPU does not wait for the host
    launch_step_time: Errors  # of those, where it does
    num_capped: Count
    num_capped_failed: Count
    source: str = "compared"

    def to_dict(self) -> dict[str, Any]:
        extra = ("allocated_error", "reserved_error", "process_error", "step_error", "exact")
        return {
            **super().to_dict(),
            "rows": [
                {**asdict(row), "errors_percent": {key: getattr(row, key) for key in extra}}
                for row in self.rows
            ],
        }


def percent(predicted: float | None, measured: float | None) -> float | None:
    return None if predicted is None or not measured else 100 * (predicted / measured - 1)
