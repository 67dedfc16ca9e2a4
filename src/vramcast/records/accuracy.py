"""Predictions beside measurements: every row of a suite, the errors over all rows, the goals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

from vramcast.records.base import Bytes, Count, Knobs, Number, Record, Seconds, require
from vramcast.records.measurement import Outcome
from vramcast.records.prediction import BoundBy, Prediction, StepForecast

# The methods that are compared, and how they are named in tables.
METHODS = {
    "vramcast": "vramcast",
    "memtracker": "torch MemTracker, fake tensors",
    "accelerate": "accelerate's estimate",
    "four_times_parameters": "4 x parameters",
}
# Goals for the error of reserved memory and of the whole process, in percent of the measured.
GOAL_MEDIAN, GOAL_P95, GOAL_WORST, GOAL_PROCESS = 0.05, 0.5, 1.0, 2.0
# The share of runs that may fail when their memory is capped at the prediction.
GOAL_CAPPED_FAILURES = 0.02
# Goals for the error of the step time, in percent of the measured.
GOAL_STEP_MEDIAN, GOAL_STEP_WORST = 10.0, 25.0


@dataclass(frozen=True, kw_only=True)
class RowPrediction(Record):
    """What the comparison needs of a prediction; `error` says why there is none."""

    KIND: ClassVar[str] = "prediction of a row"
    VERSION_WHERE_MISSING: ClassVar[int | None] = 1

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


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What another method says; `error` says why it has no answer."""

    bytes: Bytes | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class PeerEstimates(Record):
    """What the other methods say about the memory of a row."""

    KIND: ClassVar[str] = "estimates of other methods"
    VERSION_WHERE_MISSING: ClassVar[int | None] = 1

    memtracker: Estimate
    accelerate: Estimate
    four_times_parameters: Estimate

    def by_method(self) -> dict[str, int | None]:
        return {field.name: getattr(self, field.name).bytes for field in fields(self)}


@dataclass(frozen=True, kw_only=True)
class AccuracyRow:
    """One workload: what was predicted and what was measured."""

    name: str
    predicted_allocated_bytes: Bytes | None = None
    predicted_reserved_bytes: Bytes | None = None
    predicted_process_bytes: Bytes | None = None
    measured_allocated_bytes: Bytes | None = None
    measured_reserved_bytes: Bytes | None = None
    measured_process_bytes: Bytes | None = None
    # of the run with the memory capped at the prediction
    capped_outcome: Outcome | None = None
    capped_retries: int | None = None
    prediction_seconds: Seconds | None = None
    median_step_seconds: Seconds | None = None
    predicted_step_seconds: Seconds | None = None
    bound_by: BoundBy = BoundBy.NOT_PREDICTED
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
        """Against the memory reserved, whatever the method estimates: reserved is what must fit."""
        if method == "vramcast":
            return self.reserved_error
        return percent(self.peers_bytes.get(method), self.measured_reserved_bytes)


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

    def check(self) -> None:
        require("vramcast" in self.reserved, "reserved has no vramcast")
        require(set(self.reserved) <= set(METHODS), "reserved has a method that is not known")


def percent(predicted: float | None, measured: float | None) -> float | None:
    return None if predicted is None or not measured else 100 * (predicted / measured - 1)


def goals(result: AccuracyResult) -> list[tuple[str, bool | None]]:
    """What is promised, and whether it was reached; None where it could not be judged."""
    ours, times = result.reserved["vramcast"], result.step_time
    num_rows = ours.num_rows + ours.num_failed
    capped_failures = result.num_capped_failed / result.num_capped if result.num_capped else None
    # Old records have no step times: where most rows lack them, the rest are not judged.
    timed = times.num_rows > times.num_failed
    judged: Iterable[tuple[str, float | None, float]] = (
        (f"median |reserved error| at most {GOAL_MEDIAN} %", ours.median, GOAL_MEDIAN),
        (f"95 % of the workloads within {GOAL_P95} %", ours.p95, GOAL_P95),
        (f"worst at most {GOAL_WORST} %", ours.worst, GOAL_WORST),
        (f"process memory within {GOAL_PROCESS} %", result.worst_process_error, GOAL_PROCESS),
        (
            f"median |step time error| at most {GOAL_STEP_MEDIAN:g} %",
            times.median if timed else None,
            GOAL_STEP_MEDIAN,
        ),
        (
            f"worst step time within {GOAL_STEP_WORST:g} %",
            times.worst if timed else None,
            GOAL_STEP_WORST,
        ),
    )
    found = [(f"{text}: {_shown(value)}", _within(value, goal)) for text, value, goal in judged]
    predicted = f"every workload is predicted: {ours.num_rows} of {num_rows}"
    capped = (
        f"at most {100 * GOAL_CAPPED_FAILURES:.0f} % fail capped at the prediction: "
        f"{result.num_capped_failed} of {result.num_capped}"
    )
    return [
        (predicted, not ours.num_failed if num_rows else None),
        *found[:4],
        (capped, _within(capped_failures, GOAL_CAPPED_FAILURES)),
        *found[4:],
    ]


def _within(value: float | None, goal: float) -> bool | None:
    return None if value is None else value <= goal


def _shown(value: float | None) -> str:
    return "not known" if value is None else f"{value:.3f} %"
