"""Every kind of record becomes the same tables in every format, from the record alone."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from report_examples import HOSTILE, ODD, PAGES, RECORDS, TENSOR, put, record
from rich.console import Console

from vramcast import __version__
from vramcast.errors import UsageError
from vramcast.forecast.laws import evaluate
from vramcast.records.bench import TrainedRun
from vramcast.records.fit import MemoryFit, parse_term
from vramcast.records.prediction import Prediction
from vramcast.reporting.bench import MOST_POINTS, of_runs
from vramcast.reporting.loading import load
from vramcast.reporting.prediction import of_prediction
from vramcast.reporting.sections import Axis, Calculator, Chart, Layer, Meter, Report, View
from vramcast.reporting.showing import Format, make_report, render
from vramcast.reporting.terminal import bands_of, blocks_of, show_sections
from vramcast.text import markdown_cell, printable

MOST_BYTES = 3 << 20


def in_terminal(report: Report, width: int = 4000) -> str:
    file = StringIO()
    show_sections(report.sections, Console(file=file, width=width), detail=True)
    return file.getvalue()


def html_of(report: Report) -> str:
    return render(report, Format.HTML)


def markdown_of(report: Report) -> str:
    return render(report, Format.MARKDOWN)


def charts(report: Report) -> dict[str, Chart]:
    return {
        figure.title: figure
        for section in report.sections
        for figure in section.figures
        if isinstance(figure, Chart)
    }


def layers(chart: Chart, view: int = 0) -> dict[str, Any]:
    return {layer.name: layer for layer in chart.views[view].layers}


@pytest.mark.parametrize("paths", PAGES.values(), ids=PAGES)
def test_every_table_is_the_same_in_every_format_and_says_where_it_comes_from(
    paths: list[Path],
) -> None:
    report = make_report(paths)
    page, text, shown = html_of(report), markdown_of(report), in_terminal(report)
    tables = [table for section in report.sections for table in section.tables]
    assert tables and any(section.figures for section in report.sections)
    for table in tables:
        assert table.rows and table.samples
        assert any(
            word in table.origin
            for word in ("predicted", "measured", "fitted", "nothing to compare")
        )
        for line in (
            table.title,
            table.footer,
            *table.notes,
            *(cell for row in table.rows for cell in row),
        ):
            assert html.escape(printable(line)) in page
            assert markdown_cell(line) in text
            assert printable(line) in shown
        for row in table.rows:
            assert len(row) == len(table.columns)
            assert f"| {' | '.join(map(markdown_cell, row))} |" in text


@pytest.mark.parametrize("paths", PAGES.values(), ids=PAGES)
def test_a_page_is_one_small_file_that_needs_no_network(paths: list[Path]) -> None:
    page = html_of(make_report(paths))
    assert len(page.encode()) < MOST_BYTES
    # without the library, whose text names addresses
    own = page.partition("<style>")[0] + page.partition("</style>")[2].partition("<script>")[0]
    assert "http://" not in own and "https://" not in own
    assert "src=" not in own and "default-src 'none'" in own


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


def test_the_table_that_accuracy_wrote_is_the_same_report(tmp_path: Path) -> None:
    from_rows = make_report(PAGES["accuracy"])
    (one,) = load(PAGES["accuracy"][0])
    put(tmp_path / "accuracy.json", one.record.to_dict())
    assert make_report([tmp_path]).sections == from_rows.sections


@pytest.mark.parametrize(
    "name",
    [
        "prediction.json",
        "h200-measurement.json",
        "max-batch.json",
        "plan.json",
        "curve.json",
        "tune.json",
    ],
)
def test_a_hostile_name_stays_text(tmp_path: Path, name: str) -> None:
    report = make_report([put(tmp_path / "hostile.json", {**record(name), "workload": HOSTILE})])
    page, text, shown = html_of(report), markdown_of(report), in_terminal(report)
    assert "<" not in page.partition('id="figures">')[2].partition("</script>")[0]
    assert "<img" not in page and page.count("</script>") == page.count("<script")
    assert "<script" not in text and "<img" not in text and "[x](" not in text
    assert "\x1b" not in page + text + shown


def test_braces_in_a_record_are_text(tmp_path: Path) -> None:
    data = {**record("tune.json"), "cuda_version": "12", "driver_version": "{0.x}"}
    assert "driver {0.x}" in markdown_of(make_report([put(tmp_path / "tune.json", data)]))


@pytest.mark.parametrize(("width", "colour"), [(40, True), (80, False), (200, True)])
def test_the_terminals_width_and_wish_for_no_colour_are_respected(
    width: int, colour: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not colour:
        monkeypatch.setenv("NO_COLOR", "1")
    file = StringIO()
    report = make_report(PAGES["max-batch"])
    show_sections(report.sections, Console(file=file, width=width, force_terminal=True))
    plain = re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue()).splitlines()
    assert max(map(len, plain)) <= width
    assert ("\x1b[32m" in file.getvalue() or "\x1b[1;32m" in file.getvalue()) == colour


def blocks(
    *lines: list[float], room: int = 40, unit: str = "number", log: bool = False
) -> list[str]:
    layers = [Layer("line", "", points=[[i, y] for i, y in enumerate(line, 1)]) for line in lines]
    return blocks_of(View(Axis(""), Axis("", unit, log), layers), room)


def test_bands_are_letters_below_the_blocks_and_their_names_are_said() -> None:
    line = Layer("step", "allocated", [[event, 1] for event in range(1, 9)], "allocated")
    bands = [
        Layer("band", "build", [[0, 2]], "s7"),
        Layer("band", "forward", [[2, 4], [6, 7]], "s0"),
        Layer("band", "backward", [[4, 6], [7, 8]], "s3"),
    ]
    letters, key = bands_of(View(Axis(""), Axis(""), [*bands, line]), 8)
    assert letters == "bbffBBfB"
    assert key == "b build, f forward, B backward"
    assert bands_of(View(Axis(""), Axis(""), [line]), 8) == ("", "")
    short = Layer("band", "build", [[0, 2]], "s7"), Layer("band", "forward", [[2, 8]], "s0")
    # What has no letter in so few columns is not explained.
    assert bands_of(View(Axis(""), Axis(""), [*short, line]), 2) == ("ff", "f forward")


def test_a_page_that_was_made_of_no_file_names_none_and_code_looks_like_code() -> None:
    page = html_of(replace(make_report(PAGES["prediction"]), sources=[]))
    assert f"Made by vramcast {__version__}.\n" in page
    assert "(<code>vramcast calibrate</code> measures them)" in page


def test_a_line_of_blocks_keeps_its_peak_and_fits() -> None:
    (line,) = blocks([1.0] * 500 + [9.0] + [2.0] * 500)
    assert len(line) == 40 and line.count("█") == 1 and line[0] < line[-1]
    assert blocks([3.0, 3.0, 3.0]) == ["▁▁▁"]
    assert blocks([5.0, 5.1, 5.0]) == ["▁█▁"]
    assert blocks([5.0, 10.0, 10.0], unit="bytes") == ["▅██"], "memory is drawn from zero"
    assert blocks([1e308, -1e308, 1e308]) == ["█▁█"], "their difference is infinite"


def test_lines_of_blocks_share_a_scale_and_a_shorter_one_ends_earlier() -> None:
    losses = [8.0, 4.0, 2.0, 1.0]
    assert blocks(losses, losses[:3], log=True) == ["█▆▃▁", "█▆▃ "], "every halving is the same"
    assert blocks([99.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0], log=True) == ["████▁▁▁▁"]
    assert blocks([8.0, 2.0, 4.0, 4.0, 1.0, 1.0], room=3, log=True) == ["██▁"], "means of losses"


def test_no_torch_is_imported_for_a_report() -> None:
    paths = [str(path) for paths in PAGES.values() for path in paths]
    code = (
        "import sys; from pathlib import Path\n"
        "from vramcast.reporting.showing import Format, make_report, render\n"
        f"render(make_report([Path(path) for path in {paths!r}]), Format.HTML)\n"
        "assert 'torch' not in sys.modules and 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "not JSON"),
        ('{"source": "predicted", "ver', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a record of vramcast"),
        ("7", "not a record of vramcast"),
        ('{"source": "predicted", "version": 99}', "version 99"),
        ('{"source": "predicted", "version": 1}', "lacks"),
        ('{"source": "dreamt", "version": 1}', "dreamt"),
        ('{"source": "predicted", "points": [{}]}', "lacks"),
        ('{"runs": [], "protocol_hash": "x", "folder": "runs/a"}', "summary of a bench"),
    ],
)
def test_what_is_no_record_is_refused_with_its_name(
    tmp_path: Path, content: str, says: str
) -> None:
    path = put(tmp_path / "broken.json", content)
    with pytest.raises(UsageError, match="broken.json") as refused:
        make_report([path])
    assert says in refused.value.message and refused.value.advice


@pytest.mark.parametrize(
    ("name", "edit", "says"),
    [
        ("prediction.json", lambda d: d["step_memory"].update(peak_point=10**6), "peak_point"),
        ("prediction.json", lambda d: d["step_memory"].update(points=[[1]] * 5), "points"),
        ("prediction.json", lambda d: d["step_memory"]["changes"].insert(0, [10**6, 1]), "changes"),
        ("prediction.json", lambda d: d["step"].update(bound_by="magic"), "bound_by"),
        ("max-batch.json", lambda d: d.update(capacity_bytes=0), "capacity_bytes"),
        ("compare.json", lambda d: d.update(models=[]), "models"),
        ("plan.json", lambda d: d["gpus"][0]["stages"][0].update(seq_len=0), "seq_len"),
        ("fit.json", lambda d: d[0]["terms"].update(constant="open('x')"), "terms"),
        ("fit.json", lambda d: d[0].update(rows=[]), "rows"),
        ("tune.json", lambda d: d.update(target_steps=0), "target_steps"),
    ],
)
def test_a_record_that_contradicts_itself_is_one_message_with_the_field(
    tmp_path: Path, name: str, edit: Any, says: str
) -> None:
    data = record(name)
    edit(data)
    with pytest.raises(UsageError, match=says):
        make_report([put(tmp_path / "edited.json", data)])


@pytest.mark.parametrize(
    ("name", "edit", "says"),
    [
        ("curve.json", lambda d: d.update(capacity_bytes=-1), "capacity_bytes"),
        ("curve.json", lambda d: d["points"][0].update(step_seconds=float("nan")), "not JSON"),
        (
            "h200-measurement.json",
            lambda d: d.update(memory_cap_bytes=-(10**400)),
            "memory_cap_bytes",
        ),
        ("h200-measurement.json", lambda d: d.update(losses=[10**400]), "losses"),
        (
            "bench/small/result.json",
            lambda d: d["trial"]["protocol"].update(last_steps=-(10**400)),
            "last_steps",
        ),
    ],
)
def test_a_number_that_nothing_can_be_computed_with_is_refused(
    tmp_path: Path, name: str, edit: Any, says: str
) -> None:
    data = record(name)
    edit(data)
    with pytest.raises(UsageError, match="edited.json") as refused:
        make_report([put(tmp_path / "edited.json", data)])
    assert says in refused.value.message and "make it again" in refused.value.advice


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


def test_a_folder_without_a_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no record"):
        make_report([tmp_path])
    with pytest.raises(UsageError, match="does not exist"):
        make_report([tmp_path / "nothing"])


def test_a_bench_that_has_not_ended_shows_the_runs_that_have(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        put(tmp_path / name / "trial.json", record("bench/small/trial.json"))
    with pytest.raises(UsageError, match="finished"):
        make_report([tmp_path])
    put(tmp_path / "a" / "result.json", record("bench/small/result.json"))
    assert len(make_report([tmp_path]).sections[0].tables[0].rows) == 1


def test_numbers_that_json_has_no_word_for_do_not_break_the_page(tmp_path: Path) -> None:
    broken = record("h200-measurement.json")
    broken["losses"] = ["nan", 1.5, "inf", None]
    report = make_report([put(tmp_path / "broken.json", broken)])
    assert layers(charts(report)["Loss"])["loss"].points == [[2, 1.5]]
    data = html_of(report).partition('id="figures">')[2].partition("</script>")[0]
    json.loads(data, parse_constant=lambda name: pytest.fail(name))


@pytest.mark.parametrize(("name", "edit", "says"), ODD)
def test_what_a_record_lacks_is_left_out_of_every_format(
    tmp_path: Path, name: str, edit: Any, says: str
) -> None:
    report = make_report([put(tmp_path / "record.json", {**record(name), **edit})])
    assert all(
        table.rows and table.columns for section in report.sections for table in section.tables
    )
    assert all(view.layers for chart in charts(report).values() for view in chart.views)
    assert says in html_of(report) and says in markdown_of(report) and says in in_terminal(report)


def test_a_plan_for_a_gpu_on_which_nothing_fits_shows_what_is_in_the_way(tmp_path: Path) -> None:
    plan = record("plan.json")
    stage = plan["gpus"][0]["stages"][-1]
    stage |= dict.fromkeys([name for name in stage if name not in ("seq_len", "why", "fits")])
    stage |= {"fits": False, "missing_bytes": 3 << 30, "largest_tensors": [TENSOR]}
    plan["gpus"][0] |= {"total_steps": None, "total_tokens": None, "total_hours": None, "law": None}
    text = markdown_of(make_report([put(tmp_path / "plan.json", plan)]))
    assert (
        "not even one sample fits at length 1024" in text
        and "where 3.00 GiB are missing" in text
        and "| none |" in text
    )


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
