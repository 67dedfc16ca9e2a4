"""From the records of a suite to rows with errors and a summary. Pure; no torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vramcast.forecast.timing.rates import shipped
from vramcast.records.accuracy import AccuracyResult, AccuracyRow, Errors

METHODS = {
    "vramcast": "vramcast",
    "memtracker": "torch MemTracker, fake tensors",
    "accelerate": "accelerate's estimate",
    "four_times_parameters": "4 x parameters",
}
# what issue and README promise: |reserved error| in percent, and the share of runs that may fail when capped at the prediction
GOAL_MEDIAN, GOAL_P95, GOAL_WORST, GOAL_PROCESS, GOAL_CAPPED_FAILURES = 0.05, 0.5, 1.0, 2.0, 0.02
GOAL_STEP_MEDIAN, GOAL_STEP_WORST = 10.0, 25.0  # percent of the measured step time


def errors_over(values: Iterable[float | None]) -> Errors:
    seen = list(values)
    sizes = sorted(abs(value) for value in seen if value is not None)
    if not sizes:
        return Errors(num_rows=0, num_failed=len(seen), median=None, p95=None, worst=None)
    return Errors(
        num_rows=len(sizes),
        num_failed=len(seen) - len(sizes),
        median=_median(sizes),
        p95=sizes[math.ceil(0.95 * len(sizes)) - 1],
        worst=sizes[-1],
    )


def _median(ordered: Sequence[float]) -> float:
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def row_from(name: str, records: Mapping[str, Mapping[str, Any]]) -> AccuracyRow:
    """`records` by kind: prediction, measurement, capped, peers; any may be missing or hold {"error"}."""
    prediction, measurement = records.get("prediction", {}), records.get("measurement", {})
    capped, peers = records.get("capped", {}), records.get("peers", {})
    measured = measurement if measurement.get("outcome") == "ok" else {}
    return AccuracyRow(
        name=name,
        predicted_allocated_bytes=prediction.get("peak_allocated_bytes"),
        predicted_reserved_bytes=prediction.get("peak_reserved_bytes"),
        predicted_process_bytes=prediction.get("process_bytes"),
        measured_allocated_bytes=measured.get("peak_allocated_bytes"),
        measured_reserved_bytes=measured.get("peak_reserved_bytes"),
        measured_process_bytes=measured.get("process_bytes"),
        capped_outcome=capped.get("outcome"),
        capped_retries=capped.get("num_alloc_retries"),
        prediction_seconds=prediction.get("seconds"),
        median_step_seconds=(measured.get("times") or {}).get("median_seconds"),
        predicted_step_seconds=prediction.get("step_seconds"),
        bound_by=(prediction.get("step") or {}).get("bound_by", ""),
        calibrated_on=name in shipped().calibrated_on,
        peers_bytes={
            method: (peers.get(method) or {}).get("bytes")
            for method in METHODS
            if method != "vramcast"
        }
        if peers
        else {},
        limits=list(prediction.get("limits", [])),
        problem=_problem(prediction, measurement),
    )


def _problem(prediction: Mapping[str, Any], measurement: Mapping[str, Any]) -> str | None:
    if "error" in prediction and "peak_reserved_bytes" not in prediction:
        return f"not predicted: {_first_line(prediction['error'])}"
    if not measurement:
        return "not measured: there is no record of it"
    if measurement.get("outcome") != "ok":
        return f"not measured: {measurement.get('outcome', 'failed')}, {_last_line(measurement.get('error'))}"
    return None


def summarise(
    rows: list[AccuracyRow], *, gpu: str | None, torch_version: str, measured_torch_version: str
) -> AccuracyResult:
    compared = [row for row in rows if row.measured_reserved_bytes is not None]
    methods = [m for m in METHODS if m == "vramcast" or any(row.peers_bytes for row in rows)]
    process = errors_over(row.process_error for row in compared)
    capped = [row for row in compared if row.capped_outcome is not None]
    unseen = [row for row in compared if not row.calibrated_on]
    return AccuracyResult(
        gpu=gpu,
        torch_version=torch_version,
        measured_torch_version=measured_torch_version,
        rows=rows,
        num_exact=sum(row.exact for row in compared),
        reserved={
            method: errors_over(row.error_of(method) for row in compared) for method in methods
        },
        worst_process_error=process.worst,
        step_time=errors_over(row.step_error for row in unseen),
        busy_step_time=errors_over(
            row.step_error for row in unseen if row.bound_by in ("compute", "bandwidth")
        ),
        launch_step_time=errors_over(row.step_error for row in unseen if row.bound_by == "launch"),
        num_capped=len(capped),
        num_capped_failed=sum(row.capped_outcome != "ok" for row in capped),
    )


def goals(result: AccuracyResult) -> list[tuple[str, bool | None]]:
    """What is promised, and whether it was reached; None where it could not be judged."""
    ours, times = result.reserved["vramcast"], result.step_time

    def within(value: float | None, goal: float) -> bool | None:
        return None if value is None else value <= goal

    failures = None if not result.num_capped else result.num_capped_failed / result.num_capped
    predicted = ours.num_rows + ours.num_failed
    # Of times, records from before there were any have none: a few rows say nothing of all.
    median, worst = (
        (times.median, times.worst) if times.num_rows > times.num_failed else (None, None)
    )
    return [
        (
            f"every workload is predicted: {ours.num_rows} of {predicted}",
            None if not predicted else not ours.num_failed,
        ),
        (
            f"median |reserved error| at most {GOAL_MEDIAN} %: {_shown(ours.median)}",
            within(ours.median, GOAL_MEDIAN),
        ),
        (
            f"95 % of the workloads within {GOAL_P95} %: {_shown(ours.p95)}",
            within(ours.p95, GOAL_P95),
        ),
        (f"worst at most {GOAL_WORST} %: {_shown(ours.worst)}", within(ours.worst, GOAL_WORST)),
        (
            f"process memory within {GOAL_PROCESS} %: {_shown(result.worst_process_error)}",
            within(result.worst_process_error, GOAL_PROCESS),
        ),
        (
            f"at most {100 * GOAL_CAPPED_FAILURES:.0f} % fail capped at the prediction: {result.num_capped_failed} of {result.num_capped}",
            within(failures, GOAL_CAPPED_FAILURES),
        ),
        (
            f"median |step time error| at most {GOAL_STEP_MEDIAN:g} %: {_shown(median)}",
            within(median, GOAL_STEP_MEDIAN),
        ),
        (
            f"worst step time within {GOAL_STEP_WORST:g} %: {_shown(worst)}",
            within(worst, GOAL_STEP_WORST),
        ),
    ]


def _shown(value: float | None) -> str:
    return "not known" if value is None else f"{value:.3f} %"


def _first_line(text: Any) -> str:
    return str(text or "").strip().splitlines()[0][:160] if str(text or "").strip() else ""


def _last_line(text: Any) -> str:
    return str(text or "").strip().splitlines()[-1][:160] if str(text or "").strip() else ""
