"""Every kind of record becomes the same tables in every format, from the record alone."""

from __future__ import annotations

import html
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from formats import MOST_BYTES, charts, html_of, in_terminal, layers, markdown_of
from report_examples import HOSTILE, ODD, PAGES, TENSOR, put, record

from vramcast import __version__
from vramcast.errors import UsageError
from vramcast.reporting.loading import load
from vramcast.reporting.showing import make_report
from vramcast.text import markdown_cell, printable


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


def test_a_page_that_was_made_of_no_file_names_none_and_code_looks_like_code() -> None:
    page = html_of(replace(make_report(PAGES["prediction"]), sources=[]))
    assert f"Made by vramcast {__version__}.\n" in page
    assert "(<code>vramcast calibrate</code> measures them)" in page


def test_no_torch_is_imported_for_a_report() -> None:
    paths = [str(path) for paths in PAGES.values() for path in paths]
    code = (
        "import sys; from pathlib import Path\n"
        "from vramcast.reporting.showing import Format, make_report, render\n"
        f"render(make_report([Path(path) for path in {paths!r}]), Format.HTML)\n"
        "assert 'torch' not in sys.modules and 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


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
