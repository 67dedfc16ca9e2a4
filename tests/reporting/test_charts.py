"""What the charts of a page show, of each kind of record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from formats import MOST_BYTES, charts, html_of, layers
from report_examples import PAGES, RECORDS, put, record

from vramcast.forecast.laws import evaluate
from vramcast.records.bench import TrainedRun
from vramcast.records.fit import MemoryFit, parse_term
from vramcast.records.prediction import Prediction
from vramcast.reporting.bench import MOST_POINTS, of_runs
from vramcast.reporting.loading import load
from vramcast.reporting.prediction import of_prediction
from vramcast.reporting.sections import Calculator, Meter, Report
from vramcast.reporting.showing import make_report


def test_a_prediction_shows_the_step_of_its_peak_and_what_is_alive_there() -> None:
    prediction = record("prediction.json")
    found = charts(make_report(PAGES["prediction"]))
    step = layers(found["Memory through step 2"], 1)
    assert [
        max(y for _, y in step[name].points)
        for name in ("allocated (predicted)", "reserved (predicted)")
    ] == [
        prediction["peak_allocated_bytes"],
        prediction["peak_reserved_bytes"],
    ]
    assert step["peak"].points[0][1] == prediction["peak_allocated_bytes"]
    lines = [line for details in step["allocated (predicted)"].details for line in details]
    assert any(line.startswith("allocated: ") for line in lines) and any(
        ".py:" in line for line in lines
    )
    alive = found["Alive at the peak (step 2)"]
    assert [view.name for view in alive.views] == ["by category", "by module", "by tensor"]
    assert (
        sum(end for layer in alive.views[0].layers for _, _, end, _ in layer.points)
        == prediction["peak_reserved_bytes"]
    )


def test_a_measurement_of_the_same_workload_is_laid_beside_the_prediction() -> None:
    report = make_report(PAGES["prediction and measurement"])
    rows = {row[0]: row[1:] for row in report.sections[0].tables[0].rows}
    assert rows["reserved (by the allocator)"][2:] == ["9.66 GiB", "exact"]
    assert rows["step time"][3].endswith("%")
    assert "peak reserved (measured on NVIDIA H200)" in layers(
        charts(report)["Memory through step 2"]
    )


def test_a_measurement_of_other_knobs_is_not(tmp_path: Path) -> None:
    other = record("h200-measurement.json")
    other["knobs"]["batch_size"] = 9
    report = make_report([RECORDS / "h200-prediction.json", put(tmp_path / "other.json", other)])
    assert len(report.sections[0].tables[0].columns) == 3


def test_a_measured_trace_is_laid_over_the_predicted_step(tmp_path: Path) -> None:
    """Of a probe's folder, with a workload of three tensors."""
    prediction = record("h200-prediction.json")
    head = {
        "version": 1,
        "kind": "trace",
        "source": "measured",
        "workload": prediction["workload"],
        "knobs": prediction["knobs"],
    }
    head |= {"gpu": "NVIDIA H200", "torch_version": "2.11.0", "allocator_settings": ""}
    events = [
        ["alloc", 1, 1000, "aten::empty"],
        ["step", 1],
        ["alloc", 2, 5000, "aten::addmm", {"source": "a.py:3 in f"}],
        ["free", 2],
    ]
    put(tmp_path / "trace.json", {**head, "events": events})
    put(tmp_path / "metrics.json", record("h200-measurement.json"))
    report = make_report([RECORDS / "h200-prediction.json", tmp_path])
    assert layers(charts(report)["Memory through step 2"], -1)["allocated (measured)"].points == [
        [0, 1024],
        [1, 6144],
        [2, 1024],
    ]
    own = layers(charts(report)["Memory through step 1"], -1)["allocated (measured)"]
    assert own.details[1] == ["allocated: 4.9 KiB", "addmm", "a.py:3 in f"]


def test_a_record_of_an_earlier_version_shows_what_it_has(tmp_path: Path) -> None:
    old = {
        key: value
        for key, value in record("prediction.json").items()
        if key not in ("step_memory", "alive_at_peak", "step")
    }
    found = charts(make_report([put(tmp_path / "old.json", old)]))
    assert "earlier version" in found["Memory through build and steps"].caption
    assert [view.name for view in found["Alive at the peak (step 2)"].views] == [
        "by category",
        "by tensor",
    ]


def test_memory_against_batch_has_the_law_the_capacity_and_the_answer() -> None:
    data = record("max-batch.json")
    shown = layers(charts(make_report(PAGES["max-batch"]))["Memory against batch size"])
    law = data["reserved_law"]
    assert [y for _, y in shown["reserved: the law (predicted)"].points] == [
        law["intercept_bytes"] + law["bytes_per_sample"] * x
        for x, _ in shown["reserved: the law (predicted)"].points
    ]
    assert shown["capacity"].points == [[data["capacity_bytes"]]]
    assert shown[f"largest batch: {data['largest_batch']}"].points == [[data["largest_batch"]]]
    throughput = layers(charts(make_report(PAGES["max-batch"]))["Throughput"])
    assert throughput[f"knee: {data['knee']['batch_size']}"].points == [
        [data["knee"]["batch_size"]]
    ]


def test_runs_of_the_same_workload_are_points_beside_the_largest_batch(tmp_path: Path) -> None:
    search, run = record("max-batch.json"), record("h200-measurement.json")
    run |= {"workload": search["workload"], "knobs": {**search["knobs"], "batch_size": 12}}
    report = make_report([RECORDS / "max-batch.json", put(tmp_path / "run.json", run)])
    shown = layers(charts(report)["Memory against batch size"])
    assert shown["reserved (measured by probe)"].points == [[12, run["peak_reserved_bytes"]]]


@pytest.mark.parametrize(
    "text", ["1", "batch_size", "batch_size * seq_len ** 2", "(a + 2) / b - 3 * a"]
)
def test_a_term_as_nested_lists_is_the_same_number(text: str) -> None:
    knobs = {"batch_size": 3, "seq_len": 5, "a": 7, "b": 4}
    operators: dict[str, Any] = {
        "+": float.__add__,
        "-": float.__sub__,
        "*": float.__mul__,
        "/": float.__truediv__,
        "**": float.__pow__,
    }

    def value(term: Any) -> float:
        if isinstance(term, list):
            return float(operators[term[0]](value(term[1]), value(term[2])))
        return float(knobs[term] if isinstance(term, str) else term)

    assert value(parse_term(text)) == evaluate(text, knobs)


def test_the_plans_slider_has_batch_and_length_and_its_own_gpus() -> None:
    calculators = [
        figure
        for figure in make_report(PAGES["plan"]).sections[0].figures
        if isinstance(figure, Calculator)
    ]
    assert [slider.name for slider in calculators[0].sliders] == ["batch_size", "seq_len"]
    assert {"rtx-4090": 24857377792}.items() <= dict(calculators[0].gpus).items()
    law = MemoryFit.from_dict(record("plan.json")["gpus"][0]["law"])
    assert [coefficient for coefficient, _ in calculators[0].terms] == list(
        law.coefficients.values()
    )


def test_the_waterfall_goes_from_the_start_to_what_was_measured_at_the_end() -> None:
    data = record("tune.json")
    shown = layers(charts(make_report(PAGES["tune"]))["From the start to the end"])
    start, end = shown["start"].points[0][2], shown["end, measured"].points[0][2]
    assert (start, end) == (
        data["before"]["step_seconds"],
        data["seconds_after"] / data["target_steps"],
    )
    steps = shown["what a change took off"].points
    assert [name for name, *_ in steps] == data["applied_order"] == ["sdpa", "optimizer-fused"]
    assert [before for _, _, before, _ in steps] == [start, pytest.approx(start / 1.25)]
    assert steps[-1][1] == pytest.approx(start / 1.6 / 1.25)


def test_losses_are_drawn_by_step_by_tokens_and_by_time() -> None:
    chart = charts(make_report(PAGES["bench"]))["Training loss"]
    assert [view.name for view in chart.views] == ["by step", "by tokens", "by time"]
    run = record("bench/small/result.json")
    by_tokens = next(layer for layer in chart.views[1].layers if "dim=16" in layer.name)
    assert by_tokens.points[-1] == [len(run["losses"]) * 4 * 32, run["losses"][-1]]
    by_time = next(layer for layer in chart.views[2].layers if "dim=16" in layer.name)
    assert by_time.points[-1][0] == pytest.approx(sum(run["step_seconds"]))


def test_a_long_loss_curve_is_means_of_stretches_and_leaves_out_what_is_not_finite() -> None:
    num_steps = 10 * MOST_POINTS
    losses = [*(2.0 if i % 2 else 4.0 for i in range(num_steps)), None]
    run = replace(TrainedRun.from_dict(record("bench/small/result.json")), losses=losses)
    chart = charts(Report(title="", sections=of_runs([run])))["Training loss"]
    points = chart.views[0].layers[0].points
    assert len(points) == MOST_POINTS
    assert {y for _, y in points} == {3.0}


def test_the_histogram_counts_every_row_once() -> None:
    chart = charts(make_report(PAGES["accuracy"]))["How large the errors are"]
    counts = [end for _, _, end, _ in chart.views[0].layers[0].points]
    (one,) = load(PAGES["accuracy"][0])
    assert sum(counts) == one.record.reserved["vramcast"].num_rows > 90
    assert counts[0] == one.record.num_exact > 90


def test_many_long_runs_still_make_a_small_page() -> None:
    num_steps = 600
    steps = {
        "losses": [1.2345678901] * num_steps,
        "step_seconds": [0.123456789] * num_steps,
        "step_memory_bytes": [1] * num_steps,
    }
    run = TrainedRun.from_dict({**record("bench/small/result.json"), **steps})
    runs = [replace(run, trial=replace(run.trial, seed=seed)) for seed in range(100)]
    assert len(html_of(Report(title="", sections=of_runs(runs)))) < MOST_BYTES


def test_a_long_measurement_is_drawn_by_its_ends_and_its_lowest_and_highest_steps(
    tmp_path: Path,
) -> None:
    num_steps = 10_000
    long = record("h200-measurement.json")
    seconds = [0.1 + 0.001 * (step % 7) for step in range(num_steps)]
    seconds[5_432], seconds[6_543] = 9.0, 0.001
    long["times"]["seconds"], long["losses"], long["warmup_seconds"] = seconds, seconds, seconds
    report = make_report([put(tmp_path / "long.json", long)])
    for points in (
        layers(charts(report)["Loss"])["loss"].points,
        layers(charts(report)["Time of every step"], 1)["warm-up"].points,
    ):
        assert len(points) <= MOST_POINTS
        assert points == sorted(points)
        assert [1, seconds[0]] in points and [num_steps, seconds[-1]] in points
        assert [5_433, 9.0] in points and [6_544, 0.001] in points
    assert "lowest and the highest of every" in charts(report)["Loss"].caption
    assert len(html_of(report)) < MOST_BYTES


def test_a_prediction_that_does_not_fit_shows_where_the_memory_ends() -> None:
    data = {
        **record("prediction.json"),
        "fits": False,
        "capacity_bytes": 4 << 30,
        "failed_allocation_bytes": 1 << 20,
    }
    section = of_prediction(Prediction.from_dict(data))[0]
    assert section.verdict.tone == "bad" and "does not fit" in section.verdict.text
    meter = section.figures[0]
    assert isinstance(meter, Meter) and sum(size for _, size, _ in meter.parts) > (
        meter.capacity_bytes or 0
    )
    assert 'class="limit"' in html_of(Report(title="", sections=[section]))
