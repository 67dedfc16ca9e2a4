"""What the H200 said of three tunes: the logs are made of the records, the goals are met in them,
and predictions agree with them.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from vramcast.records.measurement import Measurement
from vramcast.records.tune import TuneResult
from vramcast.reporting.showing import markdown_of
from vramcast.tuning.judging import compare
from vramcast.workload.configuration import load_configuration

FOLDER = Path(__file__).parents[2] / "benchmarks" / "tune" / "h200-torch-2.11"
MODELS = ("gpt2-124m", "e10-50m", "elleci-1.36b")


def result_of(model: str) -> TuneResult:
    return TuneResult.from_dict(json.loads((FOLDER / model / "result.json").read_text()))


def records_of(model: str) -> tuple[dict[str, list[Measurement]], dict[str, Any]]:
    """(runs by configuration, predictions for the H200 by configuration)."""
    runs, predictions = defaultdict(list), {}
    for record in map(json.loads, (FOLDER / model / "records.jsonl").read_text().splitlines()):
        if record["kind"] == "run":
            runs[record["key"]].append(Measurement.from_dict(record["measurement"]))
        elif (asked := json.loads(record["key"]))[1] == "h200":
            predictions[asked[0]] = record["answer"]["prediction"]
    return runs, predictions


@pytest.mark.parametrize("model", MODELS)
def test_the_end_is_at_least_four_times_as_fast_as_the_naive_form(model: str) -> None:
    total = result_of(model).total
    assert total.ratio >= 4 and total.low is not None and total.low >= 4
    assert total.p_value is not None and total.p_value < 0.001


@pytest.mark.parametrize("model", MODELS)
def test_the_total_is_that_of_the_recorded_runs_of_start_and_end(model: str) -> None:
    result, (runs, _) = result_of(model), records_of(model)
    start, end = (key_of(side.configuration) for side in (result.before, result.after))
    assert compare(runs[start], runs[end]).ratio == pytest.approx(
        result.total.ratio, rel=0.02
    )  # runs of other calls may be among them
    assert len(runs[end]) >= result.after.num_runs >= 3


@pytest.mark.parametrize("model", MODELS)
def test_what_was_measured_on_top_of_each_other_multiplies_to_the_total(model: str) -> None:
    """Document 003's speed-ups multiply to 686 where the total is 4.1."""
    result = result_of(model)
    rows = {row.name: row for row in result.rows}
    ratios = [
        judged.speedup.ratio
        for name in result.step_order
        if (judged := rows[name].on_top) and judged.speedup
    ]
    assert len(ratios) == len(result.step_order)
    assert math.prod(ratios) == pytest.approx(result.total.ratio, rel=0.02)


@pytest.mark.parametrize("model", MODELS)
def test_the_log_and_the_configuration_are_the_results(model: str) -> None:
    result = result_of(model)
    log = markdown_of(result, f"Optimisation log of {result.workload}")
    assert (FOLDER / model / "log.md").read_text() == log
    assert (
        load_configuration(FOLDER / model / "final.json").to_dict()
        == result.configuration
        == result.after.configuration
    )


def test_what_was_predicted_was_reserved_to_the_byte() -> None:
    """From 2 to 120 GB, in four precisions. torch.compile's own memory cannot be simulated, and is
    left out.
    """
    compared = []
    for model in MODELS:
        runs, predictions = records_of(model)
        for key, prediction in predictions.items():
            compared += [
                (prediction["peak_reserved_bytes"], run.peak_reserved_bytes)
                for run in runs[key]
                if run.outcome == "ok" and not run.knobs.get("compile")
            ]
    assert len(compared) >= 60
    assert all(predicted == measured for predicted, measured in compared)


def key_of(data: dict[str, Any]) -> str:
    from vramcast.workload.configuration import Configuration
    from vramcast.workload.switches import Switches

    return Configuration(
        knobs=data["knobs"], switches=Switches(**data["switches"]), allocator=data["allocator"]
    ).key
