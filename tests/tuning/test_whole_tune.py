"""A whole tune on invented runs: a candidate of every verdict, stacking, budget, sizes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from invented import MACHINE, InventedRunner, prediction, run
from typer.testing import CliRunner

import vramcast
from vramcast.cli.main import app
from vramcast.errors import UsageError, VramcastError
from vramcast.processes.progress import Progress, Report
from vramcast.records.measurement import Measurement
from vramcast.records.prediction import Prediction
from vramcast.records.tune import Reason, TuneResult, TuneVerdict
from vramcast.reporting.showing import markdown_of
from vramcast.tuning.candidates import Candidate
from vramcast.tuning.optimisations import Losses, Optimisation, Refusal, knobs
from vramcast.tuning.predictions import batch_sizes
from vramcast.tuning.tune import tune_with
from vramcast.units import GiB
from vramcast.workload.configuration import Configuration
from vramcast.workload.switches import Switches


def switches(**values: bool) -> Configuration:
    return Configuration(switches=Switches(**values))


OPTIMISATIONS = (
    Optimisation(name="attention", what="a better attention", changes=(knobs(attention="auto"),)),
    Optimisation(
        name="amp",
        what="fewer bits",
        changes=(knobs(precision="amp"),),
        losses=Losses.ROUNDED,
        caution="mind the range",
    ),
    Optimisation(
        name="tf32",
        what="fewer bits in products",
        changes=(switches(tf32=True),),
        losses=Losses.ROUNDED,
    ),
    Optimisation(name="half", what="far fewer bits", changes=(knobs(precision="half"),)),
    Optimisation(name="diverges", what="faster and wrong", changes=(knobs(wrong=True),)),
    Optimisation(name="too-large", what="keeps everything", changes=(knobs(keep=True),)),
    Optimisation(
        name="unfit", what="keeps even more", changes=(knobs(keep="more"),), more_memory=True
    ),
    Optimisation(name="hangs", what="waits", changes=(knobs(hang=True),)),
    Optimisation(name="crashes", what="breaks", changes=(knobs(crash=True),)),
    Optimisation(name="nothing", what="does nothing", changes=(knobs(idle=True),)),
    Optimisation(name="slower", what="does more", changes=(knobs(slow=True),)),
    Optimisation(name="missing", what="has no knob", changes=(knobs(absent=1),)),
    Optimisation(
        name="package", what="needs a package", changes=(knobs(idle=2),), needs=("bitsandbytes",)
    ),
    Optimisation(
        name="other-gpu", what="needs another GPU", changes=(knobs(idle=3),), capability=(10, 0)
    ),
    Optimisation(
        name="anomaly-off", what="is so already", changes=(switches(detect_anomaly=False),)
    ),
    Optimisation(
        name="shallow", what="another model", changes=(knobs(shallow=True),), changes_training=True
    ),
    Optimisation(name="graph", what="needs fewer bits", changes=(knobs(graph=True),)),
    Optimisation(
        name="compile",
        what="compiles",
        changes=(knobs(compile=True),),
        start_seconds=40.0,
        losses=Losses.ROUNDED,
    ),
)


def seconds_of(c: Configuration) -> float:
    """Attention is 50 ms of 100; the rest are products, which are faster in fewer bits."""
    k = c.knobs
    attention = 0.01 if k.get("attention") else 0.05
    products = 0.015 if k.get("precision") == "amp" else 0.02 if c.switches.tf32 else 0.05
    seconds = attention + products
    seconds *= 0.9 if k.get("wrong") or k.get("shallow") else 1.2 if k.get("slow") else 1.0
    return seconds * (0.8 if k.get("compile") else 1.0) * (0.7 if k.get("graph") else 1.0)


def step(c: Configuration) -> Measurement:
    k = c.knobs
    if k.get("keep"):
        error = (
            "OutOfMemoryError: Tried to allocate 3.00 GiB. "
            "GPU 0 has 141.00 GiB of which 1.00 GiB is free."
        )
        return run(outcome="out_of_memory", error=error, took=2.0)
    if k.get("hang"):
        return run(
            outcome="timeout", error="It did not end within 300 s (last phase: measure).", took=60.0
        )
    if k.get("crash"):
        return run(
            outcome="crashed",
            error="RuntimeError: CUDA error: operation not permitted when stream is capturing",
            took=2.0,
        )
    if k.get("graph") and k.get("precision") != "amp":
        return run(
            outcome="crashed", error="RuntimeError: No available kernel. Aborting execution."
        )
    losses = (
        (5.0, 4.9, 9.0, 12.0)
        if k.get("wrong")
        else (5.0, 4.9, 4.8, 4.71)
        if k.get("precision")
        else (5.0, 4.9, 4.8, 4.7)
    )
    return run(
        seconds_of(c),
        losses=losses,
        knobs={"batch_size": 4, "seq_len": 16, **k},
        took=3.0 + (20.0 if k.get("compile") else 0.0),
    )


def predicted(c: Configuration) -> Prediction | str:
    return prediction(
        200 * GiB if c.knobs.get("keep") else 10 * GiB, seconds=seconds_of(c), knobs=dict(c.knobs)
    )


def candidates(optimisations: tuple[Optimisation, ...]) -> list[Candidate]:
    no_knob = Refusal(Reason.NO_KNOB, "the workload has no knob absent")
    return [
        Candidate(one, refusal=no_knob)
        if one.name == "missing"
        else Candidate(one, *one.changes[:1])
        for one in optimisations
    ]


def whole(
    runner: InventedRunner,
    optimisations: tuple[Optimisation, ...] = OPTIMISATIONS,
    gpu: str | None = "h200",
) -> TuneResult:
    runner.gpu = gpu
    tried = candidates(optimisations)
    return tune_with(runner, tried, Configuration(), MACHINE, target_steps=86_400)  # type: ignore[arg-type]


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


BATCH = Optimisation(
    name="batch-size",
    what="larger",
    size="batch_size",
    losses=Losses.NOT_COMPARED,
    more_memory=True,
)


def by_batch(
    fixed: float, each: float, memory: Callable[[int], int]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def of(c: Configuration) -> tuple[int, float]:
        batch = c.knobs.get("batch_size", 4)
        return batch, fixed + each * batch

    def measured(c: Configuration) -> Measurement:
        batch, seconds = of(c)
        return run(seconds, knobs={"batch_size": batch, "seq_len": 16}, reserved=memory(batch))

    def foretold(c: Configuration) -> Prediction:
        batch, seconds = of(c)
        return prediction(
            memory(batch), seconds=seconds, knobs={"batch_size": batch, "seq_len": 16}
        )

    return measured, foretold


def test_the_batch_grows_to_the_knee_and_is_judged_by_throughput() -> None:
    runner = InventedRunner(*by_batch(0.05, 0.01, lambda b: (2 + b) * GiB // 4))
    result = whole(runner, (BATCH,))
    assert result.total.by == "tokens a second"
    assert result.configuration["knobs"]["batch_size"] >= 80  # the knee is at 95
    assert result.after.work_per_step == 16 * result.configuration["knobs"]["batch_size"]
    assert any("losses of steps of other sizes cannot be compared" in note for note in result.notes)
    assert "of other data: not compared" in markdown_of(result, "log")


def test_a_batch_that_cannot_fit_is_not_run() -> None:
    runner = InventedRunner(*by_batch(0.05, 0.01, lambda b: (20 + 5 * b) * GiB))
    whole(runner, (BATCH,))
    tried = {c.knobs.get("batch_size", 4) for c in runner.measured}
    assert max(tried) > 4 and all((20 + 5 * b) * GiB < 0.92 * 140 * GiB for b in tried)


def test_where_the_gpu_waits_for_the_host_the_batch_comes_first() -> None:
    runner = InventedRunner(*by_batch(0.5, 0.001, lambda b: (2 + b) * GiB // 4))
    result = whole(runner, (*OPTIMISATIONS[:2], BATCH), gpu=None)
    assert "batch_size" in runner.measured[2].knobs
    assert result.rows_with(TuneVerdict.APPLIED)[0].name.startswith("batch-size")


def test_what_was_slower_in_a_small_step_is_tried_again_in_a_larger_one() -> None:
    """Fewer bits cost the host time, and pay once the GPU is what is waited for."""
    amp = replace(OPTIMISATIONS[1], likely=True)

    def seconds(c: Configuration) -> float:
        batch, fast = c.knobs.get("batch_size", 4), c.knobs.get("precision") == "amp"
        return max(0.12 if fast else 0.1, (0.001 if fast else 0.002) * batch)

    def measured(c: Configuration) -> Measurement:
        return run(seconds(c), knobs={"batch_size": 4, "seq_len": 16, **c.knobs})

    def foretold(c: Configuration) -> Prediction:
        return prediction(GiB, seconds=seconds(c), knobs=dict(c.knobs))

    result = whole(InventedRunner(measured, foretold), (amp, BATCH), gpu=None)
    [row] = [row for row in result.rows if row.name == "amp"]
    assert row.alone and row.alone.verdict == "rejected" and "slower" in row.alone.reason
    assert row.verdict == "applied" and result.total.ratio == pytest.approx(
        0.1 / 4 / 0.001, rel=0.05
    )


def test_a_change_of_which_a_part_was_replaced_stays_with_the_rest() -> None:
    """Two knobs in one entry, of which a later one sets the first to something still faster."""
    both = Optimisation(
        name="both", what="", changes=(knobs(precision="amp", fused=True),), losses=Losses.ROUNDED
    )
    better = Optimisation(
        name="better", what="", changes=(knobs(precision="half"),), losses=Losses.ROUNDED
    )
    worse = Optimisation(
        name="worse", what="", changes=(knobs(precision="tf"),), losses=Losses.ROUNDED
    )

    def measured(c: Configuration) -> Measurement:
        fused = 0.5 if c.knobs.get("fused") and c.knobs.get("precision") in ("amp", "half") else 1.0
        precision = {"amp": 0.8, "half": 0.6, "tf": 0.9}.get(c.knobs.get("precision", ""), 1.0)
        return run(0.1 * fused * precision, knobs={"batch_size": 4, "seq_len": 16, **c.knobs})

    result = whole(InventedRunner(measured), (worse, both, better), gpu=None)
    assert result.configuration["knobs"] == {"precision": "half", "fused": True}
    assert result.total.ratio == pytest.approx(1 / 0.3, rel=0.02)
    assert [row.verdict for row in result.rows] == ["rejected", "applied", "applied"]


def test_where_no_larger_batch_fits_that_is_said() -> None:
    runner = InventedRunner(*by_batch(0.05, 0.01, lambda b: (100 + 8 * b) * GiB))
    [row] = whole(runner, (BATCH,)).rows
    assert (row.verdict, row.reason) == (
        "not applicable",
        "no other batch_size is worth trying, by prediction",
    )


def test_a_size_that_had_no_time_alone_is_one_row_on_top() -> None:
    """Sizes are chosen by prediction, and here that is slow: only on top of the others."""
    measured, foretold = by_batch(0.05, 0.01, lambda b: (2 + b) * GiB // 4)
    runner = InventedRunner(measured, foretold, budget=500.0)
    runner.seconds_to_predict = 30.0
    result = whole(runner, (replace(OPTIMISATIONS[0], more_memory=True), BATCH), gpu=None)
    names = [row.name for row in result.rows]
    assert len(set(names)) == len(names) and "batch-size" not in names
    assert any(name.startswith("batch-size ") for name in names)


@pytest.mark.parametrize(
    ("here", "further", "expected"),
    [
        ("no GPU was named", "no GPU was named", [8, 16, 32]),
        (
            prediction(10 * GiB, seconds=0.1),
            prediction(80 * GiB, seconds=0.8),
            [14, 48],
        ),  # no fixed part
        (prediction(10 * GiB, seconds=0.1), prediction(24 * GiB, seconds=0.45), [72, 128, 224]),
        (
            prediction(10 * GiB, seconds=0.1),
            prediction(11 * GiB, seconds=0.45),
            [72, 128, 256],
        ),  # at most 64 times
        (prediction(130 * GiB, seconds=0.1), prediction(200 * GiB, seconds=0.8), []),
        (prediction(10 * GiB, seconds=None), prediction(80 * GiB, seconds=None), [14, 48]),
        (prediction(10 * GiB, seconds=0.1), prediction(10 * GiB, seconds=0.1), [32, 256]),
    ],
)
def test_sizes_worth_a_run(
    here: Prediction | str, further: Prediction | str, expected: list[int]
) -> None:
    assert batch_sizes(4, here, further) == expected


@pytest.mark.parametrize(("most_seconds", "expected"), [(0.5, [32]), (0.2, [12]), (0.105, [])])
def test_a_batch_whose_step_would_take_too_long_for_the_budget_is_not_tried(
    most_seconds: float, expected: list[int]
) -> None:
    found = batch_sizes(
        4, prediction(10 * GiB, seconds=0.1), prediction(17 * GiB, seconds=0.45), most_seconds
    )
    assert found == expected and all(0.05 + 0.0125 * size <= most_seconds for size in found)


def test_prospects_are_predicted_against_the_same_prediction_for_here() -> None:
    def foretold(c: Configuration) -> Prediction:
        return replace(predicted(c), step_seconds=0.05)  # type: ignore[type-var]

    result = whole(InventedRunner(step, foretold), OPTIMISATIONS[:1])
    assert {
        prospect.speedup for prospect in result.prospects if prospect.what.startswith("on ")
    } == {1.0}
    assert "on b200" in {prospect.what for prospect in result.prospects}
    assert not any(prospect.what == "on h200" for prospect in result.prospects)


def test_a_budget_too_small_for_the_start_is_one_clear_message() -> None:
    with pytest.raises(UsageError, match="before the start has run twice"):
        whole(InventedRunner(step, predicted, budget=4.0))


def test_where_predicting_takes_long_and_time_is_short_things_are_just_tried() -> None:
    runner = InventedRunner(step, predicted, budget=400.0)
    runner.seconds_to_predict = 30.0
    chosen = (OPTIMISATIONS[0], BATCH, OPTIMISATIONS[6])  # attention, batch-size, unfit
    result = whole(runner, chosen, gpu=None)
    [unfit] = [row for row in result.rows if row.name == "unfit"]
    assert (
        unfit.verdict == "rejected" and unfit.alone and unfit.alone.missing_bytes == 2 * GiB
    )  # by running out of memory
    assert len(runner.predicted) <= 6


def test_little_memory_left_is_a_reason_to_predict_before_trying() -> None:
    """Autocast after bfloat16 takes more memory: with little left it is predicted and not run."""
    optimisations = (
        Optimisation(name="other", what="fewer bits elsewhere", changes=(knobs(other=True),)),
    )

    def full(c: Configuration) -> Measurement:
        return replace(
            step(Configuration()), peak_reserved_bytes=100 * GiB, knobs={"batch_size": 4, **c.knobs}
        )

    runner = InventedRunner(
        full, lambda c: prediction(150 * GiB if c.knobs.get("other") else 100 * GiB)
    )
    [row] = whole(runner, optimisations).rows
    assert (
        row.verdict == "rejected"
        and "predicted not to fit" in row.reason
        and "10.00 GiB more than there is" in row.reason
    )
    assert not any(c.knobs.get("other") for c in runner.measured)


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
