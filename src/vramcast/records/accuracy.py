"""Predictions beside measurements: every row of a suite, the errors over all rows, the goals."""

from __future__ import annotations

from dataclasses import asdict, field, fields
from typing import Any

from vramcast.records.base import Bytes, Count, Knobs, Number, Part, Record, Seconds, require
from vramcast.records.measurement import Outcome
from vramcast.records.prediction import BoundBy, Prediction, StepForecast

METHODS = {
    "vramcast": "vramcast",
    "memtracker": "torch MemTracker, fake tensors",
    "accelerate": "accelerate's estimate",
    "four_times_parameters": "4 x parameters",
}
# Percent of the runs that may fail when their memory is capped at the prediction.
GOAL_CAPPED_FAILURES = 2


class RowPrediction(Record, kind="prediction of a row", version_where_missing=1):
    """The part of a prediction that is compared; `error` says why there is none."""

    workload: str = ""
    knobs: Knobs = field(default_factory=dict)
    gpu: str | None = None
    peak_allocated_bytes: Bytes | None = None
    peak_reserved_bytes: Bytes | None = None
    process_bytes: Bytes | None = None
    num_parameters: Count | None = None
    num_alloc_retries: Count | None = None
    step_seconds: Seconds | None = None
    step: StepForecast | None = None
    limits: list[str] = field(default_factory=list)
    allocator_settings: str = ""
    torch_version: str = ""
    seconds: Seconds | None = None
    error: str | None = None
    source: str = "predicted"

    @classmethod
    def from_prediction(cls, prediction: Prediction) -> RowPrediction:
        names = {field.name for field in fields(cls)} - {"error"}
        return cls(**{name: getattr(prediction, name) for name in names})


class Estimate(Part):
    """What another method says; `error` says why it has no answer."""

    bytes: Bytes | None = None
    error: str | None = None


class PeerEstimates(Record, kind="estimates of other methods", version_where_missing=1):
    memtracker: Estimate
    accelerate: Estimate
    four_times_parameters: Estimate

    @classmethod
    def all_failed(cls, error: str) -> PeerEstimates:
        return cls(**{field.name: Estimate(error=error) for field in fields(cls)})

    def by_method(self) -> dict[str, int | None]:
        return {field.name: getattr(self, field.name).bytes for field in fields(self)}


class AccuracyRow(Part):
    name: str
    predicted_allocated_bytes: Bytes | None = None
    predicted_reserved_bytes: Bytes | None = None
    predicted_process_bytes: Bytes | None = None
    measured_allocated_bytes: Bytes | None = None
    measured_reserved_bytes: Bytes | None = None
    measured_process_bytes: Bytes | None = None
    # With the memory capped at the prediction.
    capped_outcome: Outcome | None = None
    capped_retries: int | None = None
    prediction_seconds: Seconds | None = None
    median_step_seconds: Seconds | None = None
    predicted_step_seconds: Seconds | None = None
    bound_by: BoundBy = BoundBy.NOT_PREDICTED
    calibrated_on: bool = False  # predicted times come from its kernels too
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
        return self.reserved_error == 0

    def error_of(self, method: str) -> float | None:
        """Against reserved memory, whatever the method estimates: reserved is what must fit."""
        if method == "vramcast":
            return self.reserved_error
        return percent(self.peers_bytes.get(method), self.measured_reserved_bytes)


class Errors(Part):
    """Over all rows, in percent of what was measured."""

    num_rows: Count
    num_failed: Count
    median: Number | None
    p95: Number | None
    worst: Number | None


class AccuracyResult(Record, kind="accuracy result"):
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
        errors = ("allocated_error", "reserved_error", "process_error", "step_error", "exact")
        rows = [
            {**asdict(row), "errors_percent": {key: getattr(row, key) for key in errors}}
            for row in self.rows
        ]
        return {**super().to_dict(), "rows": rows}

    def check(self) -> None:
        require("vramcast" in self.reserved, "reserved has no vramcast")
        require(set(self.reserved) <= set(METHODS), "reserved has a method that is not known")


def percent(predicted: float | None, measured: float | None) -> float | None:
    return None if predicted is None or not measured else 100 * (predicted / measured - 1)


def goals(result: AccuracyResult) -> list[tuple[str, bool | None]]:
    """What is promised, and whether it was reached; None where it could not be judged."""
    ours, times = result.reserved["vramcast"], result.step_time
    num_rows = ours.num_rows + ours.num_failed
    capped_failures = result.num_capped and 100 * result.num_capped_failed / result.num_capped
    # Old records have no step times: where most rows lack them, the rest are not judged.
    timed = times.num_rows > times.num_failed
    return [
        (
            f"every workload is predicted: {ours.num_rows} of {num_rows}",
            not ours.num_failed if num_rows else None,
        ),
        _judged("median |reserved error| at most", 0.05, ours.median),
        _judged("95 % of the workloads within", 0.5, ours.p95),
        _judged("worst at most", 1.0, ours.worst),
        _judged("process memory within", 2.0, result.worst_process_error),
        (
            f"at most {GOAL_CAPPED_FAILURES} % fail capped at the prediction: "
            f"{result.num_capped_failed} of {result.num_capped}",
            capped_failures <= GOAL_CAPPED_FAILURES if result.num_capped else None,
        ),
        _judged("median |step time error| at most", 10, times.median if timed else None),
        _judged("worst step time within", 25, times.worst if timed else None),
    ]


def _judged(what: str, goal: float, error: float | None) -> tuple[str, bool | None]:
    """In percent of what was measured."""
    if error is None:
        return f"{what} {goal} %: not known", None
    return f"{what} {goal} %: {error:.3f} %", error <= goal
