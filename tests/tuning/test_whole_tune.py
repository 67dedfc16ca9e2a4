"""A whole tune on invented runs: a candidate of every verdict, stacking, budget."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from invented import (
    OPTIMISATIONS,
    InventedRunner,
    predicted,
    run,
    step,
    whole,
)
from typer.testing import CliRunner

import vramcast
from vramcast.cli.commands import app
from vramcast.errors import UsageError, VramcastError
from vramcast.processes.progress import Progress, Report
from vramcast.records.measurement import Measurement
from vramcast.records.tune import Reason, TuneResult, TuneVerdict
from vramcast.reporting.showing import markdown_of
from vramcast.workload.configuration import Configuration


@pytest.fixture(scope="module")
def tuned() -> tuple[TuneResult, InventedRunner]:
    runner = InventedRunner(step, predicted)
    return whole(runner), runner


VERDICTS = {
    "attention": (TuneVerdict.APPLIED, Reason.FASTER, "by step time"),
    "amp": (TuneVerdict.APPLIED, Reason.FASTER, "by step time"),
    "compile": (TuneVerdict.APPLIED, Reason.FASTER, "by step time"),
    "graph": (TuneVerdict.APPLIED, Reason.FASTER, "by step time"),
    "tf32": (
        TuneVerdict.REJECTED,
        Reason.TOO_LITTLE_GAIN,
        "on top of the others too little gain",
    ),
    "half": (TuneVerdict.REJECTED, Reason.OTHER_LOSSES, "other losses"),
    "diverges": (TuneVerdict.REJECTED, Reason.OTHER_LOSSES, "other losses"),
    "too-large": (TuneVerdict.REJECTED, Reason.OUT_OF_MEMORY, "2.00 GiB are missing"),
    "unfit": (
        TuneVerdict.REJECTED,
        Reason.PREDICTED_OUT_OF_MEMORY,
        "predicted not to fit: it needs 200.00 GiB, 60.00 GiB more than there is "
        "(no GPU time was spent)",
    ),
    "hangs": (TuneVerdict.FAILED, Reason.TIMEOUT, "did not end within 300 s"),
    "crashes": (TuneVerdict.FAILED, Reason.CRASHED, "stream is capturing"),
    "nothing": (TuneVerdict.REJECTED, Reason.TOO_LITTLE_GAIN, "too little gain"),
    "slower": (TuneVerdict.REJECTED, Reason.SLOWER, "slower: 0.83"),
    "missing": (TuneVerdict.NOT_APPLICABLE, Reason.NO_KNOB, "no knob absent"),
    "package": (
        TuneVerdict.NOT_APPLICABLE,
        Reason.MACHINE_LACKS_IT,
        "pip install bitsandbytes",
    ),
    "other-gpu": (
        TuneVerdict.NOT_APPLICABLE,
        Reason.MACHINE_LACKS_IT,
        "needs compute capability 10.0, and the GPU has 9.0",
    ),
    "anomaly-off": (
        TuneVerdict.NOT_APPLICABLE,
        Reason.ALREADY_SET,
        "the baseline has it already (detect_anomaly=False)",
    ),
    "shallow": (TuneVerdict.REJECTED, Reason.CHANGES_TRAINING, "--only shallow"),
}


def test_every_row_is_there_once() -> None:
    assert set(VERDICTS) == {one.name for one in OPTIMISATIONS}


@pytest.mark.parametrize("name", VERDICTS)
def test_a_candidate_of_every_verdict(tuned: tuple[TuneResult, InventedRunner], name: str) -> None:
    verdict, code, words = VERDICTS[name]
    [row] = [row for row in tuned[0].rows if row.name == name]
    assert (row.verdict, row.reason_code) == (verdict, code)
    assert words in row.reason


def test_the_total_is_measured_not_multiplied(tuned: tuple[TuneResult, InventedRunner]) -> None:
    result = tuned[0]
    expected = 0.1 / ((0.01 + 0.015) * 0.8 * 0.7)
    assert result.total.ratio == pytest.approx(expected, rel=0.02)
    assert result.total.low is not None and result.total.low < expected < result.total.high  # type: ignore[operator]
    assert result.before.step_seconds == pytest.approx(0.1, rel=0.02)
    assert (result.seconds_before, result.seconds_after) == (
        pytest.approx(8640, rel=0.02),
        pytest.approx(8640 / expected, rel=0.02),
    )
    assert result.configuration["knobs"] == {
        "attention": "auto",
        "precision": "amp",
        "graph": True,
        "compile": True,
    }
    assert result.loss_difference == pytest.approx(0.01 / 4.7)
    assert result.applied_order == ["attention", "amp", "graph", "compile"]


def test_what_helps_alone_is_measured_again_on_top_and_both_are_told(
    tuned: tuple[TuneResult, InventedRunner],
) -> None:
    rows = {row.name: row for row in tuned[0].rows}
    amp, tf32 = rows["amp"], rows["tf32"]
    assert amp.alone and amp.alone.speedup and amp.on_top and amp.on_top.speedup
    assert amp.alone.speedup.ratio == pytest.approx(0.1 / 0.065, rel=0.02)
    assert amp.on_top.speedup.ratio == pytest.approx(0.06 / 0.025, rel=0.02)
    assert (
        tf32.alone
        and tf32.alone.verdict == "applied"
        and tf32.on_top
        and tf32.on_top.verdict == "rejected"
    )


def test_runs_are_interleaved_and_one_that_hangs_or_crashes_costs_few(
    tuned: tuple[TuneResult, InventedRunner],
) -> None:
    runner = tuned[1]
    first = [c.knobs | c.switches.given() for c in runner.measured[:5]]
    assert first == [{}, {}, {"attention": "auto"}, {"attention": "auto"}, {}]
    times = {
        name: sum(bool(c.knobs.get(name)) for c in runner.measured)
        for name in ("hang", "crash", "slow", "wrong", "keep")
    }
    assert times == {
        "hang": 1,
        "crash": 2,
        "slow": 1,
        "wrong": 1,
        "keep": 1,
    }  # a crash may have had to do with the rest: once more on top
    assert runner.measured[-2:] == [
        Configuration(),
        Configuration(knobs=tuned[0].configuration["knobs"]),
    ]


def test_what_failed_alone_is_tried_again_on_top(
    tuned: tuple[TuneResult, InventedRunner],
) -> None:
    [graph] = [row for row in tuned[0].rows if row.name == "graph"]
    assert (
        graph.alone
        and graph.alone.verdict == "failed"
        and "16-bit floats" in graph.alone.likely_cause
    )
    assert graph.on_top and graph.on_top.verdict == "applied"


def test_what_is_tried_does_not_hang_on_the_words_of_an_error() -> None:
    """A crash whose message speaks of a timeout, or of losses, is still tried on top of others."""

    def measured(c: Configuration) -> Measurement:
        if c.knobs.get("graph") and c.knobs.get("precision") != "amp":
            return run(outcome="crashed", error="RuntimeError: timeout while the losses are read")
        return step(c)

    chosen = tuple(one for one in OPTIMISATIONS if one.name in ("amp", "graph"))
    result = whole(InventedRunner(measured, predicted), chosen, gpu=None)
    graph = result.rows[1]
    assert graph.alone and graph.alone.reason_code == Reason.CRASHED
    assert graph.verdict == TuneVerdict.APPLIED


def test_a_record_from_before_there_were_codes_is_read(
    tuned: tuple[TuneResult, InventedRunner],
) -> None:
    data = tuned[0].to_dict()
    for row in data["rows"]:
        for part in (row, row["alone"] or {}, row["on_top"] or {}):
            part.pop("reason_code", None)
    old = TuneResult.from_dict(data)
    assert {row.reason_code for row in old.rows} == {None}
    logs = [markdown_of(result, "log") for result in (old, tuned[0])]
    assert logs[0] == logs[1]


def test_the_log_has_every_row_and_the_numbers(
    tuned: tuple[TuneResult, InventedRunner],
) -> None:
    text = markdown_of(tuned[0], "log")
    for name in VERDICTS:
        assert f"| {name} |" in text
    for words in (
        "### Applied",
        "### Tested and rejected",
        "### Failed",
        "### Not applicable",
        "times as fast",
        "mind the range",
        "0.10 days",
    ):
        assert words in text
    assert "step = gpt2_124m(" in text
    assert TuneResult.from_json(tuned[0].to_json()) == tuned[0]


def test_the_command_shows_it_and_its_exit_code_says_whether_something_helped(
    tuned: tuple[TuneResult, InventedRunner], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def invented(workload: str, *, progress: Report, **_: Any) -> TuneResult:
        progress(Progress("alone: amp", line="alone amp applied: 2x"))
        return tuned[0] if workload == "w" else replace(tuned[0], rows=[], applied_order=[])

    monkeypatch.setattr(vramcast, "tune", invented)
    shown = CliRunner().invoke(
        app, ["tune", "w", "--out", str(tmp_path / "x")], env={"COLUMNS": "200"}
    )
    assert shown.exit_code == 0
    for words in (
        "times as fast by step time",
        "Tested and rejected",
        "likely cause",
        "What would help next",
        "step = gpt2_124m(",
        "days",
    ):
        assert words in shown.stdout
    assert "amp" in shown.stderr and "applied: 2x" in shown.stderr and "final.json" in shown.stderr
    as_json = CliRunner().invoke(app, ["tune", "other", "--out", str(tmp_path / "x"), "--json"])
    assert (as_json.exit_code, json.loads(as_json.stdout)["folder"]) == (3, str(tmp_path / "x"))


def test_noise_alone_applies_nothing() -> None:
    result = whole(
        InventedRunner(
            lambda c: run(0.1, knobs={"batch_size": 4, "seq_len": 16, **c.knobs}), noise=0.05
        ),
        OPTIMISATIONS[:5],
        gpu=None,
    )
    assert result.rows_with(TuneVerdict.APPLIED) == []
    assert result.total.ratio == 1.0


def test_a_baseline_that_does_not_run_ends_the_tune() -> None:
    with pytest.raises(VramcastError, match="did not run: out_of_memory") as caught:
        whole(InventedRunner(lambda _: run(outcome="out_of_memory", error="CUDA out of memory")))
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("budget", [20.0, 60.0, 120.0, 200.0])
def test_the_budget_is_honoured_and_what_was_not_begun_is_listed(budget: float) -> None:
    runner = InventedRunner(step, predicted, budget=budget)
    result = whole(runner)
    assert runner.seconds_left() >= 0
    assert {row.name for row in result.rows} == set(VERDICTS)
    assert any(
        "time for the tune was spent" in row.reason
        for row in result.rows_with(TuneVerdict.NOT_TRIED)
    )
    if result.rows_with(TuneVerdict.APPLIED):  # start and end were still measured side by side
        assert runner.measured[-2:] == [
            Configuration(),
            Configuration(knobs=result.configuration["knobs"]),
        ]
    if budget == 200.0:
        assert {"attention", "amp"} <= {row.name for row in result.rows_with(TuneVerdict.APPLIED)}


def test_a_budget_too_small_for_the_start_is_one_clear_message() -> None:
    with pytest.raises(UsageError, match="before the start has run twice"):
        whole(InventedRunner(step, predicted, budget=4.0))


def test_the_steps_from_start_to_end_multiply_to_the_total(
    tuned: tuple[TuneResult, InventedRunner],
) -> None:
    """They are measured on top of each other, so that they must; what each did alone need not."""
    result = tuned[0]
    rows = {row.name: row for row in result.rows}
    ratios = [
        found.on_top.speedup.ratio
        for name in result.step_order
        if (found := rows[name]).on_top and found.on_top.speedup
    ]  # type: ignore[union-attr]
    assert len(ratios) == len(result.step_order) >= len(result.applied_order)
    assert math.prod(ratios) == pytest.approx(result.total.ratio, rel=0.03)


def test_what_an_earlier_call_has_run_is_judged_however_little_time_is_left() -> None:
    first = InventedRunner(step, predicted)
    complete = whole(first)
    again = InventedRunner(step, predicted, budget=1.0)
    again.run_earlier = {configuration.key for configuration in first.measured}
    resumed = whole(again)
    assert {row.name: row.verdict for row in resumed.rows} == {
        row.name: row.verdict for row in complete.rows
    }
    assert again.seconds_left() == 1.0


def test_a_start_whose_losses_are_not_finite_is_no_start() -> None:
    with pytest.raises(VramcastError, match="losses of the baseline are not finite"):
        whole(
            InventedRunner(lambda _: run(0.1, losses=(1.0, math.nan)), predicted), OPTIMISATIONS[:1]
        )
